# SPDX-License-Identifier: Apache-2.0
"""Names of several logs in one trace."""

import pytest

from biotrail.converters.outputs.perfetto.tracks.place import Named, places


@pytest.mark.parametrize(
    ("files", "labels"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a", "a"], ["a", "a (2)", "a (3)"]),
        (["a", "a", "a (2)"], ["a", "a (3)", "a (2)"]),
        (["a (2)", "a", "a", "a (2)"], ["a (2)", "a", "a (3)", "a (2) (2)"]),
    ],
)
def test_logs_of_one_name_are_numbered_apart(files: list[str], labels: list[str]) -> None:
    # GIVEN logs of one boot, by their files' names WHEN they are placed in a trace
    placed = places([Named(f"id{n}", "db1", "b", file, False) for n, file in enumerate(files)])
    # THEN each has a name of its own, and keeps the one that it has if it is the only one
    assert [place.label for place in placed] == labels
    assert len({place.host for place in placed}) == len(files)
