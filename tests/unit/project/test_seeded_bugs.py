# SPDX-License-Identifier: Apache-2.0
"""`make prove` seeds bugs in the model by its text; a change of the text must not pass it by."""

from tests.prove.mutant_list import MUTANTS
from tests.prove.mutants import ROOT, place_of


def test_every_bug_that_the_proof_seeds_has_its_place() -> None:
    # GIVEN the list of bugs WHEN their places are looked for
    places = {mutant.name: place_of(mutant, ROOT) for mutant in MUTANTS}
    # THEN each has one file, and no two are named alike
    assert len(places) == len(MUTANTS) >= 20
