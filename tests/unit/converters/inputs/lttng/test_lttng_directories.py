# SPDX-License-Identifier: Apache-2.0
"""Which directories are LTTng's, and which traces in them are read."""

from pathlib import Path

import pytest

from biotrail.converters.inputs.lttng.directories import find, is_lttng
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.errors import LogFormatError

TEXT = b"/* CTF 1.8 */\n"


def trace(place: Path, metadata: bytes = TEXT) -> Path:
    place.mkdir(parents=True)
    (place / "metadata").write_bytes(metadata)
    return place


@pytest.mark.parametrize("metadata", [TEXT, b"\x57\x1d\xd1\x75" + bytes(40), b"\x75\xd1\x1d\x57"])
def test_a_trace_is_known_by_its_metadata(tmp_path: Path, metadata: bytes) -> None:
    # GIVEN metadata as text, or as packets of either byte order  THEN the directory is a trace
    assert is_lttng(trace(tmp_path / "trace", metadata))


def test_other_directories_are_not_lttng_s(tmp_path: Path) -> None:
    # GIVEN a directory whose metadata are something else, an empty one, and none
    other = trace(tmp_path / "other", b"PAR1")
    (tmp_path / "empty").mkdir()
    # THEN none is a trace
    assert not any(is_lttng(path) for path in (other, tmp_path / "empty", tmp_path / "none"))


def test_a_rotated_session_is_one_recording(tmp_path: Path) -> None:
    # GIVEN a session of two chunks and a rest  THEN all three are read, and user space is not
    chunks = [trace(tmp_path / f"archives/{n}/kernel") for n in ("1-2-0", "2-3-1")]
    rest = trace(tmp_path / "kernel")
    trace(tmp_path / "ust/uid/0/64-bit")
    found = find(tmp_path)
    assert (found.traces, found.others) == ([*chunks, rest], [tmp_path / "ust"])


def test_of_snapshots_one_is_to_be_given(tmp_path: Path) -> None:
    # GIVEN two snapshots, which may repeat each other's events  THEN both are named
    one, two = (trace(tmp_path / f"snapshot-{n}/kernel") for n in (1, 2))
    with pytest.raises(LogFormatError, match=r"2 recordings: give one of them") as error:
        find(tmp_path)
    assert f"{one}, {two}" in str(error.value)


def test_user_space_alone_has_no_block_events(tmp_path: Path) -> None:
    # GIVEN a session without the kernel's domain  THEN the message says what to record
    trace(tmp_path / "ust/uid/0/64-bit")
    with pytest.raises(LogFormatError, match="user space alone"):
        open_source(tmp_path)
