# SPDX-License-Identifier: Apache-2.0
"""Whether conversion takes twice as long for a log that is twice as long, load by load.

    python -m benchmarks.growth [--events 9000] [--doublings 3] [--json FILE]

Logs of merge-, split- and flush-heavy loads are made of a simulated stretch that is repeated, once
for each event set, and are converted to Perfetto traces: CPU time per event at n, 2n, 4n, 8n.
Each ends with one fsync, which once made some take a time that grew with the square. Figures are
for the machine that they are printed with; it needs no root.
"""

import argparse
import io
import json
import os
import platform
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from biotrail.converters.outputs.perfetto import convert as perfetto
from biotrail.converters.pipeline import Trace
from tests.support.heavy_loads import EVENT_SETS, LOADS, Stretch, log_of, stretch

REPEATS = 3
"""The least of so many is taken: others run on the machine as well."""
ASSOCIATIONS = ("identity", "intervals")


@dataclass
class Row:
    """One load, event set and way of associating; seconds: CPU time by number of events."""

    load: str
    event_set: str
    associate: str
    events: list[int]
    seconds: list[float]

    @property
    def growth(self) -> float:
        """CPU time per event at the last doubling: behind over before. 1: linear, 2: square."""
        each = [s / n for s, n in zip(self.seconds, self.events, strict=True)]
        return each[-1] / each[-2]

    def __str__(self) -> str:
        each = [1e6 * s / n for s, n in zip(self.seconds, self.events, strict=True)]
        text = "".join(f"{us:9.2f}" for us in each)
        return f"{self.load:16}{self.event_set:20}{self.associate:11}{text}{self.growth:9.2f}"


def cpu_seconds(log: io.BytesIO, associate: str) -> float:
    """CPU time of one conversion to a Perfetto trace, the least of REPEATS."""
    found = []
    for _ in range(REPEATS):
        log.seek(0)
        before = time.process_time()
        trace = Trace(log, associate)
        with open(os.devnull, "wb") as nowhere:
            perfetto.convert(trace.lifecycles(), trace.context, nowhere)
        found.append(time.process_time() - before)
    return min(found)


def measure(load: str, event_set: str, associate: str, sizes: list[int]) -> Row:
    one: Stretch = stretch(load, EVENT_SETS[event_set])
    last = stretch(load, EVENT_SETS[event_set], fsync=True)
    row = Row(load, event_set, associate, [], [])
    for size in sizes:
        log, events = log_of(one, size, last)
        row.events.append(events)
        row.seconds.append(cpu_seconds(log, associate))
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=9000, help="of the shortest log")
    parser.add_argument("--doublings", type=int, default=3, help="how often it is doubled")
    parser.add_argument("--json", type=Path, help="write the figures there as well")
    arguments = parser.parse_args()
    sizes = [arguments.events << n for n in range(arguments.doublings + 1)]
    print(f"{platform.node()}, Linux {platform.release()}, {os.cpu_count()} CPUs")
    print("CPU time in us per event, log to Perfetto trace, by number of events")
    print("growth: of the CPU time per event at the last doubling; 1.00 is linear, 2.00 the square")
    print(f"{'load':16}{'events':20}{'by':11}" + "".join(f"{n:9,}" for n in sizes) + "   growth")
    rows = []
    measure("merges", "all", "intervals", sizes[:1])  # what is imported and set up once
    for load in LOADS:
        for event_set in EVENT_SETS:
            for associate in ASSOCIATIONS:
                rows.append(measure(load, event_set, associate, sizes))
                print(rows[-1], flush=True)
    if arguments.json is not None:
        found = [asdict(row) | {"growth": row.growth} for row in rows]
        arguments.json.write_text(json.dumps({"machine": platform.node(), "rows": found}, indent=2))


if __name__ == "__main__":
    main()
