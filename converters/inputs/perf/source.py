# SPDX-License-Identifier: Apache-2.0
"""perf.data as a source of events."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.foreign import without_block_events
from biotrail.converters.inputs.perf.facts import FEATURE_BITS, open_perf
from biotrail.converters.inputs.perf.layout import (
    ENDIAN,
    FIRST_OF_PERF,
    HEADER_BYTES,
    LAST_OF_KERNEL,
    LAST_OF_PERF,
    TRACEPOINT,
    ByteOrder,
    Cursor,
    RecordType,
    SampleType,
    read_attr,
)
from biotrail.converters.inputs.perf.records import PACKED, Block, RecordStream
from biotrail.converters.inputs.perf.samples import EventReader
from biotrail.converters.inputs.tracepoints import Batch, Loss, TracepointSource
from biotrail.converters.inputs.translate import THREAD_NAMES, TracepointRows
from biotrail.recorder.schema.errors import LogFormatError

_TYPES_NAMED = 8
_FOR_THREADS = ("-p", "--pid", "-t", "--tid", "-u", "--uid")
"""Options of perf record that limit it to some threads."""


class PerfSource(TracepointSource):
    """A file or stream of `perf record` as a Source."""

    def __init__(self, given: PathOrStream) -> None:
        """Open a path or stream, and make a log's header of what it says of itself.

        Of a pipe the records before the first sample are read for that. Raises LogFormatError: no
        perf.data, cut off before its formats, without block events, or not readable.
        """
        self._file, self._facts = open_perf(given)
        super().__init__(self._facts.where, "perf")
        self.size = self._facts.size
        self._events = EventReader(self._facts)
        self._others = OtherRecords(self._facts.order)
        self._repeats = Repeats()
        self._strays = Strays(self._events)
        self._gave_up = False
        self._first = self._newest = 0
        """ns of the samples so far; 0 before there is one."""
        self._complete_to = 0
        """ns up to which all is known; 0 before the second round."""
        self._stream = RecordStream(self._file, self._facts)
        blocks = self._stream.blocks()
        self._blocks = blocks if self.size >= 0 else self._begun(blocks)
        self._describe(self._check_events())

    def _begun(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Take what a pipe says of itself from the records up to the first sample."""
        read: list[Block] = []
        for block in blocks:
            read.append(block)
            types, sizes = block.half(block.at), block.size(block.at)
            described = np.isin(types, (RecordType.ATTR, RecordType.FEATURE))
            for row in np.flatnonzero(described).tolist():
                at = int(block.at[row])
                data = block.data[at + 8 : at + int(sizes[row])].tobytes()
                if types[row] == RecordType.ATTR:
                    attr = read_attr(data, self._facts.order, self.name)
                    ids = Cursor(data, self._facts.order, self.name)
                    ids.take(attr.size)
                    self._facts.add_event(attr, ids)
                    continue
                section = Cursor(data, self._facts.order, self.name)
                number = section.number(8) if section.rest >= 8 else FEATURE_BITS
                if number < FEATURE_BITS:
                    self._facts.add_feature(number, data[8:])
                    continue
                self.problem(
                    f"a record that describes the recording has {len(data)} bytes, and is of no "
                    "section that perf has: it is damaged; left out"
                )
            if (types == RecordType.SAMPLE).any():
                break
        return chain(read, blocks)

    def _check_events(self) -> dict[str, int]:
        """Return the tracepoints by name. Raises LogFormatError: none of them can be read."""
        facts, recorded = self._facts, self._events.tracepoints()
        # Tracepoints that have no format; and other events that record a tracepoint's data (RAW),
        # with a number that is a block event's.
        damaged = []
        for index, attr in enumerate(facts.events):
            known = facts.tracepoints.get(attr.config)
            of_block = known is not None and known.system == "block"
            raw = SampleType.RAW in attr.sample_type
            if known is None if attr.type == TRACEPOINT else raw and of_block:
                damaged.append(facts.name(index))
        if damaged:
            self.problem(
                "the formats of some of its events cannot be understood, so their samples are left "
                f"out: the file is damaged ({', '.join(damaged[:8])})"
            )
        if damaged and not recorded:
            raise LogFormatError(
                f"{self.name}: the formats of its events cannot be understood: the file is "
                "damaged; record again, or copy it again"
            )
        if not recorded:
            names = sorted({facts.name(index) for index in range(len(facts.events))})
            held = f"only {', '.join(names[:8])}" if names else ""
            raise without_block_events(self.name, self.tool, held)
        self.set_recorded(recorded)
        for name, index in recorded.items():
            if SampleType.TIME not in facts.events[index].sample_type:
                raise LogFormatError(
                    f"{self.name}: the samples of {name} have no time: record again, with "
                    "perf record -T"
                )
        return recorded

    def _describe(self, recorded: dict[str, int]) -> None:
        """Make a log's header, and remarks. recorded: events' indices by tracepoint."""
        facts, texts = self._facts, self._facts.texts
        host: dict[str, Any] = {k: texts[k] for k in ("name", "machine", "cpu_model") if k in texts}
        if facts.cpus:
            host["cpus"] = facts.cpus
        if host:
            self.header["host"] = host
        if "release" in texts:
            self.header["kernel"] = {"release": texts["release"]}
        if "version" in texts:
            self.header["created_by"] = f"perf {texts['version']}"
        if facts.command:
            self.header["command"] = facts.command
        if facts.clocks is not None:
            self.header["clocks"] = facts.clocks
        self.remarks += facts.unread
        block = [facts.events[index] for index in recorded.values()]
        options = {word.split("=")[0] for word in facts.command}
        if not options.isdisjoint(_FOR_THREADS) or any(attr.enable_on_exec for attr in block):
            self.remark(
                "perf recorded some threads alone: what other threads and interrupts did, most "
                "completions among it, is missing; record with `perf record -a`"
            )
        if any(attr.period != 1 for attr in block):
            self.remark(
                "perf was told to record a sample of the events (-c or -F), so most I/O has no "
                "beginning or no end; record without"
            )
        if "--filter" in options:
            self.remark("a filter (--filter) left events out; how many is not known")
        if facts.clocks is None:
            self.remark(
                "times are those of perf's own clock, and the wall-clock time is not known; "
                "`perf record -k CLOCK_MONOTONIC` records both"
            )

    def batches(self) -> Iterator[Batch]:
        """Yield each block's records.

        In each round perf reads all CPUs' rings one after the other, so what was recorded before a
        round began is there at its end: after a round all is known up to the newest record of the
        round before (ordered-events.c of perf).
        """
        at_last_round = 0
        for block in self._blocks:
            types = block.half(block.at)
            passed_over: Counter[str] = Counter()
            samples = block.at[types == RecordType.SAMPLE]
            read = self._events.rows(block, samples, passed_over)
            rows = [part for part in map(self._repeats.without, read) if len(part)]
            for end in block.rounds[-2:]:  # others cannot matter
                self._complete_to = max(self._complete_to, at_last_round)
                before = [part.time[part.arrival < block.start + end] for part in rows]
                reached = [int(times.max()) for times in before if len(times)]
                at_last_round = max([self._newest, *reached])
            self._stream.allowance.use(sum(map(len, rows)))
            if rows:
                self._newest = max(self._newest, *(int(part.time.max()) for part in rows))
                first = min(int(part.time.min()) for part in rows)
                self._first = min(self._first or first, first)
            for start, end in self._strays.find(block, types, rows):
                self.add_damage(block.offset, start, end)
            others = block.at[np.isin(types, READ)]
            trailer_at = self._facts.events[0].trailer_at  # by which all such records are read
            names, losses = self._others.read(block, others, trailer_at, rows)
            complete_to = self._complete_to
            yield Batch([*names, *rows], complete_to, block.offset, losses, passed_over)
            self._report()
        self._report()
        rest = self._others.rest(self._first, self._newest)
        yield Batch([], self._newest, self._stream.offset, rest)
        self._file.close()

    def _report(self) -> None:
        """Add to `problems`, `unreadable_bytes` and `damaged` what was found damaged.

        Where nothing can be read on, that is from what is known to be complete on.
        """
        self.problems += self._stream.problems
        self._stream.problems.clear()
        events = self._events.unreadable + self._events.behind
        self.unreadable_bytes = self._stream.unreadable + events + self._strays.bytes
        if self._stream.gave_up and not self._gave_up:
            self._gave_up = True
            start = min(max(self._complete_to, self._first), self._newest)
            self.add_damage(self._stream.offset, start, self._newest)

    def _report_rest(self) -> None:
        events, strays = self._events, self._strays
        if events.unreadable:
            self.problem(
                "left out: samples without a known event, or shorter than their event's record, or "
                f"with another event's, {events.unreadable} bytes"
            )
        if events.other_kinds:
            self.problem(
                "left out: samples that are of other tracepoints than their events say "
                f"({', '.join(events.other_kinds)}): the file is damaged"
            )
        if events.behind:
            self.problem(
                f"samples are longer than what they hold: {events.behind} bytes behind it, which "
                "may be other records, are not read: the file is damaged"
            )
        if strays.count:
            types = ", ".join(map(str, [*strays.types][:_TYPES_NAMED]))
            self.problem(
                f"left out: {strays.count} records that do not add up (types {types}), "
                f"{strays.bytes} bytes, the first before offset {strays.first}: the file is "
                "damaged, or of a newer perf than is known here"
            )
        if self._repeats.count:
            self.remark(
                f"{self._repeats.count} records are there twice, as perf sometimes writes them; "
                "the second ones were left out"
            )
        super()._report_rest()


