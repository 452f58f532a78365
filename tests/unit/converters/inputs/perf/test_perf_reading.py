# SPDX-License-Identifier: Apache-2.0
"""perf.data as events: every form that perf writes gives the same."""

import io
import struct
from pathlib import Path

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perf import records
from biotrail.converters.inputs.perf.facts import Facts, Feature
from biotrail.converters.inputs.perf.layout import TRACEPOINT, Attr, ReadFormat, SampleType
from biotrail.converters.inputs.perf.source import PerfSource
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from tests.support import perf_files as perf
from tests.support.both_ways import uncompiled
from tests.support.perf_files import FEATURE, HARDWARE, START, Perf
from tests.support.sources import Pipe, everything

LOOPS = uncompiled("converters/inputs/perf/walk_loops.py")


def read(data: bytes) -> tuple[PerfSource, Events]:
    """Return the source of a file, read to its end, and its events."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, PerfSource)
    events = everything(source)
    return source, events


def told(events: Events) -> list[tuple[int, ...]]:
    """Return what the events say, names of threads apart."""
    rows = events.rows(Kind.Q, Kind.D, Kind.C)
    columns = (events.ts, events.kind, events.sector, events.bytes, events.dev, events.opf)
    return list(zip(*(column[rows].tolist() for column in columns), strict=True))


WANTED = [
    (START + 10_000 * i + 1000 * step, kind, 64 * i, 4096, 7 << 20, 0)
    for i in range(5)
    for step, kind in enumerate((Kind.Q, Kind.D, Kind.C))
]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    "sample_type",
    [
        perf.USUAL,
        perf.USUAL | perf.CALLCHAIN,
        perf.USUAL | perf.READ,
        perf.TID | perf.TIME | perf.ID | perf.CPU | perf.RAW,
        perf.USUAL | perf.ADDR | perf.STREAM_ID | perf.ID,
    ],
)
@pytest.mark.parametrize("read_format", [0, 0b10111, 0b11111])
def test_samples_of_any_type_and_byte_order(order: str, sample_type: int, read_format: int) -> None:
    """GIVEN samples with other fields before the tracepoint's; THEN the events are the same."""
    made = Perf(order, sample_type, read_format)
    source, events = read(made.file(made.reads(5)))
    assert told(events) == WANTED
    assert (source.problems, source.unreadable_bytes) == ([], 0)


def test_call_chains_of_any_length() -> None:
    """GIVEN samples with call chains of 0 to 9 functions; THEN what is behind them is read."""
    made = Perf(sample_type=perf.USUAL | perf.CALLCHAIN)
    chains = [
        made.sample(made.names[0], START + i, chain=range(i), dev=1, sector=i, rwbs=b"W")
        for i in range(10)
    ]
    _, events = read(made.file(chains))
    assert events.sector[events.rows(Kind.Q)].tolist() == list(range(10))


@pytest.mark.parametrize("kind", [perf.COMPRESSED, perf.COMPRESSED2])
@pytest.mark.parametrize("size", [40, 1000, 100_000])
def test_compressed_records(kind: int, size: int) -> None:
    """GIVEN records compressed in pieces that end anywhere; THEN the events are the same."""
    made = Perf()
    whole = b"".join(made.reads(5))
    chunks = [whole[at : at + size] for at in range(0, len(whole), size)]
    source, events = read(made.file(made.compressed(chunks, kind)))
    assert told(events) == WANTED
    assert source.problems == []


