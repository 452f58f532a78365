# SPDX-License-Identifier: Apache-2.0
"""perf.data as a source of events."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Literal

import numpy as np

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.foreign import without_block_events
from biotrail.converters.inputs.perf.facts import FEATURE_BITS, open_perf
from biotrail.converters.inputs.perf.layout import (
    HEADER_BYTES,
    ByteOrder,
    Cursor,
    RecordType,
    SampleLayout,
    SampleType,
    read_attr,
)
from biotrail.converters.inputs.perf.records import Block, RecordStream
from biotrail.converters.inputs.perf.samples import EventReader, Words
from biotrail.converters.inputs.perf.strays import Repeats, Strays
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
        self._rounds = Rounds()
        self._repeats = Repeats()
        self._strays = Strays(self._events)
        self._gave_up = False
        self._first = 0
        self._newest = 0
        self._stream = RecordStream(self._file, self._facts)
        blocks = self._stream.blocks()
        self._blocks = blocks if self.size >= 0 else self._begun(blocks)
        self.header.update(self._facts.header_facts())
        self._check_events()
        self._remark_limits()

    def _begun(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Take what a pipe says of itself from the records up to the first sample."""
        read: list[Block] = []
        for block in blocks:
            read.append(block)
            words = Words(block.data, self._facts.order)
            types, sizes = words.half(block.at), words.size(block.at)
            for row in np.flatnonzero(
                np.isin(types, (RecordType.ATTR, RecordType.FEATURE))
            ).tolist():
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

    def _check_events(self) -> None:
        recorded = self._events.tracepoints()
        damaged = self._facts.damaged_events()
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
            names = sorted({self._facts.name(i) for i in range(len(self._facts.events))})
            held = f"only {', '.join(names[:8])}" if names else ""
            raise without_block_events(self.name, self.tool, held)
        self.set_recorded(recorded)
        for name, index in recorded.items():
            if SampleType.TIME not in self._facts.events[index].sample_type:
                raise LogFormatError(
                    f"{self.name}: the samples of {name} have no time: record again, with "
                    "perf record -T"
                )

    def _remark_limits(self) -> None:
        self.remarks += self._facts.unread
        block = [self._facts.events[index] for index in self._events.tracepoints().values()]
        options = {word.split("=")[0] for word in self._facts.command}
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
        if self._facts.clocks is None:
            self.remark(
                "times are those of perf's own clock, and the wall-clock time is not known; "
                "`perf record -k CLOCK_MONOTONIC` records both"
            )

    def batches(self) -> Iterator[Batch]:
        for block in self._blocks:
            yield self._batch(block)
            self._report()
        self._report()
        rest = self._others.rest(self._first, self._newest)
        yield Batch([], self._newest, self._stream.offset, rest)
        self._file.close()

    def _batch(self, block: Block) -> Batch:
        words = Words(block.data, self._facts.order)
        types = words.half(block.at)
        passed_over: Counter[str] = Counter()
        rows = self._events.rows(block, words, block.at[types == RecordType.SAMPLE], passed_over)
        rows = [self._repeats.without(part) for part in rows]
        self._rounds.add(rows, block.start, block.rounds)
        self._stream.allowance.use(sum(map(len, rows)))
        if rows:
            newest = max(int(part.time.max()) for part in rows)
            first = min(int(part.time.min()) for part in rows)
            self._first = min(self._first or first, first)
            self._newest = max(self._newest, newest)
        for start, end in self._strays.find(block, words, types, rows):
            self.add_damage(block.offset, start, end)
        others = block.at[np.isin(types, READ)]
        names, losses = self._others.read(block, words, others, self._events.any_layout, rows)
        complete_to = self._rounds.complete_to
        return Batch([*names, *rows], complete_to, block.offset, losses, passed_over)

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
            start = min(max(self._rounds.complete_to, self._first), self._newest)
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


class Rounds:
    """The times that the rounds reached.

    In each round perf reads all CPUs' rings one after the other, so what was recorded before a
    round began is there at its end: after a round all is known up to the newest record of the round
    before (ordered-events.c of perf).
    """

    def __init__(self) -> None:
        self._newest = self._at_last_round = 0
        self.complete_to = 0
        """ns; 0 before the second round."""

    def add(self, rows: Sequence[TracepointRows], start: int, ends: Sequence[int]) -> None:
        """Take in a block's records, and where in it rounds ended.

        rows: with positions (`arrival`) that begin at `start`. ends: offsets from there, ascending.
        Only the last two can matter.
        """
        for end in ends[-2:]:
            self.complete_to = max(self.complete_to, self._at_last_round)
            before = [part.time[part.arrival < start + end] for part in rows]
            reached = [int(times.max()) for times in before if len(times)]
            self._at_last_round = max([self._newest, *reached])
        newest = [int(part.time.max()) for part in rows if len(part)]
        self._newest = max([self._newest, *newest])


