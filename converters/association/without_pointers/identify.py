# SPDX-License-Identifier: Apache-2.0
"""Identities for logs without pointers, by range, operation, thread and age.

One pass over the events, in time order, gives each event the identity of the bio and the request
that it must be of; after it, association works as on kernel pointers. Where several candidates fit,
the oldest is taken and all are marked ambiguous. Used for blktrace's files, bcc's logs, and
`--associate intervals`.
"""

from collections.abc import Callable

import numpy as np

from biotrail.converters.association.without_pointers.bios import BioRules
from biotrail.converters.association.without_pointers.ends import EndRules
from biotrail.converters.association.without_pointers.events import (
    RELEVANT,
    WITH_TID,
    Event,
    read_events,
    rewrite_as_bio_complete,
    rewrite_as_request_merge,
    zero_pointers,
)
from biotrail.converters.association.without_pointers.finding import Finding
from biotrail.converters.association.without_pointers.pairing import Pairing
from biotrail.converters.association.without_pointers.pending import Device
from biotrail.converters.association.without_pointers.requests import RequestRules
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, U64, Certainty
from biotrail.recorder.schema.records import Kind


class Identifier:
    """The bios and requests in flight on all devices, from window to window."""

    def __init__(self, context: Context) -> None:
        """Start with nothing in flight.

        context: its header has the log's operations, flags and backend; its devices, how many
        hardware queues each has.
        """
        self._context = context
        self._devices: dict[int, Device] = {}
        self._members: dict[int, list[int]] = {}
        self._find = find = Finding(context)
        self._bios = bios = BioRules(find)
        requests, ends = RequestRules(find, bios), EndRules(find, bios)
        self._rules: dict[int, Callable[[Event, Device], None]] = {
            Kind.Q: bios.queue,
            Kind.A: bios.remap,
            Kind.X: bios.split,
            Kind.G: requests.allocate,
            Kind.START: requests.start,
            Kind.M: requests.back_merge,
            Kind.F: requests.front_merge,
            Kind.RQ_MERGE: requests.absorb,
            Kind.I: requests.insert,
            Kind.D: requests.issue,
            Kind.R: requests.requeue,
            Kind.C: ends.complete,
            Kind.RQ_REMAP: requests.clone,
            Kind.BIO_COMPLETE: bios.complete,
        }

    @property
    def pairing(self) -> Pairing:
        """Counts, so far, of flushes that could have ended by several completions."""
        return self._find.pairing.counts

    def identify(self, events: Events) -> Events:
        """Return a copy of the events with made-up identities in place of bio and request pointers.

        Call it for each event of the log once, in time order. In the copy `raw` has the identities
        and `doubt` is the Certainty of each (INTERVAL or AMBIGUOUS); a record of a kind without a
        rule (not RELEVANT) has doubt 0 and no such pointer. blktrace's C can become a c, its M or F
        an m (`_write`). `members` and `bounds` are this object's own: event number → identities of
        the bios that a request without a recorded beginning serves, and between which times the I/O
        of AMBIGUOUS completions ended; `forget` shortens them. The other columns are those of
        `events`, not copied. Sets the context's `records_bios` where there is a Q.
        """
        self._context.records_bios |= len(events.rows(Kind.Q)) > 0
        raw = events.raw.copy()
        doubt = np.zeros(len(events), dtype=np.uint8)
        zero_pointers(events, raw)
        rows = events.rows(*RELEVANT)
        for row, event in zip(rows.tolist(), read_events(events, rows), strict=True):
            device = self._devices.get(event.dev) or self._new_device(event.dev)
            if event.kind in WITH_TID:
                event.sent = self._bios.sent.pop(event.tid, None)
            self._find.ends.pass_time(event.ts)
            self._rules[event.kind](event, device)
            self._write(raw[row], doubt, row, event)
        return Events(
            events.ts,
            events.cpu,
            events.number,
            raw,
            doubt,
            self._members,
            events.stack,
            events.file,
            events.path,
            bounds=self._find.ends.bounds,
        )

    def _new_device(self, dev: int) -> Device:
        """Add and return the state of a device, with one queue if the log's header says so."""
        queue = self._context.devices.get(dev, {}).get("queue", {})
        self._devices[dev] = Device(one_queue=queue.get("nr_hw_queues") == 1)
        return self._devices[dev]

    def _write(self, words: U64, doubt: U8, row: int, event: Event) -> None:
        """Write the identities that a rule set on `event` into its record, and its certainty.

        words: the record's 8 uint64, changed in place. Sets `doubt[row]`, INTERVAL at least, and
        `_members` if the event has members. blktrace's C that completes a bio becomes a c
        (BIO_COMPLETE), its M or F of two requests an m (RQ_MERGE).
        """
        doubt[row] = max(event.doubt, Certainty.INTERVAL)
        if event.completes_bio:
            rewrite_as_bio_complete(words)
        elif event.kind == Kind.RQ_MERGE and int(words[0]) >> 56 != Kind.RQ_MERGE:
            rewrite_as_request_merge(words)
        if event.kind in WITH_TID or event.kind == Kind.BIO_COMPLETE or event.completes_bio:
            words[1] = event.bio
            if event.kind in (Kind.G, Kind.M, Kind.F):
                words[5] = event.request
            elif event.kind == Kind.X:
                words[5] = event.other
        else:
            words[1], words[2] = event.request, event.bio
            if event.kind == Kind.RQ_MERGE:
                words[6] = event.other
        if event.members:
            self._members[event.number] = event.members

    def mark(self, events: Events) -> None:
        """Raise `events.doubt` to AMBIGUOUS for bios and requests in flight that became ambiguous.

        events: all that are still associated, those of earlier windows included. Changed are events
        from the one that began such a bio or request on (a request event counts for its request,
        not its bio). X is left out, because it is of its parent bio as well. Does nothing if
        nothing in flight is ambiguous, or `events.doubt` is None.
        """
        doubted = {
            io.identity: io.since
            for device in self._devices.values()
            for io in device.in_flight()
            if io.doubt >= Certainty.AMBIGUOUS
        }
        if not doubted or events.doubt is None:
            return
        identities = np.array(sorted(doubted), dtype=np.uint64)
        since = np.array([doubted[int(identity)] for identity in identities], dtype=np.int64)
        at = np.searchsorted(identities, events.raw[:, 1])
        at = np.minimum(at, len(identities) - 1)
        rows = (identities[at] == events.raw[:, 1]) & (events.number >= since[at])
        rows &= events.kind != Kind.X  # an X is of its parent as well
        events.doubt[rows] = np.maximum(events.doubt[rows], np.uint8(Certainty.AMBIGUOUS))

    def forget(self, numbers: I64) -> None:
        """Drop the members kept for the events with these numbers, if they have any.

        Members are the bios that `identify` found a request without a recorded beginning to serve.
        numbers: values of `Events.number`, of events that no later window needs.
        """
        for number in numbers.tolist():
            self._members.pop(number, None)
        self._find.ends.bounds.forget(numbers.tolist())