def test_records_that_are_there_twice_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a compressed recording with a record again, at once and later; THEN they count once."""
    made = Perf()
    records_ = made.reads(5)
    chunks = [b"".join([*records_[:4], records_[3]]), b"".join([records_[3], *records_[4:]])]
    source, events = read(made.file(made.compressed(chunks)))
    assert told(events) == WANTED
    assert [r for r in source.remarks if "2 records are there twice" in r]
    # GIVEN all that a round ended with again behind it, in the same block, or in the next
    begun = [*records_[:6], made.round()]
    for size in (records.BLOCK_BYTES, sum(map(len, begun))):
        monkeypatch.setattr(records, "BLOCK_BYTES", size)
        # WHEN it is read / THEN it counts once, too
        source, events = read(made.file([*begun, *records_[2:]]))
        assert told(events) == WANTED
        assert [r for r in source.remarks if "4 records are there twice" in r]


def test_files_and_pipes_are_read_alike(tmp_path: Path) -> None:
    """GIVEN what perf writes into a pipe, with data that follow records; THEN it is read."""
    made = Perf(features={perf.HOSTNAME: Perf().text("machine")})
    extra = made.record(perf.AUXTRACE, made.pack("QQQQII", 24, 0, 0, 0, 0, 0)) + bytes(range(24))
    source = open_source(Pipe(made.pipe([extra, *made.reads(5)])))
    events = everything(source)
    assert told(events) == WANTED
    assert source.header["host"]["name"] == "machine"
    assert source.header["events"]["letters"] == ["Q", "D", "C"]
    # GIVEN a file that comes through a pipe / THEN it is read, with the formats at its end
    source = open_source(Pipe(made.file(made.reads(5))))
    assert told(everything(source)) == WANTED
    # GIVEN a file of any name / THEN it is read as perf's
    (tmp_path / "trace.biotrail").write_bytes(made.file(made.reads(5)))
    trace = Trace(tmp_path / "trace.biotrail")
    bios = [table.bios for table in trace.lifecycles()]
    assert [t for b in bios for t in (b.complete - b.queue).tolist()] == [2000] * 5


def test_records_are_found_by_any_loops_in_any_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a file; WHEN records are found by each of the loops; THEN the events are the same."""
    for order in ("<", ">"):
        made = Perf(order)
        data = made.file(made.reads(5))
        for loops in (records.loops, LOOPS):
            monkeypatch.setattr(records, "loops", loops)
            assert told(read(data)[1]) == WANTED
    # GIVEN blocks of few bytes / THEN records that lie across them are read
    made = Perf()
    data = made.file(made.reads(5))
    for size in (8, 100, 333):
        monkeypatch.setattr(records, "BLOCK_BYTES", size)
        assert told(read(data)[1]) == WANTED


def test_names_of_threads() -> None:
    """GIVEN names with and without a time, and names in events; THEN threads are named by them."""
    made = Perf()
    early, late = made.comm(9, b"earlier"), made.comm(7, b"renamed", START + 5)
    _, events = read(made.file([early, *made.reads(1), late]))
    tasks = events.fields(Kind.TASK, events.rows(Kind.TASK))
    found = zip(tasks["tid"].tolist(), tasks["comm"].tolist(), strict=True)
    assert list(found) == [(9, b"earlier"), (7, b"reader"), (7, b"renamed"), (7, b"reader")]
    assert events.ts.min() == START


def test_what_was_lost_is_dated() -> None:
    """GIVEN a LOST record, throttling, and more lost samples in all; THEN each is a loss window."""
    made = Perf()
    body = made.pack("QQQ", START + 30_000, 0, 0) + made.trailer(START + 30_000, 1)
    later = made.pack("QQQ", START + 40_000, 0, 0) + made.trailer(START + 40_000, 1)
    in_all = made.record(perf.LOST_SAMPLES, made.pack("Q", 9) + made.trailer())
    filtered = made.record(perf.LOST_SAMPLES, made.pack("Q", 50) + made.trailer(), 1 << 15)
    records_ = [*made.reads(2), made.lost(4, START + 20_000), *made.reads(5)[6:]]
    records_ += [made.record(perf.THROTTLE, body), made.record(perf.UNTHROTTLE, later)]
    source, _ = read(made.file([*records_, in_all, filtered]))
    found = [(loss["start"], loss["end"], loss["cpu"], loss["count"]) for loss in source.losses]
    end = START + 42_000
    assert found == [
        (START + 12_000, START + 20_000, 0, 4),
        (START + 30_000, START + 40_000, 1, -1),
        (START, end, -1, 5),
    ]


def test_a_ksymbol_may_have_bytes_behind_its_end() -> None:
    """GIVEN KSYMBOLs as the kernel writes them for a second event; THEN nothing is left out."""
    made = Perf()
    body = made.pack("QIHH", 1 << 63, 20, 1, 0) + b"bpf_prog_59f4a931744dcdc6".ljust(32, b"\0")
    ends = made.trailer(START + 1_000), made.trailer(START + 1_000) + b"\x48\x5c\x79\xa0" * 8
    data = made.file([*made.reads(5), *(made.record(17, body + end) for end in ends)])
    source, _ = read(data)
    assert source.losses == []
    assert source.unreadable_bytes == 0