class OtherRecords:
    """What records beside samples say, from block to block.

    lost: number of records that LOST records reported. lost_samples: of samples that LOST_SAMPLES
    records reported, which perf writes at the end, for the same losses and those after the last
    LOST record.
    """

    def __init__(self, order: ByteOrder) -> None:
        self._endian: Literal["little", "big"] = "little" if order == "<" else "big"
        self.lost = self.lost_samples = 0
        self._newest: dict[int, int] = {}
        """Time (ns) of the newest sample so far, by CPU."""
        self._throttled: dict[int, int] = {}
        """Time (ns) since when a CPU's events are throttled."""
        self._early: list[tuple[int, int, bytes]] = []
        """Names without a time, of threads that there were before: (process, thread, name)."""

    def read(
        self, block: Block, words: Words, at: I64, layout: SampleLayout, rows: list[TracepointRows]
    ) -> tuple[list[TracepointRows], list[Loss]]:
        """Return (names of threads, losses) by the records at `at`, of the types READ.

        rows: the block's samples; names without a time are given the time of the first. layout: by
        which the records' last fields are laid out.
        """
        names: list[tuple[int, int, int, int, bytes]] = []
        losses: list[Loss] = []
        for start in at.tolist():
            size = int(words.size(np.array([start]))[0])
            record = _Record(block.data[start : start + size].tobytes(), self._endian, layout)
            arrival = block.start + start
            if record.type != RecordType.COMM:
                losses += self._losses(record, arrival, rows)
            elif size >= _COMM_AT:
                pid, tid = record.number(HEADER_BYTES, 4), record.number(HEADER_BYTES + 4, 4)
                name = record.data[_COMM_AT:].split(b"\0")[0]
                if record.time:
                    names.append((arrival, record.time, pid, tid, name))
                else:
                    self._early.append((pid, tid, name))
        for part in rows:
            for cpu in np.unique(part.cpu).tolist():
                newest = int(part.time[part.cpu == cpu].max())
                self._newest[cpu] = max(self._newest.get(cpu, newest), newest)
        return self._names(names, rows), losses

    def _names(
        self, names: list[tuple[int, int, int, int, bytes]], rows: list[TracepointRows]
    ) -> list[TracepointRows]:
        """Return rows of names: of (arrival, ns, process, thread, name), and the early ones."""
        first = min((int(part.time.min()) for part in rows if len(part)), default=None)
        if first is not None:
            names = [(-1, first, *early) for early in self._early] + names
            self._early = []
        if not names:
            return []
        *numbers, comm = zip(*names, strict=True)
        arrival, time, pid, tid = (np.array(column, np.int64) for column in numbers)
        cpu = np.zeros(len(names), np.int64)
        columns = {"comm": np.array(comm, "S16")}
        return [TracepointRows(THREAD_NAMES, time, cpu, tid, arrival, columns, tgid=pid)]

    def _losses(self, record: "_Record", arrival: int, rows: list[TracepointRows]) -> list[Loss]:
        """Return the loss that a record reports, if it does; counts what it says.

        LOST comes with the first record that had room again: the loss was between that and the
        CPU's record before.
        """
        cpu, time = record.cpu, record.time
        if record.type == RecordType.LOST_SAMPLES:
            if not record.misc & _MISC_BPF_FILTER:
                self.lost_samples += min(record.number(HEADER_BYTES, 8), _MOST_COUNT)
            return []
        if record.type == RecordType.THROTTLE:
            self._throttled.setdefault(cpu, record.number(HEADER_BYTES, 8))
            return []
        if record.type == RecordType.UNTHROTTLE:
            end = record.number(HEADER_BYTES, 8)
            start = self._throttled.pop(cpu, end)
            return [Loss(min(start, end), end, cpu, -1)]
        count = min(record.number(HEADER_BYTES + 8, 8), _MOST_COUNT)
        self.lost += count
        masks = [(part.cpu == cpu) & (part.arrival < arrival) for part in rows]
        times = [int(p.time[m].max()) for p, m in zip(rows, masks, strict=True) if m.any()]
        before = max([self._newest.get(cpu, 0), *times])
        time = time or before
        return [Loss(min(before, time) or time, time, cpu, count)]

    def rest(self, first: int, last: int) -> list[Loss]:
        """Return the losses of which no record says when: samples that LOST records do not cover.

        first, last: of the recording (ns). Throttled events that were not resumed are lost to its
        end.
        """
        found = [Loss(min(since, last), last, cpu, -1) for cpu, since in self._throttled.items()]
        if self.lost_samples > self.lost:
            found.append(Loss(first, last, -1, self.lost_samples - self.lost))
        return found


class _Record:
    """One record of the kernel, with what its last fields say: time (ns) and CPU, 0 if unknown."""

    def __init__(self, data: bytes, endian: Literal["little", "big"], layout: SampleLayout) -> None:
        self.data, self._endian = data, endian
        self.type = int.from_bytes(data[:4], endian)
        self.misc = int.from_bytes(data[4:6], endian)
        time, cpu = (layout.trailer_at.get(field) for field in (SampleType.TIME, SampleType.CPU))
        self.time = 0 if time is None else self.number(len(data) + time, 8)
        self.cpu = 0 if cpu is None else self.number(len(data) + cpu, 4)

    def number(self, place: int, count: int) -> int:
        """Return the `count` bytes at a place in the record; 0 behind its end."""
        if not HEADER_BYTES <= place <= len(self.data) - count:
            return 0
        found = int.from_bytes(self.data[place : place + count], self._endian)
        return found if found < 1 << 63 else 0
