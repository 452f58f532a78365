# SPDX-License-Identifier: Apache-2.0
"""Filters: from the command line to what the programs are told, and what a log says of them."""

import ctypes
import os
import threading
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner

from biotrail.cli.options.record_filters import filter_options
from biotrail.converters.events.context import Context
from biotrail.converters.events.decoding import Decoder
from biotrail.converters.events.stacks import StackNames
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.lifecycles.result import Result
from biotrail.converters.match.tables import Matcher
from biotrail.recorder.filters import filters as module
from biotrail.recorder.filters.filters import Filters, cgroup_id, check_tasks, descendants, masks
from biotrail.recorder.filters.left_out import read_left_out as from_counters
from biotrail.recorder.host.cgroups import Hierarchy
from biotrail.recorder.log import Segment
from biotrail.recorder.probes.maps.admission import config
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import CHAIN_COUNT, Kind
from biotrail.text.record.left_out import filters_text, left_out_text, read_left_out
from tests.support.record_rings import chunk, record, ring

ENUMS = {
    "op_enum": {"READ": 0, "WRITE": 1, "FLUSH": 2, "DISCARD": 3, "DRV_IN": 34},
    "flag_bits": {"SYNC": 11, "META": 12, "FUA": 17, "PREFLUSH": 18, "RAHEAD": 19},
}


def parse(*arguments: str) -> tuple[Filters | None, str]:
    seen: list[Filters] = []

    @click.command()
    @click.option("-d", "devices", multiple=True)
    @filter_options
    def command(devices: tuple[str, ...], filters: Filters) -> None:
        seen.append(filters)

    result = CliRunner().invoke(command, arguments)
    return (seen[0] if seen else None), result.output


def test_options_become_filters() -> None:
    # GIVEN several of each, by repetition and by commas
    line = (
        "--pid 12,34 --pid 5 --children --tid 7 --comm fio* --comm dd --cgroup /a --op read,write"
        " --flags sync+meta,fua --min-size 64k --sectors 10-19,30 -d x --below --own-io"
        " --file /a,b --file /c/../d --dir /e/"
    )
    # WHEN they are read
    found, said = parse(*line.split())
    # THEN all are there
    assert found == Filters(
        pids=(12, 34, 5), children=True, tids=(7,), comms=("fio*", "dd"), cgroups=("/a",),
        ops=("read", "write"), flags=(("sync", "meta"), ("fua",)), min_bytes=65536,
        sectors=((10, 19), (30, 30)), below=True, own_io=True, files=("/a,b", "/d"), dirs=("/e",),
    ), said  # fmt: skip
    # AND the header's text is the options again
    assert filters_text(found.header()) == (
        "--pid 12,34,5 --tid 7 --comm fio*,dd --cgroup /a --op read,write --flags sync+meta,fua "
        "--file /a,b --file /d --dir /e --children --below --own-io --min-size 65536 "
        "--sectors 10-19 --sectors 30-30"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pid", "x"], "no process or thread id"),
        (["--pid", "0"], "no process or thread id"),
        (["--sectors", "9-3"], "no range of sectors"),
        (["--sectors", "a"], "no range of sectors"),
        (["--children"], "needs --pid"),
        (["--min-size", "4G"], "is not between"),
        (["--flags", "+"], "names no flag"),
        (["--comm", ""], "must not be empty"),
        (["--file", ""], "must not be empty"),
        (["--dir", ""], "must not be empty"),
    ],
)
def test_wrong_options_are_told(arguments: list[str], message: str) -> None:
    # GIVEN a filter that cannot be meant WHEN it is read THEN the message says why
    found, said = parse(*arguments)
    assert found is None
    assert message in said


def test_what_the_programs_are_told() -> None:
    # GIVEN filters of several kinds
    asked = Filters(
        comms=("fio*", "dd"), ops=("read", "discard"), flags=(("sync", "ra"),), sectors=((8, 15),)
    )
    # WHEN they are made ready
    found = config(RingSizes.choose(2), [], asked, ENUMS)
    # THEN names have masks (with the NUL that ends them), operations and flags are bits
    assert found.follow == 1
    assert bytes(found.comms[0].name) == b"fio".ljust(16, b"\0")
    assert bytes(found.comms[0].mask)[:4] == b"\xff\xff\xff\x00"
    assert bytes(found.comms[1].mask)[:4] == b"\xff\xff\xff\x00"
    assert found.ops == 0b1001
    assert found.flags[0] == 1 << 11 | 1 << 19
    assert (found.ranges[0].start, found.ranges[0].end) == (8, 16)
    assert found.own_ops == 1 << 34
    assert ctypes.sizeof(found) % 8 == 0
    # GIVEN no filters WHEN they are made ready THEN the programs judge nothing
    assert config(RingSizes.choose(2), [], Filters(), ENUMS).follow == 0
    # GIVEN a name that is no flag WHEN it is looked up THEN the message lists those there are
    with pytest.raises(ProbeError, match="--flags nosuch: this kernel knows fua, meta"):
        masks(["nosuch"], ENUMS["flag_bits"], "--flags")


def test_a_thread_is_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a thread that is not its process's first
    monkeypatch.setattr(module, "pid_namespace", lambda: None)
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    tid, pid = thread.native_id, os.getpid()
    assert tid is not None
    try:
        # WHEN it is given as a process THEN its process is named, and both ways to go on
        expected = (
            f"--pid {tid}: this is a thread of process {pid}: give --pid {pid} for all its "
            f"threads, or --tid {tid}"
        )
        with pytest.raises(ProbeError) as error:
            check_tasks(Filters(pids=(pid, tid)))
        assert str(error.value) == expected
        # AND as a thread, and the process as either, they are accepted
        check_tasks(Filters(pids=(pid,), tids=(tid, pid)))
    finally:
        end.set()
        thread.join()


