# SPDX-License-Identifier: Apache-2.0
"""The pure part of `record_cost.py`: what tools say, medians of paired slices, the table."""

import mmap
import re
import statistics
import struct
from collections.abc import Sequence
from dataclasses import dataclass

BLK_TRACE = struct.Struct("<IIQQIIIIIHH")
BLK_MAGIC = 0x65617400
"""struct blk_io_trace and the upper 24 bits of its magic (include/uapi/linux/blktrace_api.h)."""
BLK_TC_NOTIFY = 1 << 10

PERF_DATA = 40
"""Where perf.data's header has the offset and size of its records."""
PERF_HEAD = struct.Struct("<IHH")
PERF_SAMPLE = 9
PERF_LOST = {2: 16, 13: 8}
"""Where a LOST and a LOST_SAMPLES record have their count (include/uapi/linux/perf_event.h)."""


@dataclass(frozen=True)
class Account:
    """What a tool wrote in one run: events, events it says it lost, bytes of its output."""

    events: int = 0
    lost: int = 0
    size: int = 0


@dataclass(frozen=True)
class Slice:
    """One stretch of the load. work: units of 4 KiB done; the others in ns.

    load_cpu_ns: CPU time of the load's process; tool_cpu_ns: of the tool beside it.
    """

    work: float
    ns: int
    load_cpu_ns: int
    tool_cpu_ns: int = 0

    @property
    def rate(self) -> float:
        return self.work * 1e9 / self.ns

    @property
    def per_cpu(self) -> float:
        """Units per second of the load's CPU time: other loads on the machine matter less."""
        return self.work * 1e9 / max(self.load_cpu_ns, 1)


@dataclass(frozen=True)
class Pair:
    """A traced slice between two untraced ones, and the whole run's account and length in ns."""

    before: Slice
    traced: Slice
    after: Slice
    account: Account
    run_ns: int


@dataclass(frozen=True)
class Row:
    """One tool at one load; medians over the pairs. Percentages are of 100; None: no figure.

    lost_share: events lost of all that there were. tool_ns: CPU ns of the tool per event.
    """

    load: str
    tool: str
    skipped: str = ""
    pairs: int = 0
    base_rate: float | None = None
    rate: float | None = None
    rate_lost: float | None = None
    rate_lost_low: float | None = None
    rate_lost_high: float | None = None
    load_cpu_more: float | None = None
    tool_cpu: float | None = None
    tool_ns: float | None = None
    events_rate: float | None = None
    lost_share: float | None = None
    bytes_per_event: float | None = None


def words(text: str) -> list[str]:
    return text.split(",")


def numbers(text: str) -> list[int]:
    return [int(word) for word in words(text)]


def reduction(traced: float, before: float, after: float) -> float:
    """How many percent less `traced` is than the mean of what surrounds it."""
    base = (before + after) / 2
    return 100 * (1 - traced / base) if base else 0.0


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """The lower and the upper one; of a single value, that value."""
    if len(values) == 1:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def summarize(load: str, tool: str, pairs: Sequence[Pair]) -> Row:
    """Medians of all pairs of one tool at one load."""
    if not pairs:
        return Row(load, tool, skipped="no slice was measured")
    less = [reduction(p.traced.rate, p.before.rate, p.after.rate) for p in pairs]
    cheap = [reduction(p.traced.per_cpu, p.before.per_cpu, p.after.per_cpu) for p in pairs]
    # x % less work per CPU second is 1 / (1 - x) times the CPU time per unit of work.
    more = [100 * (100 / (100 - c) - 1) for c in cheap if c < 100]
    cpu = [p.traced.tool_cpu_ns / p.traced.ns for p in pairs]
    rates = [p.account.events * 1e9 / p.run_ns for p in pairs]
    events = sum(p.account.events for p in pairs)
    lost = sum(p.account.lost for p in pairs)
    per_event = [c * 1e9 / r for c, r in zip(cpu, rates, strict=True) if r]
    low, high = quartiles(less)
    median = statistics.median
    return Row(
        load,
        tool,
        pairs=len(pairs),
        base_rate=median([s.rate for p in pairs for s in (p.before, p.after)]),
        rate=median([p.traced.rate for p in pairs]),
        rate_lost=median(less),
        rate_lost_low=low,
        rate_lost_high=high,
        load_cpu_more=median(more) if more else None,
        tool_cpu=100 * median(cpu),
        tool_ns=median(per_event) if per_event else None,
        events_rate=median(rates),
        lost_share=100 * lost / (events + lost) if events + lost else None,
        bytes_per_event=sum(p.account.size for p in pairs) / events if events else None,
    )


