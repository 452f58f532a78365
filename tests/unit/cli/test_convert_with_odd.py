# SPDX-License-Identifier: Apache-2.0
"""`convert --with`, where the other trace is of several machines, clocks or writers."""

import gzip
from pathlib import Path

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

from tests.support.cli_runner import Cli
from tests.support.hosts_logs import LATENCY, SECOND, Machine
from tests.support.paths import ROOT
from tests.support.perfetto_check import read
from tests.support.system_traces import BOOTTIME, MONOTONIC, SystemTrace, of_machine

DB1 = Machine("db1")
GUEST = Machine("guest", "2" * 32, -4000 * SECOND)
SPAN = (0, 2 * SECOND)
BEFORE = (-9 * SECOND, -8 * SECOND)
BIOS = list(range(SECOND // 10, 2 * SECOND, SECOND // 7))
CALLS = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
OURS = {"clock_snapshot", "track_descriptor", "track_event", "trace_attributes"}
"""What a packet of ours is; none says anything of the whole trace."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return DB1.write(tmp_path / "db1.biotrail", BIOS, span=SPAN)


def _packets(data: bytes) -> list[TracePacket]:
    return list(Trace.FromString(data).packet)


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


ON_BOOTTIME = [(DB1.boottime(at), DB1.boottime(at + LATENCY)) for at in BIOS]


@pytest.mark.parametrize("first", ["host", "guest"])
def test_packets_of_another_machine_are_not_taken_for_this_ones(cli, log, tmp_path, first):
    """
    GIVEN a trace that a guest's recorder sent its packets to, of another kernel and boot
    WHEN the host's log is converted with it
    THEN the host's clock and kernel alone count, and ours are no packets of the guest.
    """
    guest = of_machine(GUEST, SPAN)
    guest.kernel("5.4.0-guest")
    parts = [_remote(guest, 77).packets, of_machine(DB1, SPAN).packets]
    theirs = SystemTrace([*parts[first == "host"], *parts[first == "guest"]])
    _, ours = _both(cli, log, theirs, tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert not any(packet.machine_id for packet in _packets(ours))


def test_ids_of_another_machines_packets_are_not_ours(cli, log, tmp_path):
    """
    GIVEN a trace in which another machine's packets have all ids that ours would get
    WHEN the log is converted with it
    THEN no sequence and no track of ours has one of them.
    """
    alone = tmp_path / "alone.pftrace"
    cli("convert", log, "-o", alone)
    theirs = SystemTrace(
        [
            *of_machine(DB1, SPAN).packets,
            *_remote(SystemTrace(_packets(alone.read_bytes())), 5).packets,
        ]
    )
    _, ours = _both(cli, log, theirs, tmp_path)
    sequences, tracks = _ids(ours)
    assert sequences.isdisjoint(_ids(theirs.bytes())[0])
    assert tracks.isdisjoint(_ids(theirs.bytes())[1])


def _ids(data: bytes) -> tuple[set[int], set[int]]:
    found = _packets(data)
    sequences = {packet.trusted_packet_sequence_id for packet in found}
    return sequences, {p.track_descriptor.uuid for p in found if p.HasField("track_descriptor")}


def _flows(data: bytes) -> set[int]:
    return {flow for packet in _packets(data) for flow in packet.track_event.flow_ids}


def test_a_log_can_be_written_into_a_trace_again_and_again(cli, tmp_path):
    """
    GIVEN a log with arrows, and a trace that has the log twice already
    WHEN it is converted with it once more
    THEN no sequence, track or arrow is of two of them.
    """
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


def test_ours_say_nothing_of_the_whole_trace(cli, log, tmp_path):
    """
    GIVEN a trace with a uuid of its own
    WHEN a log is converted with it
    THEN our packets hold tracks, events, clocks and attributes alone.
    """
    theirs = of_machine(DB1, SPAN)
    theirs.add().trace_uuid.msb = 7
    _, ours = _both(cli, log, theirs, tmp_path)
    assert {packet.WhichOneof("data") for packet in _packets(ours)} - {None} <= OURS


def test_the_first_primary_clock_that_is_named_counts(cli, tmp_path):
    """
    GIVEN snapshots of a machine that slept, on several sequences: one names no primary clock, the
        next MONOTONIC, the last BOOTTIME
    WHEN a log is converted with them
    THEN its times are of MONOTONIC, as an importer keeps the first.
    """
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
    """
    GIVEN a trace whose snapshots are older than the log, with packets on MONOTONIC of its time
    WHEN the log is converted with it
    THEN they have that time in common.
    """
    said, ours = _both(cli, log, _events(MONOTONIC, by_default), tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert "not compared" not in said


@pytest.mark.parametrize("by_default", [False, True])
def test_times_on_a_clock_of_their_own_are_said_not_to_be_compared(cli, log, tmp_path, by_default):
    """
    GIVEN the same with packets on a clock of their sequence, which no snapshot has
    WHEN the log is converted with it
    THEN it is, as readings of the wall clock show the same boot, with a note.
    """
    said, ours = _both(cli, log, _events(64, by_default), tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert f"note: {len(BIOS)} packets of it have times on clocks of its own: not compared" in said


def test_a_trace_without_snapshots_is_taken_by_its_times(cli, log, tmp_path):
    """
    GIVEN a trace of another writer, without a clock snapshot, of the log's BOOTTIME
    WHEN the log is converted with it
    THEN it is, with a note that the boot was not checked.
    """
    theirs = SystemTrace()
    for at in BIOS:
        theirs.add(0, timestamp=DB1.boottime(at)).track_event.track_uuid = 5
    said, ours = _both(cli, log, theirs, tmp_path)
    assert _bounds(ours) == ON_BOOTTIME
    assert "no readings of the wall clock" in said


@pytest.mark.parametrize("clock", [0, MONOTONIC, 64])
def test_a_trace_without_snapshots_of_another_time_is_refused(cli, log, tmp_path, clock):
    """
    GIVEN a trace of another writer, whose times begin at 0, or are on a clock that is not known
    WHEN the log is converted with it
    THEN one message says that there is no time in common, or none at all.
    """
    theirs = SystemTrace()
    for at in range(1000, 9000, 1000):
        theirs.add(1, timestamp=at, timestamp_clock_id=clock or None)
    theirs.write(tmp_path / "system.pftrace")
    done = cli("convert", log, "--with", tmp_path / "system.pftrace", "-o", tmp_path / "b.pftrace")
    assert done.status == 1
    assert ("no time in common with" if not clock else "has no times to stand beside") in done.err


def test_both_may_be_written_compressed(cli, log, tmp_path):
    """
    GIVEN their trace, compressed
    WHEN the log is converted with it to a compressed file
    THEN it has the bytes that a plain one has.
    """
    theirs = of_machine(DB1, SPAN)
    _, ours = _both(cli, log, theirs, tmp_path)
    packed = tmp_path / "system.pftrace.gz"
    packed.write_bytes(gzip.compress(theirs.bytes()))
    both = tmp_path / "both.pftrace.gz"
    cli("convert", log, "--with", packed, "-o", both)
    found = gzip.decompress(both.read_bytes())
    assert found.startswith(theirs.bytes())
    assert _bounds(found[len(theirs.bytes()) :]) == _bounds(ours)
