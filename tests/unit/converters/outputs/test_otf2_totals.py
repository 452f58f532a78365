# SPDX-License-Identifier: Apache-2.0
"""An archive holds what the tables do: counts, bytes, latencies, attributes, counters.

Of every capture, and of a real recording; as the otf2 package reads the archive.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Certainty, Lifecycles, Requests
from biotrail.converters.outputs.counters import LEVEL_BIN, RATE_BIN
from biotrail.converters.outputs.otf2.convert import Otf2Summary, convert
from biotrail.converters.pipeline import Trace
from tests.support import captures
from tests.support.otf2_archives import (
    LOOP,
    VDA,
    Operation,
    assert_legal,
    bios,
    context,
    operations,
    otf2_print,
    window,
)

otf2 = pytest.importorskip("otf2")

RECORDED = "recorded"
SOURCES = [RECORDED, *sorted(path.stem for path in captures.DATA.glob("*.txt"))]
START = captures.BASE_NS

Rows = Iterator[tuple[str, Bios | Requests, int, Lifecycles]]


@pytest.fixture(params=SOURCES)
def converted(
    request: pytest.FixtureRequest, tmp_path: Path
) -> tuple[Otf2Summary, list[Lifecycles], Context]:
    """A log's archive, and the windows that it was made of."""
    if request.param == RECORDED:
        trace = Trace(str(files("biotrail") / "data" / "demo.biotrail"))
        windows = list(trace.lifecycles(window_events=2000))
    else:
        trace = Trace(captures.write_log(tmp_path / "a.biotrail", captures.load(request.param)))
        windows = list(trace.lifecycles(window_events=40))
    return convert(windows, trace.context, tmp_path / "a"), windows, trace.context


def rows(windows: list[Lifecycles], context: Context) -> Rows:
    """Every bio and request: its location's name, its table and row there, its window."""
    for some in windows:
        for layer, table in (("bios", some.bios), ("requests", some.requests)):
            for row in range(len(table)):
                yield f"{context.device_label(int(table.dev[row]))} {layer}", table, row, some


def begun(table: Bios | Requests) -> Any:
    return table.queue if isinstance(table, Bios) else table.start


Converted = tuple[Otf2Summary, list[Lifecycles], Context]


def expected_attributes(table: Bios | Requests, row: int, window: Lifecycles) -> dict[str, Any]:
    """What a row says beyond times and bytes, by the names that the archive has for it."""
    certainty = Certainty(int(table.certainty[row]))
    facts = [
        ("parent", int(table.parent[row]), table.parent[row] != NEVER),
        ("requeues", int(table.requeues[row]), table.requeues[row] > 0),
        ("certainty", certainty.name.lower(), certainty != Certainty.EXACT),
        ("doubtful", 1, bool(table.doubtful[row])),
    ]
    if isinstance(table, Bios):
        task = int(table.task[row])
        facts += [
            ("tid", int(table.tid[row]), table.tid[row] > 0),
            ("comm", window.tasks.comm[task] if task >= 0 else "", task >= 0),
            ("request", int(table.request[row]), table.request[row] != NEVER),
            ("fragments", int(table.fragments[row]), table.fragments[row] > 1),
        ]
    else:
        facts += [("bios", int(table.bios[row]), table.bios[row] > 1)]
    return {name: value for name, value, has in facts if has}


def all_attributes(operation: Operation) -> dict[str, Any]:
    return {name: value for said in operation.attributes.values() for name, value in said.items()}


def test_counts_bytes_latencies_and_attributes_are_the_tables(converted: Converted) -> None:
    # GIVEN a log's tables, summed by device and layer
    summary, windows, known = converted
    expected: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for place, table, row, _ in rows(windows, known):
        begin, complete = int(begun(table)[row]), int(table.complete[row])
        expected[place]["operations"] += 1
        expected[place]["asked"] += int(table.bytes[row])
        if complete != NEVER:
            expected[place]["done"] += int(table.done_bytes[row])
            expected[place]["latency"] += complete - begin if begin != NEVER else 0
    # WHEN the archive is read
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    read = operations(summary.anchor)
    for (place, _), operation in read.items():
        found[place]["operations"] += 1
        found[place]["asked"] += operation.asked
        if operation.done is not None:
            found[place]["done"] += operation.done
            seen = "truncated" not in operation.attributes.get("begin", {})
            times = dict(operation.events)
            found[place]["latency"] += (times["complete"] - times["begin"]) * seen
    # THEN the sums are the same, and neither reader has anything to warn of
    assert found == expected
    assert_legal(read)
    assert otf2_print(summary.anchor).count("IO_OPERATION_BEGIN") == len(read) > 0
    # AND every operation carries what its row says, and nothing that it does not
    elsewhere = {"op", "error", "truncated", "absorbed by", "own"}
    for place, table, row, some in rows(windows, known):
        said = all_attributes(read[place, int(table.number[row])])
        assert {n: v for n, v in said.items() if n not in elsewhere} == expected_attributes(
            table, row, some
        )


