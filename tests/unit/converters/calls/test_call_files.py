# SPDX-License-Identifier: Apache-2.0
"""The file of a call: its descriptor's, else that of its bios."""

import io
import json
from pathlib import Path

import pytest

from biotrail.converters.calls.files import CallFiles
from biotrail.converters.calls.first_bios import FirstBios
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.path_logs import FSYNC, PathLog


@pytest.mark.parametrize("window", [1, 250_000])
def test_a_call_is_of_its_descriptors_file(window: int) -> None:
    # GIVEN a flush and a write of two threads that return in the same nanosecond, a read whose bio
    # alone has a file, and a call without either
    log = PathLog()
    log.name(7, b"var", b"redo")
    log.name(8, b"var", b"data")
    log.bio(120, 180, entry=100)
    log.returns(100, 200, 43, file=8)
    log.returns(110, 200, number=FSYNC, result=0, queued=1, file=7)
    log.request(320, 380, entry=300, file=8)
    log.returns(300, 400, queued=1)
    log.returns(500, 600, blocked=50)
    # WHEN the calls' files are asked for
    trace = Trace(io.BytesIO(log.data()))
    first, only, found, all_of = FirstBios(), CallFiles(), [], []
    for one in trace.lifecycles(window):
        if one.path is None:
            continue
        calls = one.path.calls
        found += list(zip(calls.tid.tolist(), first.of_calls(one).file.tolist(), strict=True))
        all_of += only.of(one, calls).tolist()
    # THEN each has its own
    paths = [(tid, trace.context.files[row].path if row >= 0 else None) for tid, row in found]
    assert [path and path.split("/")[-1] for _, path in sorted(paths[:2])] == ["redo", "data"]
    assert [path and path.split("/")[-1] for _, path in paths[2:]] == ["data", None]
    assert all_of == [row for _, row in found]


def test_what_is_no_file_is_called_what_it_is(tmp_path: Path, cli: Cli) -> None:
    # GIVEN calls of descriptors that are no files, one of a call that queued a bio of metadata, and
    # one of a call that queued a discard
    log = PathLog()
    others = [(b"TCP", 1), (b"UNIX-ST", 1), (b"[eventf", 1), (b"kvm-vcp", 1), (b"[other]", 1)]
    for at, (name, other) in enumerate([*others, (b"", 1), (b"", 2)]):
        begun = 1000 * at
        word = int.from_bytes(name, "little")
        log.returns(begun + 1, begun + 900, result=0, file=word, other=other)
    meta, discard = 0 | 1 << 12, 3
    log.bio(10_120, 10_180, entry=10_100, opf=meta)
    log.returns(10_100, 10_200, queued=1)
    log.bio(11_120, 11_180, entry=11_100, opf=discard)
    log.returns(11_100, 11_200, queued=1)
    path = tmp_path / "x.biotrail"
    kernel = {"flag_bits": {"META": 12}, "op_enum": {"read": 0, "write": 1, "discard": 3}}
    path.write_bytes(log.data(files={}, kernel=kernel))
    # WHEN they are grouped by file
    told = json.loads(cli("report", "--by", "file", "--json", path).out)["call_groups"]
    # THEN each is called what it is
    assert {one["file"] for one in told if one["file_kind"] == "other"} == {
        *("(socket: TCP)", "(socket: UNIX)", "(eventfd)", "(kvm-vcpu)"),
        *("(other)", "(no file)", "(pipe)"),
    }
    assert all(one["inode"] is one["file_dev"] is None for one in told)
    kinds = {one["file_kind"] for one in told}
    assert kinds == {"other", "metadata", "no data"}
    # AND all are one row by directory
    assert "(pipes, sockets and the like)" in cli("report", "--by", "dir", path).out