HEAD = (
    f"{'load, tool':34}{'base/s':>10}{'traced/s':>10}{'less %':>8}{'quartiles':>14}"
    f"{'load CPU':>9}{'tool CPU':>9}{'ns/ev':>7}{'events/s':>11}{'lost %':>8}{'B/ev':>7}"
)


def line(row: Row) -> str:
    name = f"  {row.tool}"
    if row.skipped:
        return f"{name:34}skipped: {row.skipped[:120]}"
    low, high = row.rate_lost_low or 0.0, row.rate_lost_high or 0.0
    between = f"{low:.1f}..{high:.1f}"
    return (
        f"{name:34}{number(row.base_rate, 10, 0)}{number(row.rate, 10, 0)}"
        f"{number(row.rate_lost, 8, 1)}"
        f"{between:>14}{number(row.load_cpu_more, 8, 1)}%{number(row.tool_cpu, 8, 1)}%"
        f"{number(row.tool_ns, 7, 0)}{number(row.events_rate, 11, 0)}{number(row.lost_share, 8, 3)}"
        f"{number(row.bytes_per_event, 7, 1)}"
    )


def number(value: float | None, width: int, digits: int) -> str:
    """Right-aligned, thousands apart; "-" for none."""
    return f"{'-':>{width}}" if value is None else f"{value:>{width},.{digits}f}"


def parse_biotrail(said: str, size: int) -> Account:
    found = (
        re.search(form, said) for form in (r"(\d[\d,]*) events? in ", r"LOST (\d[\d,]*) events?")
    )
    events, lost = (int(one[1].replace(",", "")) if one else 0 for one in found)
    return Account(events, lost, size)


def count_perf_data(data: bytes | mmap.mmap) -> Account:
    """Samples, and what LOST and LOST_SAMPLES records say, of a perf.data file."""
    if data[:8] != b"PERFILE2":
        raise ValueError("no perf.data")
    at, length = struct.unpack_from("<QQ", data, PERF_DATA)
    end, events, lost = at + length, 0, 0
    while at + PERF_HEAD.size <= end:
        kind, _, size = PERF_HEAD.unpack_from(data, at)
        if kind == PERF_SAMPLE:
            events += 1
        elif kind in PERF_LOST:
            lost += struct.unpack_from("<Q", data, at + PERF_LOST[kind])[0]
        if not size:
            raise ValueError(f"a record of no length at offset {at}")
        at += size
    return Account(events, lost, len(data))


def parse_lines(events: int, said: str, size: int) -> Account:
    """A tool that prints a line per event and "Lost N events" among its messages."""
    return Account(events, sum(int(n) for n in re.findall(r"Lost (\d+) events", said)), size)


def count_blk_trace(data: bytes) -> int:
    """Block events in the kernel blk tracer's binary stream; messages are none."""
    count = at = 0
    while at + BLK_TRACE.size <= len(data):
        magic, _, _, _, _, action, _, _, _, _, more = BLK_TRACE.unpack_from(data, at)
        if magic & 0xFFFFFF00 != BLK_MAGIC:
            raise ValueError(f"no blk_io_trace at offset {at}")
        count += not action >> 16 & BLK_TC_NOTIFY
        at += BLK_TRACE.size + more
    return count


def parse_ring_stats(text: str) -> int:
    """Events that a CPU's ftrace buffer lost: per_cpu/cpuN/stats."""
    return sum(int(n) for n in re.findall(r"^(?:overrun|dropped events): (\d+)", text, re.M))
