# SPDX-License-Identifier: Apache-2.0
"""What a made-up log says of the path is refused, or left out, where it has the wrong shape."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.log.frames import PREAMBLE_BYTES, decode_frame, decode_preamble
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.path_logs import PathLog


def made(tmp_path: Path, **facts: Any) -> Path:
    log = PathLog()
    log.bio(100, 200)
    return log.write(tmp_path / "log", **facts)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        (3, "has 3 as path, not an object"),
        ({"parts": "call"}, "has 'call' as path.parts, not a list"),
        ({"parts": [1]}, "has 1 as path.parts[0], not a text"),
        ({"missing": [{"part": "wait"}]}, "has no reason in path.missing[0]"),
        ({"missing": [{"part": "x", "reason": 7}]}, "has 7 as path.missing[0].reason, not a text"),
    ],
)
def test_a_header_whose_path_has_another_shape_is_refused(
    tmp_path: Path, path: Any, message: str
) -> None:
    # GIVEN a log whose header has a made-up entry `path`  WHEN it is opened
    with pytest.raises(LogFormatError) as refused:
        LogReader(made(tmp_path, path=path))
    # THEN the message says what is wrong, and where
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("parts", "major"), [(("call", "time"), 2), (("call",), 1), (("time", "wait"), 1), ((), 1)]
)
def test_only_logs_that_older_readers_would_misread_have_a_new_version(
    tmp_path: Path, parts: tuple[str, ...], major: int
) -> None:
    # GIVEN logs of which those with timed calls have one CALL for several bios
    path = made(tmp_path, parts=parts)
    # WHEN their preamble, header and first frame are read
    data = path.read_bytes()
    frame = decode_frame(data[PREAMBLE_BYTES:], PREAMBLE_BYTES)
    # THEN all say the version that a reader needs
    assert decode_preamble(data) == (major, 0)
    assert frame is not None
    assert frame.major == major
    assert LogReader(path).header["format"] == {"major": major, "minor": 0}


def test_a_part_that_a_newer_recorder_has_is_no_error(tmp_path: Path) -> None:
    # GIVEN a header with a part and a key that this version does not know
    path = {"parts": ["call", "newer"], "missing": [], "more": 1}
    # WHEN it is read  THEN it is there
    assert LogReader(made(tmp_path, path=path)).header["path"] == path


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ({}, "has no until in call_timing"),
        ({"until": -1}, "has -1 as call_timing.until, not a whole number"),
        ({"until": 1 << 63}, "as call_timing.until, not a whole number"),
        ({"until": 5, "percent": "7"}, "has '7' as call_timing.percent, not a number"),
        ({"until": 5, "budget": [1]}, "has a list as call_timing.budget, not a number"),
    ],
)
def test_a_note_of_call_timing_of_another_shape_is_left_out(
    tmp_path: Path, note: dict[str, Any], message: str
) -> None:
    # GIVEN a log with a made-up note of the end of timing  WHEN it is read
    reader = LogReader(made(tmp_path, notes={"call_timing": note}))
    chunks = list(reader.chunks())
    # THEN the note is left out, with one message; all else is there
    assert len(chunks) == 1
    assert reader.notes == []
    (problem,) = reader.problems
    assert message in problem
