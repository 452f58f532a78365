# SPDX-License-Identifier: Apache-2.0
"""`make prove` switches rules of the machine off by name; a rename must not pass it by."""

from biotrail.converters.match import rules
from tests.prove.mutant_list import MUTANTS


def test_every_bug_that_the_proof_seeds_has_its_place() -> None:
    # GIVEN the list of bugs / THEN each lacks rules that there are
    for mutant in MUTANTS:
        assert mutant.rules, mutant.name
        assert set(mutant.rules) <= set(rules.RULES), mutant.name
    # AND no two are named alike
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 20