def test_rounds_say_up_to_when_all_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN rounds; THEN a part is complete to the newest record of the round before the last."""
    monkeypatch.setattr(records, "BLOCK_BYTES", 1 << 20)
    made = Perf()
    first, second, third = (made.io(START + 10_000 * i, 64 * i) for i in range(3))
    data = made.file([*first, made.round(), *second, made.round(), *third])
    source = open_source(io.BytesIO(data))
    batches = list(source.batches())  # type: ignore[attr-defined]
    assert batches[0].complete_to == START + 2000


def test_other_events_are_counted_and_passed_over() -> None:
    """GIVEN samples of the scheduler; THEN a remark names them, and what is not recorded."""
    made = Perf(names=("block_rq_issue", "block_rq_complete", "sched_switch"))
    switch = [made.sample("sched_switch", START + i, next=3) for i in range(4)]
    source, events = read(made.file([*switch, *made.reads(1)[:2]]))
    assert len(events.rows(Kind.D, Kind.C)) == 2
    assert any("sched_switch 4" in r for r in source.remarks)
    assert any("block_bio_queue was not recorded" in r for r in source.remarks)


def test_the_file_says_of_machine_filter_and_command() -> None:
    """GIVEN features; THEN the header has host, kernel, perf's version and the clocks."""
    made = Perf()
    clocks = made.pack("IIQQ", 1, 1, 1_700_000_000_000_000_000, START)
    made.features = {
        perf.HOSTNAME: made.text("box"),
        perf.OSRELEASE: made.text("6.18.0"),
        perf.VERSION: made.text("6.1"),
        perf.CLOCK_DATA: clocks,
        perf.CMDLINE: made.pack("I", 2) + made.text("perf") + made.text("--pid=7"),
    }
    source, _ = read(made.file(made.reads(5)))
    header = source.header
    assert (header["host"]["name"], header["kernel"]["release"]) == ("box", "6.18.0")
    assert (header["created_by"], header["backend"]) == ("perf 6.1", "perf")
    assert header["clocks"]["realtime"] - header["clocks"]["monotonic"] == 1_699_999_995_000_000_000
    assert any("some threads alone" in remark for remark in source.remarks)
    assert not any("perf's own clock" in remark for remark in source.remarks)
    # GIVEN a recording with a filter / THEN a remark names it, and the command is the header's
    command = ["perf", "record", "--filter", "dev == 1"]
    packed = b"".join(made.text(word) for word in command)
    made.features = {perf.CMDLINE: made.pack("I", len(command)) + packed}
    source, _ = read(made.file(made.reads(5)))
    assert any("--filter" in remark for remark in source.remarks)
    assert source.header["command"] == command


@pytest.mark.parametrize("made", [Perf(period=10), Perf(">", flags=1 << 18 | 1 << 10)])
def test_a_sample_of_the_events_is_said_to_be_one(made: Perf) -> None:
    """GIVEN a recording of each tenth event, or at a frequency; THEN a remark says so."""
    source, _ = read(made.file(made.reads(5)))
    assert any("a sample of the events" in remark for remark in source.remarks)


# What perf.data says of itself beside its events: names with modifiers, empty sections.

REAL = Path(__file__).parents[4] / "data/perf/ext4-on-loop.data"
SOFTWARE = 1
FEATURES_AT = 72
DESCRIBING = sorted(set(Feature) - {Feature.TRACING_DATA})