def test_a_stacked_devices_bios_name_the_ones_above(tmp_path: Path) -> None:
    # GIVEN a bio of a loop device, which is two on the disk below
    times = {"queue": START, "issue": START + 1, "complete": START + 9}
    above = {"number": 1, "dev": LOOP, **times}
    below = [{"number": number, "dev": VDA, "parent": 1, **times} for number in (2, 3)]
    # WHEN converted
    made = window(START, START + 99, bios(above, *below))
    found = operations(convert([made], context(), tmp_path / "a").anchor)
    # THEN those below name the one above, by its matching id
    parents = {
        key: operation.attributes.get("begin", {}).get("parent") for key, operation in found.items()
    }
    lower = "vda (254:0) bios"
    assert parents == {("loop1 (7:1) bios", 1): None, (lower, 2): 1, (lower, 3): 1}


def samples(anchor: Path) -> dict[str, list[tuple[int, int]]]:
    """(time, value) of each counter."""
    found: dict[str, list[tuple[int, int]]] = {}
    with otf2.reader.open(str(anchor)) as trace:
        for _, event in trace.events:
            if isinstance(event, otf2.events.Metric):
                found.setdefault(event.member.name, []).append((event.time, event.value))
    return found


def peaks_of(spans: list[tuple[int, int]]) -> dict[int, int]:
    """Number of the bin → the most spans (begin, end) at once, in bins where that changes."""
    steps = [(begin, 1) for begin, _ in spans] + [(end, -1) for _, end in spans]
    peaks: dict[int, int] = {}
    level = 0
    for time, step in sorted(steps, key=lambda one: (one[0], -one[1])):
        peaks[time // LEVEL_BIN] = max(peaks.get(time // LEVEL_BIN, 0), level, level + step)
        level += step
    return peaks


def test_counters_are_the_peaks_and_the_bytes_of_the_bios(tmp_path: Path) -> None:
    # GIVEN reads and writes over 50 ms, in two windows, one never issued and one never complete
    random = np.random.default_rng(3)
    made = [
        {
            "number": at,
            "opf": at % 2,
            "queue": START + int(queue),
            "issue": START + int(queue) + int(random.integers(0, 10**6)),
            "complete": START + int(queue) + int(random.integers(10**6, 5 * 10**6)),
            "done_bytes": 4096 * (1 + at % 3),
        }
        for at, queue in enumerate(np.sort(random.integers(0, 45 * 10**6, 300)))
    ]
    made[7]["issue"] = made[8]["complete"] = NEVER
    half, end = START + 25 * 10**6, START + 50 * 10**6
    early = [row for row in made if NEVER < row["complete"] < half]
    late = [row for row in made if row not in early]
    under_way = bios(*(row for row in late if row["queue"] < half))
    windows = [
        window(START, half, bios(*early), open_bios=under_way),
        window(half, end, bios(*late)),
    ]
    # WHEN converted
    anchor = convert(windows, context(), tmp_path / "a").anchor
    found = samples(anchor)
    # THEN each depth's sample of a millisecond is the most that there was in it
    last = max(row["complete"] for row in made)
    for row in made:
        row["end"] = row["complete"] if row["complete"] != NEVER else last
        row["left"] = row["issue"] if row["issue"] != NEVER else row["end"]
    for name, begin, until in (("queued", "queue", "left"), ("in device", "left", "end")):
        spans = [(row[begin], row[until]) for row in made if row[begin] < row[until]]
        values = dict(found[name])
        peaks = peaks_of(spans)
        held = 0
        for at in range(START // LEVEL_BIN, last // LEVEL_BIN):
            first = max(at * LEVEL_BIN, min(row["queue"] for row in made))
            held = values.get(first, held)
            assert held == peaks.get(at, held), (name, at)
        assert found[name][-1][1] == 0
    # AND throughput over all time is what reads and writes completed
    for name, op in (("reads", 0), ("writes", 1)):
        moved = sum(r["done_bytes"] for r in made if r["opf"] == op and r["complete"] != NEVER)
        # The last sample ends the trace, in the middle of its bin.
        bins = [time // RATE_BIN for time, _ in found[name][:-1]] + [last // RATE_BIN + 1]
        spans = zip(found[name], bins, bins[1:], strict=False)
        total = sum(value * (after - at) for (_, value), at, after in spans)
        assert total * RATE_BIN // 10**9 == moved
