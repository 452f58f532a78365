# SPDX-License-Identifier: Apache-2.0
"""Captured sequences as OTF2 archives: whole archives, and each against the tables."""

from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Lifecycles, Requests
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.golden_files import Expect
from tests.support.otf2_archives import Operation, assert_legal, operations, otf2_print

otf2 = pytest.importorskip("otf2")

EXPECTED = Path(__file__).parent / "otf2"
NAMES = sorted(path.stem for path in captures.DATA.glob("*.txt"))
WHOLE = ["bio-based-zram", "discard-split-loop", "partial-completion-error-loop"]
WHOLE += ["partition-remap-loop", "plugged-merge-loop"]


def convert_capture(name: str, directory: Path) -> tuple[Otf2Summary, list[Lifecycles], Context]:
    log = captures.write_log(directory / "a.biotrail", captures.load(name), chunks=3)
    trace = Trace(log)
    windows = list(trace.lifecycles(window_events=50))
    return convert(windows, trace.context, directory / "archive"), windows, trace.context


def as_text(anchor: Path) -> str:
    """An archive's definitions and events, an item a line, as the otf2 package reads them."""
    lines = []
    with otf2.reader.open(str(anchor)) as trace:
        known = trace.definitions
        clock = known.clock_properties
        lines.append(f"clock {clock.timer_resolution} Hz, {clock.trace_length} ns long")
        lines.append(f"clock {clock.global_offset} is {clock.realtime_timestamp}")
        for node in known.system_tree_nodes:
            above = node.parent.name if node.parent else "-"
            lines.append(f"node {node.class_name} {node.name!r} in {above!r}")
        for fact in known.system_tree_node_properties:
            lines.append(f"fact {fact.system_tree_node.name!r} {fact.name}={fact.value}")
        for place in known.locations:
            above = place.group.system_tree_parent.name
            lines.append(f"location {place.name!r} in {above!r}: {place.number_of_events} events")
        for handle in known.io_handles:
            above = handle.parent.name if handle.parent else "-"
            kind = handle.io_paradigm.identification
            lines.append(f"handle {handle.name!r} {kind} {handle.file.name} under {above!r}")
        for attribute in known.attributes:
            lines.append(f"attribute {attribute.name!r}: {attribute.description}")
        for _, event in trace.events:
            if isinstance(event, otf2.events.Metric):
                lines.append(sample_text(event))
    for (place, number), operation in operations(anchor).items():
        lines.append(f"{place} #{number} {operation_text(operation)}")
    return "\n".join(lines) + "\n"


def sample_text(event: Any) -> str:
    member, scope = event.member, event.metric.scope.name
    at = (event.time - captures.BASE_NS) / 1000
    return f"counter {scope} {member.name} {event.value} {member.unit} @{at:.3f}"


def operation_text(operation: Operation) -> str:
    """One operation, with its times from the sequence's start in microseconds."""
    way = " blocking" if operation.blocking else ""
    done = "" if operation.done is None else f" done {operation.done}"
    events = " ".join(
        f"{kind}@{(at - captures.BASE_NS) / 1000:.3f}{operation.attributes.get(kind, '')}"
        for kind, at in operation.events
    )
    where = f"{operation.sector} bytes {operation.asked}{done}"
    return f"{operation.mode}{way} via {operation.handle!r} sector {where}: {events}"


@pytest.mark.parametrize("name", WHOLE)
def test_a_whole_archive(name: str, tmp_path: Path, expect: Expect) -> None:
    # GIVEN a capture / WHEN it is converted and read
    summary, _, _ = convert_capture(name, tmp_path)
    found = as_text(summary.anchor)
    # THEN the archive is the expected one, to the last event
    expect(EXPECTED / f"{name}.txt", found)


def expected_events(table: Bios | Requests, row: int, begin: int) -> list[tuple[str, int]]:
    issue = [("issued", int(table.issue[row]))] if table.issue[row] != NEVER else []
    return [("begin", begin), *issue, ("complete", int(table.complete[row]))]


@pytest.mark.parametrize("name", NAMES)
def test_an_archive_holds_what_the_tables_say(name: str, tmp_path: Path) -> None:
    # GIVEN a capture, associated in several windows
    summary, windows, context = convert_capture(name, tmp_path)
    # WHEN its archive is read
    found = operations(summary.anchor)
    # THEN every bio and request is there once, with its bytes and its times
    seen = 0
    for layer in ("bios", "requests"):
        for window in windows:
            table = getattr(window, layer)
            for row in range(len(table)):
                place = f"{context.device_label(int(table.dev[row]))} {layer}"
                operation = found[place, int(table.number[row])]
                seen += 1
                assert operation.asked == table.bytes[row]
                begin = int((table.queue if layer == "bios" else table.start)[row])
                if table.complete[row] != NEVER and begin != NEVER:
                    assert operation.events == expected_events(table, row, begin)
                    assert operation.done == table.done_bytes[row]
                else:
                    assert "truncated" in str(operation.attributes)
    assert seen == len(found) == summary.bios + summary.requests > 0
    # THEN OTF2's rules hold, nothing was moved, and otf2-print finds nothing to warn of
    assert_legal(found)
    assert summary.moved == 0
    printed = otf2_print(summary.anchor)
    assert printed.count("IO_OPERATION_BEGIN") == len(found)
