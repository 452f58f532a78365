# SPDX-License-Identifier: Apache-2.0
"""Text as blkparse prints it, and the events that are read of it."""

import io
from collections import Counter

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.blkparse.source import BlkparseSource
from biotrail.converters.inputs.log import Source
from biotrail.converters.inputs.opening import open_source
from biotrail.recorder.schema.records import BY_KIND, Kind
from tests.support import paths
from tests.support.sources import everything

DATA = paths.DATA / "blktrace"
SDA = 8 << 20


def text(*lines: str) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def line(number: int, rest: str, *, time: int = -1, dev: str = "8,0", cpu: int = 0) -> str:
    """A line of the default format; rest: from the action on. time: ns, by default 1 µs each."""
    time = number * 1000 if time < 0 else time
    seconds, ns = divmod(time, 10**9)
    return f"{dev:>7} {cpu:2d} {number:8d} {seconds:5d}.{ns:09d}    42 {rest}"


def io_lines(number: int, sector: int, **at: int) -> list[str]:
    """One read of 8 sectors: Q, G, I, D, C."""
    bodies = [f" {act}   R {sector} + 8 [dd]" for act in "QGID"] + [f" C   R {sector} + 8 [0]"]
    return [line(number + i, body, **at) for i, body in enumerate(bodies)]  # type: ignore[arg-type]


def source_of(data: bytes) -> BlkparseSource:
    source = open_source(io.BytesIO(data))
    assert isinstance(source, BlkparseSource)
    return source


def events_of(source: Source) -> Events:
    """Without names of threads."""
    events = everything(source)
    return events.take(np.flatnonzero(events.kind != Kind.TASK))


def spelled(events: Events) -> str:
    """The events' letters."""
    return "".join(BY_KIND[Kind(kind)].letter for kind in events.kind.tolist())


def contents(events: Events) -> Counter[tuple[int, ...]]:
    """The records but for their order, times from the first on."""
    words = events.raw.copy()
    words[:, 0] = events.kind
    times = (events.ts - events.ts.min(initial=1 << 62)).tolist()
    rows = map(tuple, words.tolist())
    return Counter(
        (t, cpu, *row) for t, cpu, row in zip(times, events.cpu.tolist(), rows, strict=True)
    )
