# SPDX-License-Identifier: Apache-2.0
"""What perf.data says of itself beside its events: names with modifiers, empty sections."""

import io
import struct
from pathlib import Path

import pytest

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.perf.facts import Facts, Feature
from biotrail.converters.inputs.perf.layout import TRACEPOINT, Attr, ReadFormat, SampleType
from biotrail.converters.inputs.perf.source import PerfSource
from biotrail.recorder.schema.errors import LogFormatError
from tests.support.perf_files import FEATURE, HARDWARE, Perf

REAL = Path(__file__).parents[4] / "data/perf/ext4-on-loop.data"
START = 5_000_000_000
SOFTWARE = 1
FEATURES_AT = 72
DESCRIBING = sorted(set(Feature) - {Feature.TRACING_DATA})


def read(data: bytes) -> tuple[PerfSource, Events]:
    """Return the source of a file, read to its end, and its events."""
    source = open_source(io.BytesIO(data))
    assert isinstance(source, PerfSource)
    return source, Events.join([part.events for part in source.parts()])


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
    return Attr(kind, 128, 1, 1, SampleType(0), ReadFormat(0), True, False, None)


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
    facts.add_event(attr(kind), [1])
    facts.add_feature(Feature.EVENT_DESC, event_desc(name))
    assert facts.name(0) == shown


def test_a_recording_of_other_events_names_them() -> None:
    """GIVEN a recording of cpu-clock:u and page-faults:u alone; THEN the message names them so."""
    made = Perf(names=("block_bio_queue", "block_rq_issue"))
    made.features[Feature.EVENT_DESC] = event_desc("cpu-clock:u", "page-faults:u")
    data = bytearray(made.file(made.io(START, 64)))
    (attrs_at,) = struct.unpack_from("<Q", data, 24)
    (each,) = struct.unpack_from("<Q", data, 16)
    for number in range(2):
        struct.pack_into("<IIQ", data, attrs_at + each * number, SOFTWARE, 128, 2 * number)
    with pytest.raises(LogFormatError, match=r"only cpu-clock:u, page-faults:u\), .*: record"):
        read(bytes(data))


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
    return made, [r for i in range(3) for r in made.io(START + 10_000 * i, 64 * i)]


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


def test_perf_s_own_file_without_its_host_s_name() -> None:
    """GIVEN a file that perf wrote, with the section HOSTNAME empty; THEN its events are there."""
    whole = REAL.read_bytes()
    data = bytearray(whole)
    struct.pack_into("<Q", data, sections(whole)[Feature.HOSTNAME] + 8, 0)
    assert len(read(bytes(data))[1]) == len(read(whole)[1])


def test_the_formats_are_needed() -> None:
    """GIVEN the same file with its formats' section empty; THEN it is refused with a message."""
    data = bytearray(REAL.read_bytes())
    struct.pack_into("<Q", data, sections(bytes(data))[Feature.TRACING_DATA] + 8, 0)
    with pytest.raises(LogFormatError, match="formats of its events"):
        read(bytes(data))


def test_a_format_that_is_damaged_costs_its_event() -> None:
    """GIVEN a format of completions without an ID; THEN issues are read, and it is said."""
    made = Perf()
    records = [r for i in range(3) for r in made.io(START + 10_000 * i, 64 * i)]
    data = made.file(records)
    whole = len(read(data)[1])
    damaged = data.replace(b"name: block_rq_complete\nID: ", b"name: block_rq_complete\nIX: ")
    source, events = read(damaged)
    assert len(events) == whole - 3
    assert any("formats of some of its events" in problem for problem in source.problems)


@pytest.mark.parametrize("body", [b"", b"\x08", struct.pack("<Q", 1 << 40)])
def test_a_pipe_s_description_that_is_damaged(body: bytes) -> None:
    """GIVEN a pipe with a feature that perf does not have; THEN it is read, and that is said."""
    made = Perf()
    records = [r for i in range(3) for r in made.io(START + 10_000 * i, 64 * i)]
    whole = len(read(made.pipe(records))[1])
    source, events = read(made.pipe([made.record(FEATURE, body), *records]))
    assert len(events) == whole
    assert any("no section that perf has" in problem for problem in source.problems)
