# SPDX-License-Identifier: Apache-2.0
"""`convert --with`: a log's tracks in a trace that another program wrote."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from tests.support.hosts_logs import LATENCY, SECOND, Machine
from tests.support.paths import ROOT
from tests.support.perfetto_check import read
from tests.support.system_traces import MONOTONIC, SystemTrace, of_machine

DB1 = Machine("db1")
SPAN = (0, 2 * SECOND)
BIOS = list(range(SECOND // 10, 2 * SECOND, SECOND // 7))
CALLS = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return DB1.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)


def _ids(data: bytes) -> tuple[set[int], set[int]]:
    """Sequence ids and track uuids of a trace."""
    packets = Trace.FromString(data).packet
    sequences = {p.trusted_packet_sequence_id for p in packets}
    return sequences, {p.track_descriptor.uuid for p in packets if p.HasField("track_descriptor")}


def test_theirs_is_unchanged_and_ours_is_on_its_clock(cli, log, tmp_path):
    """
    GIVEN a log, and a trace that another program made at the same time
    WHEN the log is converted with it
    THEN their bytes come first as they were, and each bio lies at its BOOTTIME.
    """
    theirs = of_machine(DB1, SPAN).write(tmp_path / "system.pftrace").read_bytes()
    both = tmp_path / "both.pftrace"
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 0, done.err
    assert "unchanged; the same boot, so one clock: exact" in done.out
    data = both.read_bytes()
    assert data.startswith(theirs)
    ours = read(data[len(theirs) :])
    bios = ours.slices("bio")
    assert [(b.start, b.end) for b in bios] == [
        (DB1.boottime(at), DB1.boottime(at + LATENCY)) for at in BIOS
    ]
    assert ours.attributes["biotrail.beside"] == "system.pftrace"
    assert ours.attributes["biotrail.aligned_within_ns"] == 0


def test_a_machine_that_slept_has_a_bound(cli, tmp_path):
    """
    GIVEN a machine that slept for a minute before both were recorded
    WHEN the log is converted with the trace
    THEN its times are moved by that minute, to within the readings' uncertainty, which is said.
    """
    slept = Machine("db1", sleeps=[(-100 * SECOND, 60 * SECOND)])
    log = slept.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)
    of_machine(slept, SPAN).write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    assert "one clock: within 100 ns" in done.out
    size = (tmp_path / "system.pftrace").stat().st_size
    bios = read(both.read_bytes()[size:]).slices("bio")
    assert len(bios) == len(BIOS)
    assert all(abs(b.start - slept.boottime(at)) <= 100 for b, at in zip(bios, BIOS, strict=True))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_theirs_may_be_compressed(cli, log, tmp_path, ending):
    """
    GIVEN their trace in a compressed file
    WHEN the log is converted with it
    THEN its decompressed bytes are in the output.
    """
    theirs = of_machine(DB1, SPAN).bytes()
    packed = gzip.compress(theirs) if ending == ".gz" else zstandard.compress(theirs)
    (tmp_path / f"system.pftrace{ending}").write_bytes(packed)
    both = tmp_path / "both.pftrace"
    cli("convert", log, "--with", tmp_path / f"system.pftrace{ending}", "-o", both)
    assert both.read_bytes().startswith(theirs)


@pytest.mark.parametrize("packed", [False, True])
def test_ids_are_apart_even_from_those_of_the_same_log(cli, log, tmp_path, packed):
    """
    GIVEN a trace of the same log, with all ids that it would get, plain or compressed
    WHEN the log is converted with it
    THEN no sequence id and no track uuid is in both.
    """
    alone = tmp_path / "alone.pftrace"
    cli("convert", log, "-o", alone)
    if packed:
        trace = SystemTrace(list(Trace.FromString(alone.read_bytes()).packet))
        trace.compressed().write(alone)
    theirs = alone.read_bytes()
    both = tmp_path / "both.pftrace"
    assert cli("convert", log, "--with", alone, "-o", both).status == 0
    ours = both.read_bytes()[len(theirs) :]
    inner = Trace.FromString(theirs).packet[0].compressed_packets
    import zlib

    before = _ids(zlib.decompress(inner) if packed else theirs)
    after = _ids(ours)
    assert before[0].isdisjoint(after[0])
    assert before[1].isdisjoint(after[1])
    assert len(read(ours).slices("bio")) == len(BIOS)


def test_a_full_range_of_sequences_is_passed_over(cli, log, tmp_path):
    """
    GIVEN a trace that uses all sequence ids of two bytes
    WHEN the log is converted with it
    THEN ours has none of them.
    """
    theirs = of_machine(DB1, SPAN)
    for sequence in range(1 << 12, 1 << 14):
        theirs.add(sequence)
    theirs.write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    ours = _ids(both.read_bytes()[len(theirs.bytes()) :])[0]
    assert min(ours) >= 1 << 14


def test_ours_comes_first_where_theirs_was_read_while_it_recorded(cli, log, tmp_path):
    """
    GIVEN a trace whose buffers were read while it recorded, which importers sort piece by piece
    WHEN the log is converted with it
    THEN ours stands before it, so that nothing of it is too late.
    """
    theirs = of_machine(DB1, SPAN)
    theirs.add().service_event.read_tracing_buffers_completed = True
    theirs.write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    data = both.read_bytes()
    assert data.endswith(theirs.bytes())
    assert len(read(data[: -len(theirs.bytes())]).slices("bio")) == len(BIOS)


def test_their_clock_may_be_monotonic(cli, log, tmp_path):
    """
    GIVEN a trace whose primary clock is MONOTONIC
    WHEN the log is converted with it
    THEN ours names the same clock, and its times are of it.
    """
    theirs = of_machine(DB1, SPAN, primary=MONOTONIC).write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    assert cli("convert", log, "--with", theirs, "-o", both).status == 0
    packets = Trace.FromString(both.read_bytes()[theirs.stat().st_size :]).packet
    snapshots = [p.clock_snapshot for p in packets if p.HasField("clock_snapshot")]
    assert {s.primary_trace_clock for s in snapshots} == {MONOTONIC}
    assert {c.clock_id for s in snapshots for c in s.clocks if c.clock_id < 64} == {MONOTONIC}


def test_calls_are_on_their_threads_tracks(cli, tmp_path):
    """
    GIVEN a log with calls
    WHEN it is converted with a trace of the same boot
    THEN the calls are on tracks that name thread and process, which the importer joins.
    """
    from biotrail.recorder.log import LogReader

    clocks = LogReader(str(CALLS)).header["clocks"]
    theirs = SystemTrace()
    theirs.clocks(clocks)
    theirs.clocks({k: v + 10 * SECOND for k, v in clocks.items()})
    theirs.write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    done = cli("convert", CALLS, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 0, done.err
    packets = Trace.FromString(both.read_bytes()).packet
    threads = [p.track_descriptor.thread for p in packets if p.track_descriptor.HasField("thread")]
    assert threads
    assert all(t.tid and t.pid and t.thread_name for t in threads)


OTHER_BOOT = replace(DB1, started=-5000 * SECOND)
LATER = replace(DB1)


@pytest.mark.parametrize(
    "machine, span, said",
    [
        (OTHER_BOOT, SPAN, "REALTIME - BOOTTIME differs by 4000"),
        (replace(DB1, sleeps=[(-9 * SECOND, SECOND)]), SPAN, "BOOTTIME - MONOTONIC differs by 1.0"),
        (DB1, (5 * SECOND, 6 * SECOND), "no time in common with"),
        (DB1, (-6 * SECOND, -5 * SECOND), "no time in common with"),
    ],
)
def test_another_boot_or_time_is_refused(cli, log, tmp_path, machine, span, said):
    """
    GIVEN a trace of another boot, or of another time of the same
    WHEN the log is converted with it
    THEN one message says why not, the status is 1, and there is no output.
    """
    of_machine(machine, span).write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 1
    assert said in done.err
    assert not both.exists()


def test_another_kernel_is_refused(cli, tmp_path):
    """
    GIVEN a log that says which kernel ran, and a trace of another
    WHEN the log is converted with it
    THEN the message names both.
    """

    class Named(Machine):
        def header(self, true, log_id, **more):
            return super().header(true, log_id, kernel={"release": "6.2.0"}, **more)

    log = Named("db1").write(tmp_path / "db1.biotrail", BIOS, span=SPAN)
    of_machine(DB1, SPAN).write(tmp_path / "system.pftrace")
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", tmp_path / "b.pftrace")
    assert done.status == 1
    assert "release is 6.1.0 there, 6.2.0 here" in done.err


@pytest.mark.parametrize(
    "content, said",
    [
        (b"", "is no Perfetto trace"),
        (b"[1, 2, 3]", "is no Perfetto trace"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "is no Perfetto trace"),
        (b"\x0a\x05hello", "is no Perfetto trace"),
        (b"\x1f\x8b\x08\x00", "is no Perfetto trace"),
    ],
)
def test_what_is_no_trace_is_refused(cli, log, tmp_path, content, said):
    """
    GIVEN a file that is no Perfetto trace
    WHEN a log is converted with it
    THEN one message says so, and the status is 1.
    """
    (tmp_path / "other").write_bytes(content)
    done = cli("convert", log, "--with", tmp_path / "other", "-o", tmp_path / "both.pftrace")
    assert done.status == 1
    assert said in done.err


def test_a_cut_trace_is_read_as_far_as_it_goes(cli, log, tmp_path):
    """
    GIVEN a trace that ends within a packet
    WHEN the log is converted with it
    THEN its whole packets are in the output, and what is left out is said.
    """
    theirs = of_machine(DB1, SPAN)
    whole = theirs.bytes()
    cut = Trace(packet=[TracePacket(timestamp=1, trusted_packet_sequence_id=1)]).SerializeToString()
    (tmp_path / "system.pftrace").write_bytes(whole + cut[:-1])
    both = tmp_path / "both.pftrace"
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 0
    assert f"its last packet is cut off after {len(cut) - 1} bytes" in done.out
    assert both.read_bytes().startswith(whole)
    assert len(read(both.read_bytes()[len(whole) :]).slices("bio")) == len(BIOS)


@pytest.mark.parametrize(
    "more",
    [["-o", "x.otf2"], ["-o", "x.pftrace", "--max-size", "1M"]],
)
def test_usage(cli, log, tmp_path, more):
    """
    GIVEN options that do not go with another trace
    WHEN convert is called
    THEN it is a usage error.
    """
    assert cli("convert", log, "--with", tmp_path / "t.pftrace", *more).status == 2
    assert cli("convert", log, "--with", "-", "-o", tmp_path / "x.pftrace").status == 2


def test_a_missing_trace(cli, log, tmp_path):
    """
    GIVEN a path at which there is nothing
    WHEN a log is converted with it
    THEN the message names it.
    """
    done = cli("convert", log, "--with", tmp_path / "none", "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert f"{tmp_path / 'none'}: cannot be read: No such file" in done.err