# perf's records beside samples: names of threads, and what was lost.

_COMM_AT = HEADER_BYTES + 8
_MOST_COUNT = 1 << 62
_MISC_BPF_FILTER = 1 << 15
"""misc of LOST_SAMPLES: a filter left the samples out (PERF_RECORD_MISC_LOST_SAMPLES_BPF)."""
READ = (
    RecordType.LOST,
    RecordType.COMM,
    RecordType.THROTTLE,
    RecordType.UNTHROTTLE,
    RecordType.LOST_SAMPLES,
)
"""Types of the records that `OtherRecords` reads."""
_Name = tuple[int, int, int, int, bytes]
"""Arrival, time (ns), process, thread and name."""


class OtherRecords:
    """What records beside samples say, from block to block.

    lost: number of records that LOST records reported. lost_samples: of samples that LOST_SAMPLES
    records reported, which perf writes at the end, for the same losses and those after the last
    LOST record.
    """

    def __init__(self, order: ByteOrder) -> None:
        self._endian = ENDIAN[order]
        self.lost = self.lost_samples = 0
        self._newest: dict[int, int] = {}
        """Time (ns) of the newest sample so far, by CPU."""
        self._throttled: dict[int, int] = {}
        """Time (ns) since when a CPU's events are throttled."""
        self._early: list[_Name] = []
        """Names without a time, of threads that there were before."""

    def read(
        self, block: Block, at: I64, trailer_at: dict[SampleType, int], rows: list[TracepointRows]
    ) -> tuple[list[TracepointRows], list[Loss]]:
        """Return (names of threads, losses) by the records at `at`, of the types READ.

        trailer_at: of the records' last fields, as an Attr has it. rows: the block's samples; names
        without a time are given the time of the first.
        """
        names: list[_Name] = []
        losses: list[Loss] = []
        for start, size in zip(at.tolist(), block.size(at).tolist(), strict=True):
            record, arrival = block.data[start : start + size].tobytes(), block.start + start
            kind = int.from_bytes(record[:4], self._endian)
            time = self._number(record, size + trailer_at.get(SampleType.TIME, 0), 8)
            cpu = self._number(record, size + trailer_at.get(SampleType.CPU, 0), 4)
            if kind == RecordType.COMM and size >= _COMM_AT:
                pid = self._number(record, HEADER_BYTES, 4)
                tid = self._number(record, HEADER_BYTES + 4, 4)
                name = record[_COMM_AT:].split(b"\0")[0]
                (names if time else self._early).append((arrival, time, pid, tid, name))
            elif kind == RecordType.LOST_SAMPLES:
                if not int.from_bytes(record[4:6], self._endian) & _MISC_BPF_FILTER:
                    count = self._number(record, HEADER_BYTES, 8)
                    self.lost_samples += min(count, _MOST_COUNT)
            elif kind == RecordType.THROTTLE:
                self._throttled.setdefault(cpu, self._number(record, HEADER_BYTES, 8))
            elif kind == RecordType.UNTHROTTLE:
                end = self._number(record, HEADER_BYTES, 8)
                losses.append(Loss(min(self._throttled.pop(cpu, end), end), end, cpu, -1))
            elif kind == RecordType.LOST:
                # It comes with the first record that had room again: the loss was between that and
                # the CPU's record before.
                count = min(self._number(record, HEADER_BYTES + 8, 8), _MOST_COUNT)
                self.lost += count
                masks = [(part.cpu == cpu) & (part.arrival < arrival) for part in rows]
                times = [int(p.time[m].max()) for p, m in zip(rows, masks, strict=True) if m.any()]
                before = max([self._newest.get(cpu, 0), *times])
                time = time or before
                losses.append(Loss(min(before, time) or time, time, cpu, count))
        for part in rows:
            for cpu in np.unique(part.cpu).tolist():
                newest = int(part.time[part.cpu == cpu].max())
                self._newest[cpu] = max(self._newest.get(cpu, newest), newest)
        if first := [int(part.time.min()) for part in rows]:
            names = [(-1, min(first), *early[2:]) for early in self._early] + names
            self._early = []
        if not names:
            return [], losses
        *numbers, comm = zip(*names, strict=True)
        arrivals, when, pids, tids = (np.array(column, np.int64) for column in numbers)
        cpus = np.zeros(len(names), np.int64)
        columns = {"comm": np.array(comm, "S16")}
        return [TracepointRows(THREAD_NAMES, when, cpus, tids, arrivals, columns, pids)], losses

    def _number(self, record: bytes, place: int, count: int) -> int:
        """Return the `count` bytes at a place in a record; 0 behind its end."""
        if not HEADER_BYTES <= place <= len(record) - count:
            return 0
        found = int.from_bytes(record[place : place + count], self._endian)
        return found if found < 1 << 63 else 0

    def rest(self, first: int, last: int) -> list[Loss]:
        """Return the losses of which no record says when: samples that LOST records do not cover.

        first, last: of the recording (ns). Throttled events that were not resumed are lost to its
        end.
        """
        found = [Loss(min(since, last), last, cpu, -1) for cpu, since in self._throttled.items()]
        if self.lost_samples > self.lost:
            found.append(Loss(first, last, -1, self.lost_samples - self.lost))
        return found


