# SPDX-License-Identifier: Apache-2.0
"""`make prove` breaks rules and functions of the model by name; a rename must not pass it by."""

from tests.prove.mutant_list import MUTANTS


def test_every_bug_that_the_proof_seeds_has_its_place() -> None:
    # GIVEN the list of bugs
    for mutant in MUTANTS:
        # WHEN the rules or the function that each breaks are looked for
        right, wrong = mutant.broken.pair()
        # THEN they are there, and others with the bug
        assert right != wrong, mutant.name
    # AND no two are named alike
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
