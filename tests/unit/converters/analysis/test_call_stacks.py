# SPDX-License-Identifier: Apache-2.0
"""Call stacks in a log: joined to their bios, added up, folded, printed."""

import io
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.analysis.stacks.stacks import (
    BUCKETS,
    Callers,
    StackTable,
    Weight,
    folded,
    heaviest,
    log2,
)
from biotrail.converters.events.stacks import Frame, Stack
from biotrail.converters.events.tables import Bios
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from tests.support import perfetto_check
from tests.support.cli_runner import Cli
from tests.support.log_samples import pipe_of
from tests.support.stack_logs import READ, START, TRACING, bio, ended, log, queued, task, write

WRITE = [*TRACING, ["submit_bio", "", 9], ["wb_workfn", "", 7], ["kthread", "", 5]]
NOTES = [{"kernel": {"5": READ, "9": WRITE}, "user": {"3": [["", "/bin/dd", 0x12AB]]}}]


def sample(path: Path) -> Path:
    """dd: two bios from one stack; kworker: one; and one whose stack found no place."""
    records = [
        task(START, 42, b"dd"),
        task(START, 7, b"kworker/u8:1"),
        *bio(0, 100_000, 5, 3),
        *bio(1, 3_000_000, 5, 3, bytes=8192),
        *bio(2, 1_500, 9, -14, tid=7),
        *bio(3, 1_500, -17, -14, tid=7),
    ]
    return write(path, records, NOTES)


def table_of(path: Path) -> tuple[StackTable, Trace]:
    trace = Trace(path)
    table = StackTable(trace.context)
    for window in trace.lifecycles():
        table.add(window)
    return table, trace


def test_bios_point_to_their_stacks_and_add_up(tmp_path: Path) -> None:
    # GIVEN a log with stacks  WHEN it is associated
    trace = Trace(sample(tmp_path / "x.biotrail"))
    bios = Bios.concatenate([w.bios for w in trace.lifecycles()])
    stacks = trace.stacks.all()
    # THEN each bio has its stack, without the frames of the tracing itself
    names = [[f.name for f in stacks[row].kernel] for row in bios.stack.tolist()]
    read = ["submit_bio_noacct_nocheck", "ext4_mpage_readpages", "do_syscall_64"]
    assert names == [read, read, ["submit_bio", "wb_workfn", "kthread"], []]
    assert stacks[bios.stack[0]].user == (Frame("", "/bin/dd", 0x12AB),)
    # AND a kernel thread lacks nothing, while a stack without a place says why
    assert [stacks[row].missing for row in bios.stack.tolist()][:3] == ["", "", ""]
    assert "EEXIST" in stacks[bios.stack[3]].missing
    # AND every record is accounted for
    assert trace.account.events["S", Reason.STACK] == 4
    assert trace.account.unknown == {}
    # GIVEN the same log  WHEN it is added up
    table, _ = table_of(sample(tmp_path / "x.biotrail"))
    first, *others = heaviest(table.callers(), Weight.COUNT)
    # THEN bios of one command and stack are together, with their bytes and times
    assert (first.comm, first.bios, first.bytes) == ("dd", 2, 12288)
    assert (first.ended, first.latency_ns) == (2, 3_100_000)
    assert np.flatnonzero(first.histogram).tolist() == [16, 21]
    assert [(c.comm, c.bios) for c in others] == [("kworker/u8:1", 1)] * 2