# Records that a recording has twice.
#
# `perf record` (seen with 6.1, mostly with -z) now and then writes the last records of a ring again
# at the beginning of the next round, byte for byte, so that `perf script` shows them twice as well.
# Two records of one CPU, time (ns), thread and event with the same fields are one: the kernel does
# not get through two of them in a nanosecond.

_KEPT = 256


class Repeats:
    """Finds repeated records, block after block. count: how many were left out."""

    def __init__(self) -> None:
        self.count = 0
        self._newest: dict[tuple[str, int], TracepointRows] = {}
        """The last _KEPT records of an event and CPU in the blocks before."""

    def without(self, rows: TracepointRows) -> TracepointRows:
        repeated = np.zeros(len(rows), np.bool_)
        times = np.sort(rows.time)
        twice = times[1:][times[1:] == times[:-1]]
        if len(twice):
            among = np.flatnonzero(np.isin(rows.time, twice))
            keys = [column[among] for column in (rows.arrival, rows.pid, rows.cpu, rows.time)]
            order = among[np.lexsort(keys)]
            one, other = order[:-1], order[1:]
            alike = (rows.time[one] == rows.time[other]) & (rows.cpu[one] == rows.cpu[other])
            pairs = np.flatnonzero(alike & (rows.pid[one] == rows.pid[other]))
            for column in rows.columns.values():
                pairs = pairs[column[one[pairs]] == column[other[pairs]]]
            repeated[other[pairs]] = True
        for (event, cpu), newest in self._newest.items():
            if event == rows.event:
                late = (rows.cpu == cpu) & (rows.time <= newest.time.max())
                at = np.flatnonzero(late & np.isin(rows.time, newest.time))
                if len(at):
                    known = set(_records(newest, np.arange(len(newest))))
                    repeated[at] |= [record in known for record in _records(rows, at)]
        found = int(np.count_nonzero(repeated))
        self.count += found
        kept = rows.without(repeated) if found else rows
        for cpu in np.unique(kept.cpu).tolist():
            older = np.ones(len(kept), np.bool_)
            older[np.flatnonzero(kept.cpu == cpu)[-_KEPT:]] = False
            self._newest[rows.event, cpu] = kept.without(older)
        return kept