def sections(data: bytes) -> dict[int, int]:
    """Return where the table of sections has each section's offset and size, by its number."""
    at, size = struct.unpack_from("<QQ", data, 40)
    words = struct.unpack_from("<4Q", data, FEATURES_AT)
    numbers = [bit for bit in range(256) if words[bit // 64] >> bit % 64 & 1]
    return {number: at + size + 16 * place for place, number in enumerate(numbers)}


def event_desc(*names: str) -> bytes:
    """Return the section EVENT_DESC with events of these names."""
    made = Perf()
    head = struct.pack("<II", len(names), 128)
    return head + b"".join(bytes(128) + struct.pack("<I", 0) + made.text(name) for name in names)


def attr(kind: int) -> Attr:
    """Return an event's attr of a kind (perf_event_attr.type)."""
    return Attr(kind, 128, 1, 1, SampleType(0), ReadFormat(0), True, False)


@pytest.mark.parametrize(
    "kind, name, shown",
    [
        (SOFTWARE, "cpu-clock:u", "cpu-clock:u"),
        (SOFTWARE, "cpu-clock:pppH", "cpu-clock:pppH"),
        (HARDWARE, "cycles", "cycles"),
        (8, "cs_etm/autofdo/u", "cs_etm/autofdo/u"),
        (TRACEPOINT, "sched:sched_switch", "sched_switch"),
        (TRACEPOINT, "sched:sched_switch:u", "sched_switch:u"),
    ],
)
def test_names_keep_their_modifiers(kind: int, name: str, shown: str) -> None:
    """GIVEN an event's name in EVENT_DESC; THEN only the system of a tracepoint is left out."""
    facts = Facts("x", "<")
    facts.events.append(attr(kind))
    facts.add_feature(Feature.EVENT_DESC, event_desc(name))
    assert facts.name(0) == shown


def described() -> tuple[Perf, list[bytes]]:
    """Return a recording of three reads with every section that is read, and its records."""
    made = Perf()
    texts = (Feature.HOSTNAME, Feature.OSRELEASE, Feature.VERSION, Feature.ARCH, Feature.CPUDESC)
    made.features |= {number: made.text("text") for number in texts}
    made.features |= {
        Feature.NRCPUS: struct.pack("<II", 2, 2),
        Feature.CMDLINE: struct.pack("<I", 1) + made.text("perf"),
        Feature.EVENT_DESC: event_desc(*(f"block:{name}" for name in made.names)),
        Feature.CLOCK_DATA: struct.pack("<IIQQ", 1, 1, 10**18, START),
    }
    return made, made.reads(3)


@pytest.mark.parametrize("number", DESCRIBING)
@pytest.mark.parametrize("damage", ["empty", "short", "huge", "behind the end", "garbage"])
def test_a_section_that_only_describes_costs_itself(number: Feature, damage: str) -> None:
    """GIVEN a file with one describing section empty, short, impossible or garbage; WHEN it is
    read; THEN all events are there, and what is not known is said."""
    made, records = described()
    whole = made.file(records)
    data, place = bytearray(whole), sections(whole)
    at, size = struct.unpack_from("<QQ", data, place[number])
    changed = {
        "empty": (at, 0),
        "short": (at, 2),
        "huge": (at, 1 << 50),
        "behind the end": (1 << 62, size),
        "garbage": (at, size),
    }
    struct.pack_into("<QQ", data, place[number], *changed[damage])
    if damage == "garbage":
        data[at : at + size] = b"\xff" * size
    source, events = read(bytes(data))
    assert len(events) == len(read(whole)[1])
    said = [remark for remark in source.remarks if f"section {number.name}" in remark]
    # Garbage that is as long as a number is a number.
    numbers = (Feature.NRCPUS, Feature.CLOCK_DATA)
    assert len(said) == 1 or (damage == "garbage" and number in numbers)


def test_the_formats_are_needed() -> None:
    """GIVEN the same file with its formats' section empty; THEN it is refused with a message."""
    data = bytearray(REAL.read_bytes())
    struct.pack_into("<Q", data, sections(bytes(data))[Feature.TRACING_DATA] + 8, 0)
    with pytest.raises(LogFormatError, match="formats of its events"):
        read(bytes(data))


def test_a_format_that_is_damaged_costs_its_event() -> None:
    """GIVEN a format of completions without an ID; THEN issues are read, and it is said."""
    made = Perf()
    records = made.reads(3)
    data = made.file(records)
    whole = len(read(data)[1])
    damaged = data.replace(b"name: block_rq_complete\nID: ", b"name: block_rq_complete\nIX: ")
    source, events = read(damaged)
    assert len(events) == whole - 3
    assert any("formats of some of its events" in problem for problem in source.problems)


def test_a_format_that_comes_behind_samples_is_too_late() -> None:
    """GIVEN a pipe that has the format of completions behind its first samples; THEN the samples of
    other events are read, and completions passed over."""
    made = Perf()
    early, late = made.io(START, 64), made.io(START + 10_000, 128)
    whole = made.pipe([])
    begun = whole.replace(b"name: block_rq_complete\nID: ", b"name: block_rq_complete\nIX: ")
    formats = made.tracing_data()
    formats = formats.ljust(-(-len(formats) // 8) * 8, b"\0")
    record = made.record(perf.TRACING_DATA, made.pack("II", len(formats), 0))
    source, events = read(b"".join([begun, *early, record, formats, *late]))
    assert len(events) == len(read(made.pipe([*early, *late]))[1]) - 2
    assert any("block_rq_complete" in remark for remark in source.remarks)


@pytest.mark.parametrize("body", [b"", b"\x08", struct.pack("<Q", 1 << 40)])
def test_a_pipe_s_description_that_is_damaged(body: bytes) -> None:
    """GIVEN a pipe with a feature that perf does not have; THEN it is read, and that is said."""
    made = Perf()
    records = made.reads(3)
    whole = len(read(made.pipe(records))[1])
    source, events = read(made.pipe([made.record(FEATURE, body), *records]))
    assert len(events) == whole
    assert any("no section that perf has" in problem for problem in source.problems)