def test_what_has_no_stack_or_was_refused_is_counted(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a bio without a stack record, one whose stack is not in the notes, one without a Q
    records = [queued(START, 1), ended(START + 10, 1), *bio(3, 10, 77)]
    path = write(tmp_path / "x.biotrail", [*records, ended(START + 90_000_000, 50)], NOTES)
    # WHEN they are shown / THEN each is counted with its reason
    done = cli("stacks", path)
    assert "1 bio without a stack: its record is not in the log" in done.out
    assert "1 bio: kernel stack not in the log" in done.out
    assert "1 bio left out" in done.out
    # GIVEN a log in which one bio's stack found no place
    path = sample(tmp_path / "x.biotrail")
    # WHEN it is looked at, also in small windows
    trace = Trace(path)
    for _ in trace.lifecycles(window_events=2):
        pass
    # THEN it is counted once, and said by all who say what is missing
    said = "1 bio without a whole call stack: kernel stack's place taken by another (EEXIST)"
    assert trace.stacks.refused.total() == 1
    assert cli("stacks", path).out.count("EEXIST") == 2  # at the stack, and at the end
    for command in ("info", "stacks"):
        assert said in cli(command, path).out


def test_folded_stacks() -> None:
    # GIVEN a stack with user frames, three of them unknown, and one in a module
    stacks = [
        Stack(
            (Frame("submit_bio", "", 1), Frame("dm;map", "dm_mod", 2)),
            (
                Frame("pread64", "/lib/libc.so.6", 1),
                Frame("", "", 7),
                Frame("", "", 8),
                Frame("", "/bin/dd", 16),
            ),
            "",
        )
    ]
    caller = Callers("a b", 0, bios=3, latency_ns=5_499)
    # WHEN it is folded
    lines = folded([caller], stacks, Weight.COUNT)
    # THEN the outermost comes first, separators are not in names, unknown frames are one
    assert lines == ["a b;dd+0x10;[unknown];pread64;dm:map [dm_mod];submit_bio 3"]
    # AND latency is in microseconds
    assert folded([caller], stacks, Weight.LATENCY)[0].endswith(" 5")


@pytest.mark.parametrize(
    "value", [0, 1, 2, 3, 4, 1023, 1024, (1 << 53) - 1, 1 << 53, (1 << 62) + 1]
)
def test_buckets_are_exact(value: int) -> None:
    # GIVEN a latency  WHEN its bucket is found  THEN it is the place of its highest bit
    bucket = int(log2(np.array([value], np.int64))[0])
    assert bucket == max(value.bit_length() - 1, 0)
    assert bucket < BUCKETS


def test_the_command(tmp_path: Path, cli: Cli) -> None:
    # GIVEN the log of dd and a kworker
    path = sample(tmp_path / "x.biotrail")
    # WHEN it is shown as text, as JSON, and folded by each weight
    text, made = cli("stacks", path).out, cli.json("stacks", path)
    lines = {
        weight: cli("stacks", path, "--folded", *weight).out.splitlines()
        for weight in ((), ("--bytes",), ("--latency",))
    }
    # THEN the heaviest comes first, and the sums are the same everywhere
    assert text.startswith("dd: 2 bios, 12.0 KiB, 50.0 % of all bios\n  submit_bio_noacct_nocheck")
    assert (made["bios"], made["bytes"]) == (4, 20480)
    assert made["stacks"][0]["comm"] == "dd"
    assert sum(bucket["bios"] for bucket in made["stacks"][0]["histogram"]) == 2
    sums = {w: sum(int(line.rsplit(" ", 1)[1]) for line in rows) for w, rows in lines.items()}
    assert sums == {(): 4, ("--bytes",): 20480, ("--latency",): 3104}
    assert lines[()][0] == (
        "dd;dd+0x12ab;do_syscall_64;ext4_mpage_readpages [ext4];submit_bio_noacct_nocheck 2"
    )


def test_stacks_are_sorted_and_limited(tmp_path: Path, cli: Cli) -> None:
    # GIVEN stacks of which one has the most bios, and another the longest ones
    records = [
        task(START, 42, b"dd"),
        task(START, 7, b"kworker/u8:1"),
        *(one for at in range(4) for one in bio(at, 100_000, 5, 3)),
        *bio(4, 3_000_000, 9, -14, tid=7, bytes=4096),
        *bio(5, 900_000, 9, -14, tid=7, bytes=4096),
        *bio(6, 2_000_000, -17, -14, tid=42, bytes=65536),
    ]
    path = write(tmp_path / "x.biotrail", records, NOTES)

    def ranks(order: str) -> list[tuple[int, int]]:
        told = cli.json("stacks", path, "--sort", order)["stacks"]
        return [(one["bios"], one["latency_ns"]) for one in told]

    # WHEN they are sorted  THEN each figure decides by itself
    many, long, large = (4, 400_000), (2, 3_900_000), (1, 2_000_000)
    assert ranks("count") == [many, long, large]
    assert ranks("bytes") == [large, many, long]
    assert ranks("mean") == [large, long, many]
    assert ranks("p99") == [long, large, many]
    assert ranks("total") == [long, large, many]
    # AND of one alone the others are counted, in every form
    assert "2 more stacks with 3 bios: --limit 0 shows all" in cli("stacks", path, "-n", "1").out
    assert "more stack" not in cli("stacks", path, "--limit", "0").out
    told = cli.json("stacks", path, "--top", "1")
    assert (len(told["stacks"]), told["stacks_left_out"], told["bios"]) == (1, 2, 7)
    assert len(cli("stacks", path, "--folded", "-n", "1").out.splitlines()) == 1


def test_wrong_usage_and_logs_without_stacks(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log with stacks, and one that was made without
    path = write(tmp_path / "x.biotrail", bio(0, 10, 5), NOTES)
    without = write(tmp_path / "y.biotrail", [queued(START, 1)], [], stacks=None)
    # WHEN and THEN two weights or two forms are wrong usage
    assert cli("stacks", path, "--bytes", "--latency").status == 2
    assert cli("stacks", path, "--folded", "--json").status == 2
    assert cli("stacks", path, "--folded", "--offsets").status == 2
    # AND the log without stacks is refused with what to do
    done = cli("stacks", without)
    assert done.status == 1
    assert "record --stacks" in done.err


def test_a_log_with_odd_stacks_is_refused_in_part(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log whose note of stacks is of another shape
    path = write(tmp_path / "x.biotrail", bio(0, 10, 5), [{"kernel": {"5": [["a", 1]]}}])
    # WHEN it is shown / THEN the note is named as damaged and the stack as missing
    done = cli("stacks", path)
    assert done.status == 0
    assert "damaged: note" in done.out
    assert "kernel stack not in the log" in done.out


def test_perfetto_slices_have_their_call_stacks(tmp_path: Path) -> None:
    # GIVEN the log of dd and a kworker, some of whose bios are in flight at once
    records = [task(START, 42, b"dd"), *bio(0, 4_000_000, 5, 3), *bio(1, 3_000_000, 9, -14)]
    records += [*bio(2, 500, 5, 3), *bio(3, 500, -17), *bio(9, 500, 5, 3)]
    trace, out = Trace(write(tmp_path / "x.biotrail", records, NOTES)), io.BytesIO()
    # WHEN it is converted, in small windows
    windows = trace.lifecycles(window_events=2)
    convert(windows, trace.context, out, stacks=trace.stacks)
    slices = perfetto_check.read(out.getvalue()).slices("bio")
    # THEN each slice has its stack, the outermost function first, and what is missing is said
    read = [
        ("dd+0x12ab", "/bin/dd"),
        ("do_syscall_64", "[kernel]"),
        ("ext4_mpage_readpages", "ext4"),
        ("submit_bio_noacct_nocheck", "[kernel]"),
    ]
    write_back = [(name, "[kernel]") for name in ("kthread", "wb_workfn", "submit_bio")]
    assert [s.callstack for s in slices] == [read, write_back, read, [], read]
    assert ["no_stack" in s.args for s in slices] == [False, False, False, True, False]
    # AND who asks for no stacks gets none
    plain, trace = io.BytesIO(), Trace(tmp_path / "x.biotrail")
    convert(trace.lifecycles(), trace.context, plain)
    assert not any(s.callstack for s in perfetto_check.read(plain.getvalue()).slices("bio"))


def test_a_pipes_notes_may_come_late(tmp_path: Path) -> None:
    # GIVEN a log whose stacks are told behind its events, and a reader that cannot look ahead
    data = log(bio(0, 500, 5), [])
    late = io.BytesIO()
    # WHEN it is read  THEN the slice says that its stack is not known, and nothing breaks
    with pipe_of(data) as stream:
        trace = Trace(stream)
        convert(trace.lifecycles(), trace.context, late, stacks=trace.stacks)
    (one,) = perfetto_check.read(late.getvalue()).slices("bio")
    assert one.callstack == []
    assert one.args["no_stack"] == "kernel stack not in the log"


def other_places(frames: list[list[object]]) -> list[list[object]]:
    """The same functions, each at another place."""
    return [[name, where, offset + 4] for name, where, offset in frames]


def two_places(path: Path) -> Path:
    """dd: two bios and one, by the same functions, from different places within these."""
    library = [["pread64", "/lib/libc.so.6", 18], ["", "", 77]]
    user = {"3": library, "4": [*other_places(library), ["", "", 81]]}
    notes = [{"kernel": {"5": READ, "6": other_places(READ), "9": WRITE}, "user": user}]
    records = [task(START, 42, b"dd"), *bio(0, 100_000, 5, 3), *bio(1, 300_000, 6, 4)]
    return write(path, [*records, *bio(2, 500_000, 5, 3), *bio(3, 1_500, 9, 3)], notes)


def test_stacks_that_read_the_same_are_one_group_unless_offsets_are_asked_for(
    tmp_path: Path, cli: Cli
) -> None:
    # GIVEN bios whose stacks differ in places within the same functions
    path = two_places(tmp_path / "x.biotrail")
    # WHEN they are shown THEN one group has all of them, as a folded line has
    text = cli("stacks", path).out
    assert text.startswith("dd: 3 bios, 12.0 KiB, 75.0 % of all bios\n")
    assert text.count("ext4_mpage_readpages") == 1 and "mean 300 µs" in text
    assert "4 bios, 16.0 KiB, from 2 distinct stacks" in text
    folded_lines = cli("stacks", path, "--folded").out.splitlines()
    assert [line.rsplit(" ", 1)[1] for line in folded_lines] == ["3", "1"]
    # AND --limit counts groups
    assert "1 more stack with 1 bio" in cli("stacks", path, "--limit", "1").out
    # GIVEN the same bios WHEN they are asked for as JSON
    made = cli.json("stacks", two_places(tmp_path / "x.biotrail"))
    group, other = made["stacks"]
    # THEN the group says of how many stacks it is, and its frames have no single offset
    assert (group["stacks"], group["bios"], other["stacks"]) == (2, 3, 1)
    assert group["kernel"][1] == {"name": "ext4_mpage_readpages", "where": "ext4", "offset": None}
    assert [frame["offset"] for frame in group["user"]] == [None, None]
    assert other["kernel"][0]["offset"] == 9
    # GIVEN the same bios WHEN they are shown with offsets
    path = two_places(tmp_path / "x.biotrail")
    text = cli("stacks", path, "--offsets").out
    made = cli.json("stacks", path, "--offsets")
    # THEN each recorded stack is a group, and its frames say where they are
    assert text.startswith("dd: 2 bios")
    assert "  ext4_mpage_readpages+0x28 [ext4]\n" in text
    assert "  ext4_mpage_readpages+0x2c [ext4]\n" in text
    assert "4 bios, 16.0 KiB, from 3 distinct stacks" in text
    assert [group["bios"] for group in made["stacks"]] == [2, 1, 1]
    assert made["stacks"][1]["user"][0]["offset"] == 22
