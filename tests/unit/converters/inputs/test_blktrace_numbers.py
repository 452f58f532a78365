# SPDX-License-Identifier: Apache-2.0
"""Numbers of blktrace's records that do not go up by one: missing, there before, begun again."""

from pathlib import Path

import pytest

from biotrail.cli.main import main
from biotrail.converters.inputs.blktrace import source as blktrace
from biotrail.converters.inputs.blktrace.source import BlktraceSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.blktrace_records import DATA, READ, C, Q, everything, record, stream, write_set


def queued(number: int, time: int, *, cpu: int = 0) -> bytes:
    return record(Q | READ, time, 8 * number, 512, sequence=number, cpu=cpu)


@pytest.mark.parametrize("block", [100, 1 << 20])
@pytest.mark.parametrize("name", ["vda", "zoned"])
def test_a_file_appended_to_itself_is_read_once(
    name: str, block: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a real set, and the same with each file twice, one behind the other
    monkeypatch.setattr(blktrace, "BLOCK_BYTES", block)
    monkeypatch.setattr(blktrace, "_LEAST_BLOCK_BYTES", block)
    for path in DATA.glob(f"{name}.blktrace.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes() * 2)
    # WHEN both are read
    once, twice = BlktraceSource(DATA / name), BlktraceSource(tmp_path / name)
    expected, found = everything(once), everything(twice)
    # THEN no event is there twice, and what was left out is counted, file by file
    named = found.kind != Kind.TASK  # names have no number
    assert found.ts[named].tolist() == expected.ts[expected.kind != Kind.TASK].tolist()
    assert not once.problems
    counts = [int(text.split(": ")[1].split()[0]) for text in twice.problems]
    assert sum(counts) >= (expected.kind != Kind.TASK).sum()
    assert all("records have numbers and times that were there before" in t for t in twice.problems)
    assert not twice.losses


def test_info_and_convert_say_that_a_part_stands_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a file that was appended to itself
    data = (DATA / "vda.blktrace.1").read_bytes()
    path = write_set(tmp_path, "vda", {0: b"", 1: data + data})
    # WHEN it is asked about, and converted
    said = []
    for words in (["info", str(path)], ["convert", str(path), "-o", str(tmp_path / "x.pftrace")]):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert not end.value.code
        said.append("".join(capsys.readouterr()))
    # THEN both say it, and no bio is counted twice
    for text in said:
        assert "a part of the file is there twice" in text
        assert "nothing is missing" not in text
    once, twice = Trace(write_set(tmp_path, "one", {0: b"", 1: data})), Trace(path)
    for trace in (once, twice):
        for _ in trace.lifecycles():
            pass
    assert once.account.bios == twice.account.bios


def test_a_part_that_stands_twice_behind_a_gap_is_both() -> None:
    # GIVEN records 1, 2, 5, then 2 and 5 again, then 6
    parts = [queued(n, 10 * n) for n in (1, 2, 5, 2, 5, 6)]
    # WHEN they are read
    source = stream(*parts)
    events = everything(source)
    # THEN the gap is a loss, and the repeats are left out
    assert events.ts.tolist() == [10, 20, 50, 60]
    assert [(w["start"], w["end"], w["count"]) for w in source.losses] == [(20, 50, 2)]
    assert source.problems[0].split(": ")[1].startswith("2 records have numbers")


def test_numbers_that_begin_again_later_are_another_trace() -> None:
    # GIVEN one trace behind another: numbers begin at 1 again, at later times
    parts = [queued(n, 10 * n) for n in (1, 2, 3)] + [queued(n, 1000 + 10 * n) for n in (1, 2)]
    # WHEN they are read
    source = stream(*parts)
    events = everything(source)
    # THEN all are there, and what is missing between the two is said not to be known
    assert events.ts.tolist() == [10, 20, 30, 1010, 1020]
    assert [(w["start"], w["end"]) for w in source.damaged] == [(30, 1010)]
    assert "go back 1 times" in source.problems[0]
    assert not source.losses


def test_a_line_of_losses_keeps_its_place_among_what_is_left_out() -> None:
    # GIVEN a line about lost events behind records of which one is a repeat
    parts = [queued(1, 10), queued(2, 20), queued(1, 10), b"CPU:1 [LOST 7 EVENTS]\n"]
    # WHEN they are read
    source = stream(*parts, queued(3, 30), record(C | READ, 40, 8, 512, sequence=4))
    everything(source)
    # THEN its window lies between those around it
    assert [(w["start"], w["end"], w["count"]) for w in source.losses] == [(20, 30, 7)]


def test_numbers_that_wrap_go_on() -> None:
    # GIVEN a CPU that has written 2^32 records
    top = (1 << 32) - 1
    parts = [queued(top - 1, 10), queued(top, 20), queued(1, 30), queued(2, 40)]
    # WHEN they are read
    source = stream(*parts)
    # THEN nothing is there twice; number 0 counts as one that is missing
    assert len(everything(source)) == 4
    assert not source.problems
    assert sum(w["count"] for w in source.losses) == 1
