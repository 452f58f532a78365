# SPDX-License-Identifier: Apache-2.0
"""perf's samples as rows of the block layer's tracepoints."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.tables import I64
from biotrail.converters.inputs.perf.facts import Facts
from biotrail.converters.inputs.perf.layout import SampleLayout
from biotrail.converters.inputs.perf.records import Block
from biotrail.converters.inputs.perf.samples import Samples, Words, read_samples, records_at
from biotrail.converters.inputs.tracepoints.formats import record_dtype
from biotrail.converters.inputs.tracepoints.rows import TracepointRows
from biotrail.recorder.schema.block_events import KIND_OF
from biotrail.recorder.schema.formats import Format


class EventReader:
    """Reads samples as rows of the tracepoints that they are of.

    unreadable: bytes of samples of which the event is not known, or whose record is cut off.
    """

    def __init__(self, facts: Facts) -> None:
        """facts: the recording's events and formats, which may still grow."""
        self._facts = facts
        self.unreadable = 0
        self._layouts: dict[int, SampleLayout] = {}
        self._dtypes: dict[int, np.dtype[np.void]] = {}
        self._tracepoints: dict[str, int] = {}
        self._ids = np.zeros(0, np.int64), np.zeros(0, np.uint16)

    def tracepoints(self) -> dict[str, int]:
        """Return the block layer's tracepoints that are recorded and read: name → event's index.

        Of one that was recorded twice, the first.
        """
        found: dict[str, int] = {}
        for index in range(len(self._facts.events)):
            form = self._form(index)
            if form is not None:
                found.setdefault(form.name, index)
        return found

    def _form(self, index: int) -> Format | None:
        """Return the format of an event that is a tracepoint of the block layer; else None."""
        tracepoint = self._facts.tracepoint(index)
        if tracepoint is None or tracepoint.system != "block":
            return None
        return tracepoint.form if tracepoint.form.name in KIND_OF else None

    def _layout(self, index: int) -> SampleLayout:
        """Return the layout of an event's samples."""
        if index not in self._layouts:
            self._layouts[index] = SampleLayout(self._facts.events[index])
        return self._layouts[index]

    def _dtype(self, index: int, form: Format) -> np.dtype[np.void]:
        """Return the dtype of an event's records."""
        if index not in self._dtypes:
            self._dtypes[index] = record_dtype(form, self._facts.order)
        return self._dtypes[index]

    @property
    def any_layout(self) -> SampleLayout:
        """The layout by which records beside samples are read: that of the first event."""
        return self._layout(0)

    def rows(
        self, block: Block, words: Words, at: I64, passed_over: Counter[str]
    ) -> list[TracepointRows]:
        """Return the block layer's records in the samples at the offsets `at`.

        Counts those of other events in `passed_over`, by name.
        """
        if not self._tracepoints:
            self._tracepoints = self.tracepoints()
        found = []
        for index, of_event in self._by_event(words, at):
            form = self._form(index)
            if form is None or self._tracepoints[form.name] != index:
                twice = form is not None
                passed_over[self._facts.name(index) + " (again)" * twice] += len(of_event)
                continue
            samples = read_samples(words, of_event, self._layout(index))
            samples = samples.take(samples.raw_bytes >= self._dtype(index, form).itemsize)
            self.unreadable += int(words.size(of_event).sum() - words.size(samples.at).sum())
            if len(samples.at):
                found.append(self._rows_of(block, samples, index, form))
        return found

    def _by_event(self, words: Words, at: I64) -> list[tuple[int, I64]]:
        """Return (event's index, offsets of its samples) of the samples at the offsets `at`.

        Those without a known event are counted in `unreadable`.
        """
        id_at = self.any_layout.id_at
        if id_at is None or not self._facts.ids:
            return [(0, at)] if len(at) else []
        keys, events = self._known_ids()
        long = words.size(at) >= id_at + 8
        self.unreadable += int(words.size(at[~long]).sum())
        at = at[long]
        ids = words.wide(at + id_at)
        place = np.minimum(np.searchsorted(keys, ids), len(keys) - 1)
        known = keys[place] == ids
        if not known.all():
            self.unreadable += int(words.size(at[~known]).sum())
            at, place = at[known], place[known]
        of = events[place]
        order = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=1)).tolist()
        starts = [0, *ends[:-1]]
        ranges = zip(range(len(ends)), starts, ends, strict=True)
        return [(event, at[order[a:b]]) for event, a, b in ranges if b > a]

    def _known_ids(self) -> tuple[I64, NDArray[np.uint16]]:
        """Return the ids of samples, ascending, and the index of each one's event."""
        if len(self._ids[0]) != len(self._facts.ids):
            keys = np.array(list(self._facts.ids), np.uint64).view(np.int64)
            events = np.array(list(self._facts.ids.values()), np.uint16)
            order = np.argsort(keys)
            self._ids = keys[order], events[order]
        return self._ids

    def _rows_of(self, block: Block, samples: Samples, index: int, form: Format) -> TracepointRows:
        """Return the tracepoint's records in its samples, all whole."""
        dtype = self._dtype(index, form)
        records = records_at(block.data, samples.raw, dtype)
        columns = {name: records[name] for name in dtype.names or ()}
        tid = samples.tid
        if "common_pid" in columns and (tid < 0).any():
            tid = np.where(tid < 0, columns["common_pid"], tid)
        return TracepointRows(
            form.name,
            samples.time,
            samples.cpu,
            tid,
            block.start + samples.at,
            columns,
            tgid=samples.pid,
        )