def _records(rows: TracepointRows, at: I64) -> list[tuple[object, ...]]:
    columns = (rows.time, rows.cpu, rows.pid, *rows.columns.values())
    return list(zip(*(column[at].tolist() for column in columns), strict=True))


# Types that do not exist, and samples under another type. A record's type and size are held against
# what perf and the kernel write, and records of other types against the samples: one that is a
# sample in every field, but for its type, is damaged.

_SIZES: dict[int, tuple[int, int]] = {
    RecordType.FINISHED_ROUND: (8, 8),
    RecordType.FINISHED_INIT: (8, 8),
    RecordType.TRACING_DATA: (12, 16),
    RecordType.STAT_ROUND: (24, 24),
    RecordType.STAT: (40, 40),
    RecordType.TIME_CONV: (32, 56),
    RecordType.AUXTRACE: (48, 48),
}
_FIRST_WORD: dict[int, int] = {
    RecordType.FEATURE: 255,
    RecordType.EVENT_UPDATE: 4,
    RecordType.AUXTRACE_INFO: 255,
    RecordType.AUXTRACE_ERROR: 255,
    RecordType.CPU_MAP: 0xFFFF,
}
_EACH: dict[int, int] = {
    RecordType.ID_INDEX: 32,
    RecordType.THREAD_MAP: 24,
    RecordType.STAT_CONFIG: 16,
}
"""Bytes of each entry, of which the first 8 bytes of a record's body say the number."""
_UNALIGNED = (RecordType.TRACING_DATA, RecordType.FEATURE)
"""Records whose sizes need not be multiples of 8, but for packed ones."""
_ANY_END = (RecordType.SAMPLE, 17, 18)
"""A sample, and KSYMBOL and BPF_EVENT: where several events get one of these, the kernel adds the
trailer's size anew for each (perf_event_ksymbol_output), so bytes follow the trailer."""
Window = tuple[int, int]