def test_a_cgroup_by_its_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a hierarchy with a cgroup that has the io controller, and one that has not
    good, bad = tmp_path / "a" / "b", tmp_path / "c"
    for directory, controllers in ((good, "cpu io"), (bad, "cpu")):
        directory.mkdir(parents=True)
        (directory / "cgroup.controllers").write_text(controllers)
    where = Hierarchy(str(tmp_path), "/")
    # WHEN it is named by its path or directory THEN its id is the directory's inode
    assert {cgroup_id(name, where) for name in ("/a/b", "a/b", str(good))} == {good.stat().st_ino}
    # AND what is not there, or is not charged, is refused
    with pytest.raises(ProbeError, match="no such cgroup"):
        cgroup_id("/x", where)
    with pytest.raises(ProbeError, match="no such cgroup"):
        cgroup_id("/a/../..", where)
    with pytest.raises(ProbeError, match="subtree_control"):
        cgroup_id("/c", where)
    # GIVEN a cgroup that exists when it is looked for
    (tmp_path / "gone").mkdir()
    found = module._cgroup_directory

    def removing(path: str, where: Hierarchy) -> Path | None:
        directory = found(path, where)
        (tmp_path / "gone").rmdir()
        return directory

    # WHEN it is removed before its id is read THEN the message names it
    monkeypatch.setattr(module, "_cgroup_directory", removing)
    with pytest.raises(ProbeError, match=r"--cgroup /gone: .*/gone cannot be read: No such file"):
        cgroup_id("/gone", where)


def test_devices_and_processes_below(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # GIVEN a dm device on a partition and on a loop device whose file is on a disk
    entries: list[dict[str, Any]] = [
        {"dev": 1, "disk": 1, "stacked_on": [11, 3]},
        {"dev": 11, "disk": 10},
        {"dev": 10, "disk": 10},
        {"dev": 3, "disk": 3, "loop": {"backing_dev": 20}},
        {"dev": 20, "disk": 20},
    ]
    monkeypatch.setattr(module.devices, "snapshot", lambda: entries)
    # WHEN those under it are looked for THEN all are found, the partition as one
    assert module.with_below([(1, 0)]) == [(1, 0), (10, 11), (3, 0), (20, 0)]
    # GIVEN 1 → 2 → 3, 1 → 4 and 5, whose names hold anything
    for pid, parent in ((1, 0), (2, 1), (3, 2), (4, 1), (5, 0)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (a) b ( c) S {parent} 0 0")
    # WHEN those of 1, and of 2, are looked for THEN they are found without the first
    assert descendants([1], tmp_path) == {2, 3, 4}
    assert descendants([2], tmp_path) == {3}


def test_what_was_left_out_in_words() -> None:
    # GIVEN the kernel side's counters
    found = from_counters([0, 5, 0, 0, 0, 2000, *[0] * 4, 7, *[0] * 2, 3, 0], [0, 2012, 0])
    # WHEN they are told, and read back from a log's end
    again = read_left_out({"left_out": found.account()})
    # THEN both say the same
    assert (
        left_out_text(found)
        == left_out_text(again)
        == (
            "filters left out 2,012 events: bios 5 of other operations, 2,000 of other processes, "
            "7 whose file is not known"
        )
    )
    assert again.unfollowed == 3
    assert left_out_text(read_left_out(None)) == ""


def matched(rows: list[bytes], context: Context) -> Result:
    """What the machine says of a few records."""
    events = Decoder().decode(chunk(Segment(0, 0, 0, ring(rows))))
    events.number = np.arange(len(events))
    matcher = Matcher(context, TaskNames(), StackNames())
    return matcher.build(events, settle_ns=0, before=None)


def test_chains_with_bios_that_were_left_out() -> None:
    # GIVEN an issue whose chain holds a bio, three that were left out, and forty beyond the bound
    one = CHAIN_COUNT + 1
    rows = [
        record(Kind.D, 5, rq=1, bio=8),
        record(Kind.CHAIN, 5, rq=1, bios=[one, 16, one, one, 0, 0]),
        record(Kind.CHAIN, 5, rq=1, bios=[CHAIN_COUNT + 40, 0, 0, 0, 0, 0]),
    ]
    # WHEN it is read
    found = matched(rows, Context({}))
    # THEN the request has its head and one bio, and the counts are others
    assert (found.requests.bios.tolist(), found.requests.others.tolist()) == ([2], [43])
    # GIVEN a request of four blocks, of which the second and fourth are recorded, that
    # completes in halves, the second half with an error
    rows = [
        record(Kind.Q, 0, bio=16, sector=8, bytes=4096, opf=1),
        record(Kind.M, 1, bio=16, sector=8, bytes=4096, opf=1),
        record(Kind.Q, 2, bio=32, sector=24, bytes=4096, opf=1),
        record(Kind.M, 3, bio=32, sector=24, bytes=4096, opf=1),
        record(Kind.D, 10, rq=1, bio=16, sector=0, bytes=16384, opf=1),
        record(Kind.CHAIN, 10, rq=1, bios=[CHAIN_COUNT + 1, 0, CHAIN_COUNT + 1, 32, 0, 0]),
        record(Kind.C, 20, rq=1, bio=16, sector=0, bytes=8192, opf=1),
        record(Kind.C, 30, rq=1, bio=32, sector=16, bytes=8192, opf=1, status=10),
    ]
    # WHEN it is read
    bios = matched(rows, Context({"kernel": ENUMS})).bios
    # THEN each bio ends with the part that it is in, with its status
    assert (bios.complete - bios.queue[0]).tolist() == [20, 30]
    assert bios.status.tolist() == [0, 10]
    assert bios.done_bytes.tolist() == [4096, 0]
