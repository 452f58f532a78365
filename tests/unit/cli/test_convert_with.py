# SPDX-License-Identifier: Apache-2.0
"""`convert --with`: a log's tracks in a trace that another program wrote."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from tests.support.cli_runner import Cli
from tests.support.hosts_logs import LATENCY, SECOND, Machine
from tests.support.paths import ROOT
from tests.support.perfetto_check import read
from tests.support.system_traces import BOOTTIME, MONOTONIC, SystemTrace, of_machine

DB1 = Machine("db1")
SPAN = (0, 2 * SECOND)
BIOS = list(range(SECOND // 10, 2 * SECOND, SECOND // 7))
ON_BOOTTIME = [(DB1.boottime(at), DB1.boottime(at + LATENCY)) for at in BIOS]
CALLS = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return DB1.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)


def _packets(data: bytes) -> list[TracePacket]:
    return list(Trace.FromString(data).packet)


def _ids(data: bytes) -> tuple[set[int], set[int]]:
    """Sequence ids and track uuids of a trace."""
    packets = _packets(data)
    sequences = {p.trusted_packet_sequence_id for p in packets}
    return sequences, {p.track_descriptor.uuid for p in packets if p.HasField("track_descriptor")}


def _both(cli: Cli, log: Path, theirs: SystemTrace, folder: Path) -> tuple[str, bytes]:
    """Convert the log with a trace; return what was printed, and the bytes of ours."""
    theirs.write(folder / "system.pftrace")
    both = folder / "both.pftrace"
    done = cli("convert", log, "--with", folder / "system.pftrace", "-o", both)
    assert done.status == 0, done.err
    assert both.read_bytes().startswith(theirs.bytes())
    return done.out, both.read_bytes()[len(theirs.bytes()) :]


def _bounds(ours: bytes) -> list[tuple[int, int]]:
    return [(bio.start, bio.end) for bio in read(ours).slices("bio")]


def _remote(trace: SystemTrace, machine: int) -> SystemTrace:
    """The same packets, as a recorder passes on those of another machine."""
    for packet in trace.packets:
        packet.machine_id = machine
    return trace


def test_theirs_is_unchanged_and_ours_is_on_its_clock(cli, log, tmp_path):
    # GIVEN a log, and a trace that another program made at the same time
    # WHEN the log is converted with it
    # THEN their bytes come first as they were, and each bio lies at its BOOTTIME
    said, data = _both(cli, log, of_machine(DB1, SPAN), tmp_path)
    assert "unchanged; the same boot, so one clock: exact" in said
    assert _bounds(data) == ON_BOOTTIME
    ours = read(data)
    assert ours.attributes["biotrail.beside"] == "system.pftrace"
    assert ours.attributes["biotrail.aligned_within_ns"] == 0


def test_a_machine_that_slept_has_a_bound(cli, tmp_path):
    # GIVEN a machine that slept for a minute before both were recorded
    # WHEN the log is converted with the trace
    # THEN its times are moved by that minute, to within the readings' uncertainty, which is said
    slept = Machine("db1", sleeps=[(-100 * SECOND, 60 * SECOND)])
    log = slept.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)
    said, ours = _both(cli, log, of_machine(slept, SPAN), tmp_path)
    assert "one clock: within 100 ns" in said
    bios = read(ours).slices("bio")
    assert len(bios) == len(BIOS)
    assert all(abs(b.start - slept.boottime(at)) <= 100 for b, at in zip(bios, BIOS, strict=True))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_theirs_and_both_may_be_compressed(cli, log, tmp_path, ending):
    # GIVEN their trace in a compressed file
    # WHEN the log is converted with it to a plain file, and to a compressed one
    # THEN its decompressed bytes and the same ones of ours are in the output
    theirs = of_machine(DB1, SPAN)
    _, ours = _both(cli, log, theirs, tmp_path)
    packed = tmp_path / f"packed.pftrace{ending}"
    pack = gzip.compress if ending == ".gz" else zstandard.compress
    packed.write_bytes(pack(theirs.bytes()))
    plain, both = tmp_path / "plain.pftrace", tmp_path / "both.pftrace.gz"
    for target in (plain, both):
        assert cli("convert", log, "--with", packed, "-o", target).status == 0
    for found in (plain.read_bytes(), gzip.decompress(both.read_bytes())):
        assert found.startswith(theirs.bytes())
        assert _bounds(found[len(theirs.bytes()) :]) == _bounds(ours)


@pytest.mark.parametrize("how", ["plain", "compressed", "of another machine"])
def test_ids_are_apart_even_from_those_of_the_same_log(cli, log, tmp_path, how):
    # GIVEN a trace of the same log, with all ids that it would get: plain, compressed, or passed on
    #     from another machine
    # WHEN the log is converted with it
    # THEN no sequence id and no track uuid is in both
    alone = tmp_path / "alone.pftrace"
    cli("convert", log, "-o", alone)
    packets = _packets(alone.read_bytes())
    theirs = SystemTrace(packets)
    if how == "compressed":
        theirs = theirs.compressed()
    elif how == "of another machine":
        theirs = SystemTrace([*of_machine(DB1, SPAN).packets, *_remote(theirs, 5).packets])
    _, ours = _both(cli, log, theirs, tmp_path)
    for before, after in zip(_ids(alone.read_bytes()), _ids(ours), strict=True):
        assert before.isdisjoint(after)
    assert len(read(ours).slices("bio")) == len(BIOS)


def test_a_full_range_of_sequences_is_passed_over(cli, log, tmp_path):
    # GIVEN a trace that uses all sequence ids of two bytes
    # WHEN the log is converted with it
    # THEN ours has none of them
    theirs = of_machine(DB1, SPAN)
    for sequence in range(1 << 12, 1 << 14):
        theirs.add(sequence)
    _, ours = _both(cli, log, theirs, tmp_path)
    assert min(_ids(ours)[0]) >= 1 << 14


def test_their_clock_may_be_monotonic(cli, log, tmp_path):
    # GIVEN a trace whose primary clock is MONOTONIC
    # WHEN the log is converted with it
    # THEN ours names the same clock, and its times are of it
    _, ours = _both(cli, log, of_machine(DB1, SPAN, primary=MONOTONIC), tmp_path)
    packets = _packets(ours)
    snapshots = [p.clock_snapshot for p in packets if p.HasField("clock_snapshot")]
    assert {s.primary_trace_clock for s in snapshots} == {MONOTONIC}
    assert {c.clock_id for s in snapshots for c in s.clocks if c.clock_id < 64} == {MONOTONIC}


def test_ours_say_nothing_of_the_whole_trace(cli, log, tmp_path):
    # GIVEN a trace with a uuid of its own
    # WHEN a log is converted with it
    # THEN our packets hold tracks, events, clocks and attributes alone
    theirs = of_machine(DB1, SPAN)
    theirs.add().trace_uuid.msb = 7
    _, ours = _both(cli, log, theirs, tmp_path)
    assert {packet.WhichOneof("data") for packet in _packets(ours)} - {None} <= OURS


def test_ours_comes_first_where_theirs_was_read_while_it_recorded(cli, log, tmp_path):
    # GIVEN a trace whose buffers were read while it recorded, which importers sort piece by piece
    # WHEN the log is converted with it
    # THEN ours stands before it, so that nothing of it is too late
    theirs = of_machine(DB1, SPAN)
    theirs.add().service_event.read_tracing_buffers_completed = True
    theirs.write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    data = both.read_bytes()
    assert data.endswith(theirs.bytes())
    assert len(read(data[: -len(theirs.bytes())]).slices("bio")) == len(BIOS)


def test_calls_are_on_their_threads_tracks(cli, tmp_path):
    # GIVEN a log with calls
    # WHEN it is converted with a trace of the same boot
    # THEN the calls are on tracks that name thread and process, which the importer joins
    from biotrail.recorder.log import LogReader

    clocks = LogReader(str(CALLS)).header["clocks"]
    theirs = SystemTrace()
    theirs.clocks(clocks)
    theirs.clocks({k: v + 10 * SECOND for k, v in clocks.items()})
    packets = _packets(_both(cli, CALLS, theirs, tmp_path)[1])
    threads = [p.track_descriptor.thread for p in packets if p.track_descriptor.HasField("thread")]
    assert threads
    assert all(t.tid and t.pid and t.thread_name for t in threads)


OTHER_BOOT = replace(DB1, started=-5000 * SECOND)


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
    # GIVEN a trace of another boot, or of another time of the same
    # WHEN the log is converted with it
    # THEN one message says why not, the status is 1, and there is no output
    of_machine(machine, span).write(tmp_path / "system.pftrace")
    both = tmp_path / "both.pftrace"
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 1
    assert said in done.err
    assert not both.exists()


def test_another_kernel_is_refused(cli, tmp_path):
    # GIVEN a log that says which kernel ran, and a trace of another
    # WHEN the log is converted with it
    # THEN the message names both
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
    # GIVEN a file that is no Perfetto trace
    # WHEN a log is converted with it
    # THEN one message says so, and the status is 1
    (tmp_path / "other").write_bytes(content)
    done = cli("convert", log, "--with", tmp_path / "other", "-o", tmp_path / "both.pftrace")
    assert done.status == 1
    assert said in done.err


def test_a_cut_trace_is_read_as_far_as_it_goes(cli, log, tmp_path):
    # GIVEN a trace that ends within a packet
    # WHEN the log is converted with it
    # THEN its whole packets are in the output, and what is left out is said
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


def test_a_log_without_its_trace_is_a_message(cli, log, tmp_path):
    # GIVEN a path at which there is nothing
    # WHEN a log is converted with it
    # THEN the message names it
    done = cli("convert", log, "--with", tmp_path / "none", "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert f"{tmp_path / 'none'}: cannot be read: No such file" in done.err
    # GIVEN a trace of another writer, without a clock snapshot, of the log's BOOTTIME
    # WHEN the log is converted with it
    # THEN it is, with a note that the boot was not checked
    theirs = SystemTrace()
    for at in BIOS:
        theirs.add(0, timestamp=DB1.boottime(at)).track_event.track_uuid = 5
    said, ours = _both(cli, log, theirs, tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert "no readings of the wall clock" in said


# `convert --with`, where the other trace is of several machines, clocks or writers.

GUEST = Machine("guest", "2" * 32, -4000 * SECOND)
BEFORE = (-9 * SECOND, -8 * SECOND)
OURS = {"clock_snapshot", "track_descriptor", "track_event", "trace_attributes"}
"""What a packet of ours is; none says anything of the whole trace."""


@pytest.mark.parametrize("first", ["host", "guest"])
def test_packets_of_another_machine_are_not_taken_for_this_ones(cli, log, tmp_path, first):
    # GIVEN a trace that a guest's recorder sent its packets to, of another kernel and boot
    # WHEN the host's log is converted with it
    # THEN the host's clock and kernel alone count, and ours are no packets of the guest
    guest = of_machine(GUEST, SPAN)
    guest.kernel("5.4.0-guest")
    parts = [_remote(guest, 77).packets, of_machine(DB1, SPAN).packets]
    theirs = SystemTrace([*parts[first == "host"], *parts[first == "guest"]])
    _, ours = _both(cli, log, theirs, tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert not any(packet.machine_id for packet in _packets(ours))


def _flows(data: bytes) -> set[int]:
    return {flow for packet in _packets(data) for flow in packet.track_event.flow_ids}


def test_a_log_can_be_written_into_a_trace_again_and_again(cli, tmp_path):
    # GIVEN a log with arrows, and a trace that has the log twice already
    # WHEN it is converted with it once more
    # THEN no sequence, track or arrow is of two of them
    trace = tmp_path / "0.pftrace"
    cli("convert", CALLS, "--detail", "full", "-o", trace)
    parts = [trace.read_bytes()]
    for number in (1, 2):
        both = tmp_path / f"{number}.pftrace"
        done = cli("convert", CALLS, "--detail", "full", "--with", trace, "-o", both)
        assert done.status == 0, done.err
        parts.append(both.read_bytes()[trace.stat().st_size :])
        trace = both
    for kind in (lambda d: _ids(d)[0], lambda d: _ids(d)[1], _flows):
        found = [kind(part) for part in parts]
        assert len(set.union(*found)) == sum(len(each) for each in found) > 0


def test_the_first_primary_clock_that_is_named_counts(cli, tmp_path):
    # GIVEN snapshots of a machine that slept, on several sequences: one names no primary clock, the
    # next MONOTONIC, the last BOOTTIME
    # WHEN a log is converted with them
    # THEN its times are of MONOTONIC, as an importer keeps the first
    slept = Machine("db1", sleeps=[(-100 * SECOND, 60 * SECOND)])
    theirs = SystemTrace()
    for at, sequence, primary in ((0, 9, None), (0, 5, MONOTONIC), (SPAN[1], 9, BOOTTIME)):
        theirs.clocks(slept.reading(at))
        theirs.packets[-1].trusted_packet_sequence_id = sequence
        theirs.packets[-1].clock_snapshot.ClearField("primary_trace_clock")
        if primary is not None:
            theirs.packets[-1].clock_snapshot.primary_trace_clock = primary
    log = slept.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)
    _, ours = _both(cli, log, theirs, tmp_path)
    assert _bounds(ours) == [(slept.monotonic(at), slept.monotonic(at + LATENCY)) for at in BIOS]


def _events(clock: int, by_default: bool) -> SystemTrace:
    """Snapshots from before the log, and packets on a clock while it recorded."""
    theirs = SystemTrace()
    for at in BEFORE:
        theirs.clocks(DB1.reading(at))
    if by_default:
        theirs.add(30).trace_packet_defaults.timestamp_clock_id = clock
    for at in BIOS:
        packet = theirs.add(30, timestamp=DB1.reading(at)["monotonic"])
        if not by_default:
            packet.timestamp_clock_id = clock
    return theirs


@pytest.mark.parametrize("by_default", [False, True])
def test_times_on_monotonic_are_times_in_common(cli, log, tmp_path, by_default):
    # GIVEN a trace whose snapshots are older than the log, with packets on MONOTONIC of its time
    # WHEN the log is converted with it
    # THEN they have that time in common
    said, ours = _both(cli, log, _events(MONOTONIC, by_default), tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert "not compared" not in said


@pytest.mark.parametrize("by_default", [False, True])
def test_times_on_a_clock_of_their_own_are_said_not_to_be_compared(cli, log, tmp_path, by_default):
    # GIVEN the same with packets on a clock of their sequence, which no snapshot has
    # WHEN the log is converted with it
    # THEN it is, as readings of the wall clock show the same boot, with a note
    said, ours = _both(cli, log, _events(64, by_default), tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert f"note: {len(BIOS)} packets of it have times on clocks of its own: not compared" in said


@pytest.mark.parametrize("clock", [0, MONOTONIC, 64])
def test_a_trace_without_snapshots_of_another_time_is_refused(cli, log, tmp_path, clock):
    # GIVEN a trace of another writer, whose times begin at 0, or are on a clock that is not known
    # WHEN the log is converted with it
    # THEN one message says that there is no time in common, or none at all
    theirs = SystemTrace()
    for at in range(1000, 9000, 1000):
        theirs.add(1, timestamp=at, timestamp_clock_id=clock or None)
    theirs.write(tmp_path / "system.pftrace")
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", tmp_path / "b.pftrace")
    assert done.status == 1
    assert ("no time in common with" if not clock else "has no times to stand beside") in done.err


# `convert LOG LOG --with TRACE`: several recordings of one boot in another program's trace.

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
    # GIVEN two recordings of one boot, and a trace of the same with either primary clock
    # WHEN they are converted with it
    # THEN theirs is unchanged, the bios of both are on its clock, and what is said is true of both
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
    # GIVEN a trace that has both recordings already
    # WHEN they are converted with it
    # THEN no sequence id and no track uuid is in both
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
    # GIVEN a recording of another machine among those of the trace's
    # WHEN they are converted with it
    # THEN the message names that recording, and there is no output
    of_machine(SLEPT, SPAN).write(tmp_path / "system.pftrace")
    other = DB2.write(tmp_path / "db2.biotrail", FIRST, span=SPAN, log_id="other")
    both = tmp_path / "both.pftrace"
    done = cli("convert", logs[0], other, "--with", tmp_path / "system.pftrace", "-o", both)
    assert done.status == 1
    assert f"is of another machine or boot than {other}" in done.err
    assert not both.exists()
