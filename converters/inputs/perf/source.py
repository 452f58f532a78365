# SPDX-License-Identifier: Apache-2.0
"""perf.data as a source of events."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import numpy as np

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.beginning import Given
from biotrail.converters.inputs.foreign import without_block_events
from biotrail.converters.inputs.perf.cursor import Cursor
from biotrail.converters.inputs.perf.events import EventReader
from biotrail.converters.inputs.perf.layout import RecordType, SampleType
from biotrail.converters.inputs.perf.opening import FEATURE_BITS, open_perf
from biotrail.converters.inputs.perf.others import READ, OtherRecords
from biotrail.converters.inputs.perf.records import Block, RecordStream
from biotrail.converters.inputs.perf.repeats import Repeats
from biotrail.converters.inputs.perf.rounds import Rounds
from biotrail.converters.inputs.perf.samples import Words
from biotrail.converters.inputs.perf.strays import Strays
from biotrail.converters.inputs.tracepoints.rows import Batch
from biotrail.converters.inputs.tracepoints.source import TracepointSource
from biotrail.recorder.schema.errors import LogFormatError

_TOOL = "perf"
_TYPES_NAMED = 8
_FOR_THREADS = ("-p", "--pid", "-t", "--tid", "-u", "--uid")
"""Options of perf record that limit it to some threads."""


class PerfSource(TracepointSource):
    """A file or stream of `perf record` as a Source."""

    def __init__(self, given: Given) -> None:
        """Open a path or stream, and make a log's header of what it says of itself.

        Of a pipe the records before the first sample are read for that. Raises LogFormatError: no
        perf.data, cut off before its formats, without block events, or not readable.
        """
        self._opened = opened = open_perf(given)
        super().__init__(opened.name, _TOOL)
        self.size = opened.size
        self._facts = opened.facts
        self._events = EventReader(self._facts)
        self._others = OtherRecords()
        self._rounds = Rounds()
        self._repeats = Repeats()
        self._strays = Strays(self._events)
        self._gave_up = False
        self._first = 0
        self._newest = 0
        self._stream = RecordStream(
            opened.stream,
            self.name,
            self._facts.order,
            opened.offset,
            opened.data_bytes,
            self._facts.add_tracing_data,
        )
        blocks = self._stream.blocks()
        self._blocks = blocks if self.size >= 0 else self._begun(blocks)
        self.header.update(self._facts.header_facts())
        self._check_events()
        self._remark_limits()

    def _begun(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Read a pipe's blocks up to the first with samples; return all, these included."""
        read: list[Block] = []
        for block in blocks:
            read.append(block)
            types = self._take_in(block)
            if (types == RecordType.SAMPLE).any():
                break
        return chain(read, blocks)

    def _take_in(self, block: Block) -> I64:
        """Take in a pipe's records of events and features; return the types of all (n,)."""
        words = Words(block.data, self._facts.order)
        types = words.type(block.at)
        sizes = words.size(block.at)
        for row in np.flatnonzero(np.isin(types, (RecordType.ATTR, RecordType.FEATURE))).tolist():
            at = int(block.at[row])
            data = block.data[at + 8 : at + int(sizes[row])].tobytes()
            if types[row] == RecordType.ATTR:
                self._facts.add_attr_record(data)
            else:
                self._add_feature(data)
        return types

    def _add_feature(self, data: bytes) -> None:
        """Take in a pipe's record of a feature. data: behind the record's header."""
        cursor = Cursor(data, self._facts.order, self.name)
        if cursor.rest < 8 or (number := cursor.number(8)) >= FEATURE_BITS:
            self.problems.append(
                f"{self.name}: a record that describes the recording has {len(data)} bytes, and is "
                "of no section that perf has: it is damaged; left out"
            )
            return
        self._facts.add_feature(number, data[8:])

    def _check_events(self) -> None:
        """Set which tracepoints are recorded. Raises LogFormatError: none is read, or no time."""
        recorded = self._events.tracepoints()
        damaged = self._facts.damaged_events()
        if damaged:
            self.problems.append(
                f"{self.name}: the formats of some of its events cannot be understood, so their "
                f"samples are left out: the file is damaged ({', '.join(damaged[:8])})"
            )
        if damaged and not recorded:
            raise LogFormatError(
                f"{self.name}: the formats of its events cannot be understood: the file is "
                "damaged; record again, or copy it again"
            )
        if not recorded:
            names = sorted({self._facts.name(i) for i in range(len(self._facts.events))})
            held = f"only {', '.join(names[:8])}" if names else ""
            raise without_block_events(self.name, _TOOL, held)
        self.set_recorded(recorded)
        for name, index in recorded.items():
            if SampleType.TIME not in self._facts.events[index].sample_type:
                raise LogFormatError(
                    f"{self.name}: the samples of {name} have no time: record again, with "
                    "perf record -T"
                )

    def _remark_limits(self) -> None:
        """Add remarks on what the way of recording leaves out."""
        self.remarks += self._facts.unread
        block = [self._facts.events[index] for index in self._events.tracepoints().values()]
        command = self._facts.command
        some = any(word.split("=")[0] in _FOR_THREADS for word in command)
        if some or any(attr.enable_on_exec for attr in block):
            self.remarks.append(
                f"{self.name}: perf recorded some threads alone: what other threads and interrupts "
                "did, most completions among it, is missing; record with `perf record -a`"
            )
        if any(attr.period != 1 for attr in block):
            self.remarks.append(
                f"{self.name}: perf was told to record a sample of the events (-c or -F), so most "
                "I/O has no beginning or no end; record without"
            )
        if any(word.split("=")[0] == "--filter" for word in command):
            self.remarks.append(
                f"{self.name}: a filter (--filter) left events out; how many is not known"
            )
        if self._facts.clocks is None:
            self.remarks.append(
                f"{self.name}: times are those of perf's own clock, and the wall-clock time is not "
                "known; `perf record -k CLOCK_MONOTONIC` records both"
            )

    def batches(self) -> Iterator[Batch]:
        """Yield the recording, block by block."""
        for block in self._blocks:
            yield self._batch(block)
            self._report()
        self._report()
        yield Batch(
            [],
            self._newest,
            self._stream.offset,
            self._others.rest(self._first, self._newest),
        )
        self._opened.stream.close()

    def _batch(self, block: Block) -> Batch:
        """Return what a block holds."""
        words = Words(block.data, self._facts.order)
        types = words.type(block.at)
        passed_over: Counter[str] = Counter()
        rows = self._events.rows(block, words, block.at[types == RecordType.SAMPLE], passed_over)
        rows = [self._repeats.without(part) for part in rows]
        self._rounds.add(rows, block.start, block.rounds)
        self._stream.use(sum(map(len, rows)))
        if rows:
            newest = max(int(part.time.max()) for part in rows)
            first = min(int(part.time.min()) for part in rows)
            self._first = min(self._first or first, first)
            self._newest = max(self._newest, newest)
        others = block.at[np.isin(types, READ)]
        for start, end in self._strays.find(block, words, types, rows):
            self.damaged.append({"offset": block.offset, "start": start, "end": end})
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
            window = {"offset": self._stream.offset, "start": start, "end": self._newest}
            self.damaged.append(window)

    def _report_rest(self) -> None:
        """Add what is known at the end only."""
        if self._events.unreadable:
            self.problems.append(
                f"{self.name}: left out: samples without a known event, or shorter than their "
                f"event's record, or with another event's, {self._events.unreadable} bytes"
            )
        if self._events.other_kinds:
            self.problems.append(
                f"{self.name}: left out: samples that are of other tracepoints than their events "
                f"say ({', '.join(self._events.other_kinds)}): the file is damaged"
            )
        if self._events.behind:
            self.problems.append(
                f"{self.name}: samples are longer than what they hold: {self._events.behind} bytes "
                "behind it, which may be other records, are not read: the file is damaged"
            )
        if self._strays.count:
            types = ", ".join(map(str, [*self._strays.types][:_TYPES_NAMED]))
            self.problems.append(
                f"{self.name}: left out: {self._strays.count} records that do not add up (types "
                f"{types}), {self._strays.bytes} bytes, the first before offset "
                f"{self._strays.first}: the file is damaged, or of a newer perf than is known here"
            )
        if self._repeats.count:
            self.remarks.append(
                f"{self.name}: {self._repeats.count} records are there twice, as perf "
                "sometimes writes them; the second ones were left out"
            )
        super()._report_rest()
