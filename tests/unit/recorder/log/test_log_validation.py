# SPDX-License-Identifier: Apache-2.0
"""Checks of header, notes and END that are made of their types."""

from typing import Any

import pytest

from biotrail.recorder.log import validation
from biotrail.recorder.log.frames import DamagedError


@pytest.mark.parametrize(
    ("header", "problem"),
    [
        ({"host": {"cpus": True}}, "has True as host.cpus, not a whole number from 0 to"),
        ({"devices": [{"name": "sda"}]}, r"has no dev in devices\[0\]"),
        ({"filters": {"sectors": [[1]]}}, r"has a list as filters.sectors\[0\], not a list of 2"),
        ({"kernel": {"op_enum": {"READ": 256}}}, "has 256 as kernel.op_enum.READ"),
        ({"events": {"missing": [{"letter": "Q"}]}}, r"has no reason in events.missing\[0\]"),
        ({"schema": [{"kind": 1, "size": 12}]}, r"has 12 as schema\[0\].size, not a multiple of 8"),
    ],
)
def test_a_header_of_another_shape_is_refused(header: dict[str, Any], problem: str) -> None:
    # WHEN a made-up header is checked  THEN the first wrong value is named
    with pytest.raises(DamagedError, match=problem):
        validation.header(header, "")


def test_what_readers_do_not_rely_on_may_be_anything() -> None:
    # GIVEN a header as another version may write it: keys not known here, sizes of another form
    header = {"later": [None], "rings": {"bytes": 1}, "filters": {"cgroups": [{"path": "/x"}]}}
    # WHEN it is checked  THEN it passes
    validation.header(header, "")
    validation.header({}, "")


@pytest.mark.parametrize(
    ("name", "payload", "problem"),
    [
        ("stacks", {"kernel": {"x": []}}, "has 'x' as a key of stacks.kernel"),
        ("stacks", {"kernel": {"1": [["f", "m"]]}}, r"stacks.kernel.1\[0\], not a list of 3"),
        ("mounts", {"99999999999": []}, "as a key of mounts"),
        ("call_timing", {"percent": 1.5}, "has no until in call_timing"),
        ("paused", {"from": 1}, "has no to in paused"),
        ("names", {"monotonic": 1, "count": 1, "records": {"1": "?"}}, "not records in base64"),
    ],
)
def test_a_note_of_another_shape_is_refused(
    name: str, payload: dict[str, Any], problem: str
) -> None:
    # WHEN a made-up note is checked  THEN the first wrong value is named
    with pytest.raises(DamagedError, match=problem):
        validation.note(name, payload)


def test_notes_that_recorders_write_pass() -> None:
    # GIVEN cgroups in both forms, and a note that this version does not know
    validation.note("cgroups", {"1": "/a"})
    validation.note("cgroups", {"cgroups": {"1": "/a"}})
    validation.note("of a later version", {"any": object()})
    # WHEN END has a limit of cost that is not set  THEN it passes
    validation.end({"recorder": {"cpu_seconds": 1, "max_rss_bytes": 2, "max_cpu": None}}, "")