class Strays:
    """Finds such records, block after block. count, bytes: of all so far; types: of those, some."""

    def __init__(self, events: EventReader) -> None:
        self._events = events
        self._newest = 0
        self.count = self.bytes = 0
        self.first = -1
        """Bytes of the recording that were read when the first was met; -1: there is none."""
        self.types: dict[int, None] = {}

    def find(self, block: Block, types: I64, rows: Sequence[TracepointRows]) -> list[Window]:
        """Return when what such records held was recorded, a window for each run of them.

        It reaches from the sample before to the one behind, and takes in the times of those that
        are samples by all but their types. Rings of several CPUs follow each other, so either may
        be the older.
        """
        # A type that is none, or a size or number that none has. Packed records stand in blocks
        # only if they cannot be unpacked.
        kernel = (types > 0) & (types <= LAST_OF_KERNEL)
        odd: Bool = ~(kernel | ((types >= FIRST_OF_PERF) & (types <= LAST_OF_PERF)))
        size = block.size(block.at)
        for kind in np.flatnonzero(np.bincount(types[~odd], minlength=1)).tolist():
            if kind == RecordType.SAMPLE:
                continue
            of = np.flatnonzero(types == kind)
            least, most = _SIZES.get(kind, (2 * HEADER_BYTES, 1 << 16))
            odd[of] = (size[of] < least) | (size[of] > most)
            odd[of] |= (size[of] & 7 != 0) & (kind not in _UNALIGNED)
            of = of[~odd[of]]
            if kind in _FIRST_WORD:
                odd[of] = block.half(block.at[of] + HEADER_BYTES) > _FIRST_WORD[kind]
            if kind in _EACH:
                count = block.wide(block.at[of] + HEADER_BYTES)
                odd[of] = (count < 0) | (count > size[of] // _EACH[kind])
        odd |= np.isin(types, PACKED)
        hidden, time = np.zeros(len(types), np.bool_), np.zeros(len(types), np.int64)
        others = np.flatnonzero(types != RecordType.SAMPLE)
        hidden[others], time[others] = self._events.hidden(block, block.at[others])
        odd |= hidden
        others = np.flatnonzero((types < FIRST_OF_PERF) & ~np.isin(types, _ANY_END) & ~odd)
        odd[others] = ~self._events.has_trailer(block, block.at[others])
        found: list[Window] = []
        if odd.any():
            self.first = block.offset if self.first < 0 else self.first
            self.count += int(np.count_nonzero(odd))
            self.bytes += int(block.size(block.at[odd]).sum())
            self.types |= dict.fromkeys(types[odd][:64].tolist())
            none = np.zeros(0, np.int64)
            arrival = np.concatenate([none, *(part.arrival for part in rows)])
            times = np.concatenate([none, *(part.time for part in rows)])
            order = np.argsort(arrival)
            arrival, times = arrival[order], times[order]
            edges = np.flatnonzero(np.diff(odd.astype(np.int8), prepend=0, append=0)).tolist()
            for begin, end in zip(edges[::2], edges[1::2], strict=True):
                at = int(np.searchsorted(arrival, block.start + int(block.at[begin])))
                near = times[max(at - 1, 0) : at + 1].tolist() + ([] if at else [self._newest])
                near += time[begin:end][hidden[begin:end]].tolist()
                near = [one for one in near if one > 0] or [0]
                found.append((min(near), max(near)))
        newest = [int(part.time.max()) for part in rows]
        self._newest = max([self._newest, *newest])
        return found
