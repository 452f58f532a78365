# SPDX-License-Identifier: Apache-2.0
"""`convert LOG LOG --with TRACE`: several recordings of one boot in another program's trace."""

from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from tests.support.hosts_logs import LATENCY, SECOND, Machine
from tests.support.perfetto_check import read
from tests.support.system_traces import MONOTONIC, of_machine

SPAN = (0, 2 * SECOND)
FIRST = list(range(SECOND // 10, 19 * SECOND // 10, SECOND // 7))
SECOND_LOG = [at + SECOND // 20 for at in FIRST]
SLEPT = Machine("db1", sleeps=[(-100 * SECOND, 60 * SECOND)])
DB2 = Machine("db2", "2" * 32, -77 * SECOND)


@pytest.fixture
def logs(tmp_path: Path) -> list[Path]:
    """Two recordings of one boot, of a machine that had slept before."""
    named = {"first": FIRST, "second": SECOND_LOG}
    return [
        SLEPT.write(tmp_path / f"{name}.biotrail", bios, span=SPAN, log_id=name)
        for name, bios in named.items()
    ]


@pytest.mark.parametrize("clock", ["boottime", "monotonic"])
def test_each_log_is_on_the_clock_of_the_other_trace(cli, logs, tmp_path, clock):
    """
    GIVEN two recordings of one boot, and a trace of the same with either primary clock
    WHEN they are converted with it
    THEN theirs is unchanged, the bios of both are on its clock, and what is said is true of both.
    """
    more = {"primary": MONOTONIC} if clock == "monotonic" else {}
    theirs = of_machine(SLEPT, SPAN, **more).write(tmp_path / "system.pftrace").read_bytes()
    both = tmp_path / "both.pftrace"
    done = cli("convert", *logs, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 0, done.err
    data = both.read_bytes()
    assert data.startswith(theirs)
    ours = read(data[len(theirs) :])
    bios = ours.slices("bio")
    at = getattr(SLEPT, clock)
    blur = 0 if clock == "monotonic" else 100
    wanted = [at(true) for true in sorted([*FIRST, *SECOND_LOG])]
    found = sorted(bio.start for bio in bios)
    assert all(abs(a - b) <= blur for a, b in zip(found, wanted, strict=True))
    assert {bio.dur for bio in bios} == {LATENCY}
    assert "2 recordings on one timeline" in done.out
    # AND in the UI each log is a group of its own, below one that says what it is
    roots = {t.descriptor.uuid for t in ours.tracks.values() if t.name == "db1: block I/O"}
    groups = {t.name for t in ours.tracks.values() if t.descriptor.parent_uuid in roots}
    assert groups == {"first", "second"}
    assert f"one clock: {'within 100 ns' if blur else 'exact'}" in done.out


def test_ids_of_all_are_apart(cli, logs, tmp_path):
    """
    GIVEN a trace that has both recordings already
    WHEN they are converted with it
    THEN no sequence id and no track uuid is in both.
    """
    alone, both = tmp_path / "alone.pftrace", tmp_path / "both.pftrace"
    assert cli("convert", *logs, "-o", alone).status == 0
    done = cli("convert", *logs, "--with", alone, "-o", both)
    assert done.status == 0, done.err
    theirs = alone.read_bytes()
    parts = [Trace.FromString(part).packet for part in (theirs, both.read_bytes()[len(theirs) :])]
    sequences = [{p.trusted_packet_sequence_id for p in part} for part in parts]
    tracks = [{p.track_descriptor.uuid for p in part} - {0} for part in parts]
    assert sequences[0].isdisjoint(sequences[1])
    assert tracks[0].isdisjoint(tracks[1])
    assert len(tracks[0]) == len(tracks[1])


def test_a_log_of_another_machine_is_named(cli, logs, tmp_path):
    """
    GIVEN a recording of another machine among those of the trace's
    WHEN they are converted with it
    THEN the message names that recording, and there is no output.
    """
    of_machine(SLEPT, SPAN).write(tmp_path / "system.pftrace")
    other = DB2.write(tmp_path / "db2.biotrail", FIRST, span=SPAN, log_id="other")
    both = tmp_path / "both.pftrace"
    done = cli("convert", logs[0], other, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 1
    assert f"is of another machine or boot than {other}" in done.err
    assert not both.exists()


@pytest.mark.parametrize(
    "more, said",
    [
        (["-o", "x.pftrace", "--max-size", "1M"], "several recordings go into one file"),
        (["-o", "x.otf2"], "go into one Perfetto trace only"),
        (["-o", "x.pftrace", "--alone"], "exclude each other"),
        ([], "give -o OUT"),
    ],
)
def test_usage(cli, logs, tmp_path, more, said):
    """
    GIVEN options that do not go with several recordings and another trace
    WHEN convert is called
    THEN it is a usage error that says why.
    """
    done = cli("convert", *logs, "--with", tmp_path / "t.pftrace", *more)
    assert done.status == 2
    assert said in done.err
