# SPDX-License-Identifier: Apache-2.0
"""A program of its own that reads CTF traces by babeltrace2's Python bindings, as columns.

The bindings (`bt2`) are built for the distribution's Python, which need not be the one that
biotrail runs on; and what they do to a damaged trace, up to an abort, ends with this process.
Nothing is imported but `bt2`, the standard library and `frames`.

Standard output is a sequence of frames, each `FRAME`, a JSON object and the packed records that it
describes:

    {"frame": "start", "clock": …, "environment": …, "events": …, "began": …, "span": …, …}
    {"frame": "batch", "tables": […], "reached": …, "losses": […], "passed_over": …, "problems": …}
    {"frame": "end"}         the last one, when all was read
    {"frame": "error", "missing": …, "text": …}    instead of all; missing: bt2 cannot be imported

Times are in the clock's cycles. A table's "fields" are (name, numpy's type) of its records; among
these are "number", an event's place in the order of reading, and "time" and "cpu".

The public API makes some ten Python objects for each event (28,000 events/s). So events are read
by the functions of the C API that the bindings are built on (`bt2._native_bt`, ten times as fast),
and all else, which is rare, by the public API.
"""

import heapq
import importlib
import os
import resource
import shutil
import signal
import struct
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import bt2

from biotrail.converters.inputs.lttng.frames import DISK_NAME, send

# Streams of events, and how the fields of an event become a record.

_COMM_BYTES = 16
Taken = tuple[int, Callable[[Any], int | bytes]]
Getter = tuple[Any, tuple[str, Callable[[Any], int | bytes]]]
_CONTEXT = {"tid": "thread", "pid": "process", "procname": "procname"}
"""Names of the records' fields by that of the context's."""
_SAME = {"tid": "thread", "comm": "procname"}
"""Fields of events that say what the context does, where that is recorded."""


class Layout:
    """How an event class's fields become a record, and the records of the present batch.

    name: the event's. fields: (name, numpy's type) of the record. context, payload: (index in the
    structure, function that returns the field's value) of its values. pack: None if events of this
    class are counted only. count: events of the present batch.
    """

    def __init__(self, native: Any, event_class: Any) -> None:
        self.name = event_class.name or f"event {event_class.id}"
        self.count = 0
        self.records: list[bytes] = []
        self.pack: Callable[..., bytes] | None = None
        self.fields = [("number", "<i8"), ("time", "<u8"), ("cpu", "<i8")]
        self.context: list[Taken] = []
        self.payload: list[Taken] = []
        if not self.name.startswith("block_") and self.name != DISK_NAME:
            return
        context = event_class.stream_class.event_common_context_field_class
        text = native.field_string_get_value
        getters: tuple[Getter, ...] = (
            (bt2._UnsignedIntegerFieldClassConst, ("<u8", native.field_integer_unsigned_get_value)),
            (bt2._SignedIntegerFieldClassConst, ("<i8", native.field_integer_signed_get_value)),
            (
                bt2._StringFieldClassConst,
                (f"S{_COMM_BYTES}", lambda field: text(field).encode("utf-8", "surrogateescape")),
            ),
        )
        self.context = self._add(context, getters, _CONTEXT)
        self.payload = self._add(event_class.payload_field_class, getters, None)
        codes = {"<u8": "Q", "<i8": "q", f"S{_COMM_BYTES}": f"{_COMM_BYTES}s"}
        self.pack = struct.Struct("<" + "".join(codes[t] for _, t in self.fields)).pack

    def _add(
        self, structure: Any, getters: tuple[Getter, ...], names: dict[str, str] | None
    ) -> list[Taken]:
        """Add a structure's fields, by `names` or all; return (index, getter) of each."""
        taken = []
        for index, (own, member) in enumerate((structure or {}).items()):
            name = own if names is None else names.get(own)
            getter = next((g for kind, g in getters if isinstance(member.field_class, kind)), None)
            known = dict(self.fields)
            if name is None or getter is None or name in known or _SAME.get(name) in known:
                continue
            self.fields.append((name, getter[0]))
            taken.append((index, getter[1]))
        return taken


@dataclass
class Stream:
    """A data stream: the messages of one port, with the CPU and time of its newest packet."""

    iterator: Any
    name: str
    cpu: int = -1
    reached: int = 0
    began: int | None = None


BATCH_EVENTS = 1 << 16
_EMPTY_EVENTS = 1 << 16
"""Events beyond one for each bit of the files, after which a trace is taken for one that describes
events without contents, of which a packet holds endlessly many."""


class Reading:
    """The reading of all streams into frames, the one that is furthest behind in time first."""

    def __init__(self, size: int) -> None:
        self.native = importlib.import_module("bt2._native_bt")
        self.message_of = importlib.import_module("bt2.message")._create_from_ptr
        self.check = importlib.import_module("bt2.utils")._handle_func_status
        self.event_type = self.native.MESSAGE_TYPE_EVENT
        self.most = 8 * size + _EMPTY_EVENTS
        self.unreadable: list[tuple[str, str, int]] = []
        self.span: tuple[int, int] | None = None
        self.layouts: dict[int, Layout] = {}
        self.losses: list[list[int]] = []
        self.problems: list[list[Any]] = []
        self.read = 0
        self.last = 1 << 64
        self.pending = 0
        self.streams: list[tuple[int, int, Stream]] = []
        self.all_streams: list[Stream] = []
        self.described: dict[str, Any] | None = None
        self.started = False

    def open(self, iterators: list[tuple[Any, str]]) -> None:
        self.all_streams = [Stream(*pair) for pair in iterators]
        self.streams = [(0, i, stream) for i, stream in enumerate(self.all_streams)]

    def step(self) -> bool:
        """Read on in the stream that is furthest behind; return False when all have ended."""
        if not self.started and (not self.streams or self.streams[0][0] > 0):
            if self.described is None:
                raise Unreadable(
                    "; ".join(why for *_, why in self.problems) or "no stream of events"
                )
            began = min((s.began for s in self.all_streams if s.began is not None), default=0)
            facts = {"began": began, "span": self.span, "unreadable": self.unreadable}
            send(self.described | facts)
            self.started = True
            signal.setitimer(signal.ITIMER_PROF, 0)  # main set it for the opening
        if not self.streams:
            self.flush(None)
            return False
        _, number, stream = self.streams[0]
        try:
            status, messages = self.native.bt2_self_component_port_input_get_msg_range(
                stream.iterator._ptr
            )
            goes_on = status != self.native.__dict__.get("MESSAGE_ITERATOR_NEXT_STATUS_END", 1)
            if goes_on:
                self.check(status, "cannot be read")
        except (bt2._Error, bt2.TryAgain) as error:
            self.problems.append([stream.name, stream.reached, stream.cpu, causes(error)])
            goes_on = False
        if goes_on and self._read(list(messages), stream):
            heapq.heapreplace(self.streams, (stream.reached, number, stream))
        else:
            heapq.heappop(self.streams)
        if self.pending >= BATCH_EVENTS and self.streams:
            self.flush(self.streams[0][0])
        return True

    def _read(self, messages: list[Any], stream: Stream) -> bool:
        """Add events to their classes' records; return False, with a problem, at damage."""
        native = self.native
        get_type, put = native.message_get_type, native.message_put_ref
        event_of, class_of = (
            native.message_event_borrow_event_const,
            native.event_borrow_class_const,
        )
        context_of = native.event_borrow_common_context_field_const
        payload_of = native.event_borrow_payload_field_const
        member = native.field_structure_borrow_member_field_by_index_const
        clock_of = native.message_event_borrow_default_clock_snapshot_const
        value_of, layouts = native.clock_snapshot_get_value, self.layouts
        number, reached, damage = self.read, 0, []
        for index, message in enumerate(messages):
            if get_type(message) != self.event_type:
                self._notice(message, stream)
                continue
            event = event_of(message)
            layout = layouts.get(number_of := int(class_of(event)))
            if layout is None:
                native.message_get_ref(message)  # the public API takes a reference of its own
                layout = Layout(native, self.message_of(message).event.cls)
                layouts[number_of] = layout
            layout.count += 1
            time = value_of(clock_of(message))
            if time > self.last:
                damage = messages[index:]
                break
            if layout.pack is not None:
                context = context_of(event) if layout.context else None
                payload = payload_of(event) if layout.payload else None
                values = [get(member(context, i)) for i, get in layout.context]
                values += [get(member(payload, i)) for i, get in layout.payload]
                layout.records.append(layout.pack(number, time, stream.cpu, *values))
            reached = time
            number += 1
            put(message)
        stream.reached = max(stream.reached, reached)
        for message in damage:
            put(message)
        if damage:
            why = "an event's time is behind the trace's end"
            self.problems.append([stream.name, stream.reached, stream.cpu, why])
        self.pending += number - self.read
        self.read = number
        if number > self.most:
            raise Unreadable("the trace describes events without contents")
        return not damage

    def _notice(self, pointer: Any, stream: Stream) -> None:
        message = self.message_of(pointer)
        if isinstance(message, bt2._StreamBeginningMessageConst):
            self._describe(message.stream)
        elif isinstance(message, bt2._PacketBeginningMessageConst):
            context = message.packet.context_field
            if context is not None and "cpu_id" in context:
                stream.cpu = int(context["cpu_id"])
            if message.packet.stream.cls.packets_have_beginning_default_clock_snapshot:
                stream.reached = max(stream.reached, message.default_clock_snapshot.value)
                stream.began = stream.reached if stream.began is None else stream.began
        elif isinstance(message, bt2._DiscardedEventsMessageConst):
            self._add_loss(message, stream, -1 if message.count is None else message.count)
        elif isinstance(message, bt2._DiscardedPacketsMessageConst):
            self._add_loss(message, stream, -1)

    def _add_loss(self, message: Any, stream: Stream, count: int) -> None:
        begin = end = stream.reached
        flag = "discarded_events" if count >= 0 else "discarded_packets"
        if getattr(message.stream.cls, f"{flag}_have_default_clock_snapshots"):
            begin = message.beginning_default_clock_snapshot.value
            end = message.end_default_clock_snapshot.value
        self.losses.append([begin, end, stream.cpu, count])

    def _describe(self, stream: Any) -> None:
        """Take over what the metadata of the first stream's trace say. stream: the public API's."""
        clock = stream.cls.default_clock_class
        if clock is None:
            raise Unreadable("its events have no times: no clock is described")
        if self.span is not None:
            zero = clock.offset.seconds * clock.frequency + clock.offset.cycles
            # Rounded up: the span is in ns.
            self.last = self.span[1] * clock.frequency // 10**9 + 1 - zero
        if self.described is None:
            classes = stream.trace.cls
            events = (classes[s][number] for s in classes for number in classes[s])
            self.described = {
                "frame": "start",
                "clock": {
                    "name": clock.name,
                    "frequency": clock.frequency,
                    "seconds": clock.offset.seconds,
                    "cycles": clock.offset.cycles,
                    "is_since_1970": clock.origin_is_unix_epoch,
                },
                "environment": {
                    str(key): int(value)
                    if isinstance(value, bt2._IntegerValueConst)
                    else str(value)
                    for key, value in stream.trace.environment.items()
                },
                "events": sorted({event.name or "" for event in events}),
            }

    def flush(self, reached: int | None) -> None:
        """Send what was read since the last time. reached: cycles; None: the end."""
        tables, payloads = [], []
        passed_over: Counter[str] = Counter()
        for layout in self.layouts.values():
            if layout.records:
                count = len(layout.records)
                tables.append({"event": layout.name, "count": count, "fields": layout.fields})
                payloads += layout.records
            elif layout.count:
                passed_over[layout.name] += layout.count
            layout.records, layout.count = [], 0
        frame: dict[str, Any] = {"frame": "batch", "tables": tables, "reached": reached}
        frame |= {"losses": self.losses, "passed_over": passed_over, "problems": self.problems}
        send(frame, b"".join(payloads))
        self.losses, self.problems, self.pending = [], [], 0


class Unreadable(Exception):
    """The traces cannot be read, or not on."""


def causes(error: Exception) -> str:
    """Return what babeltrace2 says of an error, the cause first."""
    said = [cause.message.rstrip(".") for cause in error] if isinstance(error, bt2._Error) else []
    return said[0].split(": msg-it-addr")[0] if said else str(error)


# The graph of babeltrace2's components that reads traces, and the files that it can read.

_INDEX = struct.Struct(">IIII")
_INDEX_ENTRY = struct.Struct(">QQ")
_INDEX_MAGIC = 0xC1F1DCC1


def _sink(reading: Reading) -> Any:
    class Sink(bt2._UserSinkComponent):  # type: ignore[misc]
        def __init__(self, config: Any, params: Any, ports: int) -> None:
            for index in range(ports):
                self._add_input_port(str(index))

        def _user_graph_is_configured(self) -> None:
            reading.open(
                [
                    (self._create_message_iterator(port), port.connection.upstream_port.name)
                    for port in self._input_ports.values()
                ]
            )

        def _user_consume(self) -> None:
            if not reading.step():
                raise bt2.Stop

    return Sink


def _source(graph: Any, directories: Sequence[str]) -> Any:
    component = bt2.find_plugin("ctf").source_component_classes["fs"]
    return graph.add_component(component, "traces", params={"inputs": list(directories)})


def _why_unreadable(directory: str) -> str | None:
    try:
        _source(bt2.Graph(), [directory])
    except bt2._Error as error:
        return causes(error)
    return None


def _readable(directory: str, scratch: str) -> tuple[str, list[tuple[str, str, int]]]:
    """Return a directory with the files of a trace that can be opened, and those that cannot.

    The trace's own directory if all can; else one in `scratch` with links to the files that can be
    opened together with the metadata, and copies of cut files with their whole packets. What cannot
    be opened is (path, why, bytes). Raises Unreadable: the metadata cannot be read.
    """
    if _why_unreadable(directory) is None:
        return directory, []
    if _why_unreadable(_linked(directory, scratch, {})) is not None:
        raise Unreadable(f"the metadata in {directory} cannot be understood")
    good: dict[str, str] = {}
    bad = []
    for name in _stream_files(directory):
        path = os.path.abspath(os.path.join(directory, name))
        alone = _linked(directory, scratch, {name: path})
        if (why := _why_unreadable(alone)) is None:
            good[name] = path
            continue
        cut, missing = _cut_to_packets(directory, name, scratch)
        if cut is not None:
            good[name] = cut
        bad.append((os.path.join(directory, name), why.replace(alone, directory), missing))
    return _linked(directory, scratch, good), bad


def _cut_to_packets(directory: str, name: str, scratch: str) -> tuple[str | None, int]:
    """Return a copy of a cut file with its whole packets alone, and how many bytes it is without.

    Where packets end says LTTng's index (ctf-index.h): a header of four be32 (magic, major, minor,
    bytes of an entry), and for each packet its offset in bytes, its size in bits, and more, as
    be64. (None, all bytes) if there is none, or the copy, too, cannot be opened.
    """
    path = os.path.join(directory, name)
    size = os.path.getsize(path)
    try:
        with open(os.path.join(directory, "index", f"{name}.idx"), "rb") as stream:
            magic, _, _, length = _INDEX.unpack(stream.read(_INDEX.size))
            entries = stream.read()
    except (OSError, struct.error):
        return None, size
    if magic != _INDEX_MAGIC or length < _INDEX_ENTRY.size:
        return None, size
    places = range(0, len(entries) - length + 1, length)
    packets = (_INDEX_ENTRY.unpack_from(entries, at) for at in places)
    ends = [offset + bits // 8 for offset, bits in packets]
    end = max((end for end in ends if end <= size), default=0)
    if not end:
        return None, size
    copy = os.path.join(tempfile.mkdtemp(dir=scratch), name)
    shutil.copyfile(path, copy)
    os.truncate(copy, end)
    if _why_unreadable(_linked(directory, scratch, {name: copy})) is not None:
        os.unlink(copy)
        return None, size
    return copy, size - end


def _linked(directory: str, scratch: str, files: Mapping[str, str]) -> str:
    """Return a new directory in `scratch` with links to metadata and files (name → path)."""
    made = tempfile.mkdtemp(dir=scratch)
    metadata = os.path.abspath(os.path.join(directory, "metadata"))
    for name, path in {"metadata": metadata, **files}.items():
        os.symlink(path, os.path.join(made, name))
    return made


def _stream_files(directory: str) -> list[str]:
    files = [entry.name for entry in os.scandir(directory) if entry.is_file()]
    return sorted(name for name in files if name != "metadata" and not name.startswith("."))


def read_all(directories: Sequence[str], scratch: str) -> None:
    sizes = [os.path.getsize(os.path.join(d, f)) for d in directories for f in _stream_files(d)]
    reading = Reading(sum(sizes))
    opened = []
    for directory in directories:
        readable, bad = _readable(directory, scratch)
        reading.unreadable += bad
        opened.append(readable)
    # The first and last time (ns since the clock's origin); None: not known.
    component = bt2.find_plugin("ctf").source_component_classes["fs"]
    query = bt2.QueryExecutor(component, "babeltrace.trace-infos", {"inputs": opened})
    with suppress(bt2._Error, KeyError, ValueError):
        ranges = [s["range-ns"] for t in query.query() for s in t["stream-infos"]]
        first = min(int(one["begin"]) for one in ranges)
        reading.span = first, max(int(one["end"]) for one in ranges)
    graph = bt2.Graph()
    source = _source(graph, opened)
    if not source.output_ports:
        why = "; ".join(why for _, why, _ in reading.unreadable) or "there is none"
        raise Unreadable(f"no CPU's file can be read: {why}")
    sink = graph.add_component(_sink(reading), "columns", obj=len(source.output_ports))
    for index, output in enumerate(source.output_ports.values()):
        graph.connect_ports(output, sink.input_ports[str(index)])
    graph.run()


_MEMORY = 8 << 30
"""Bytes of address space: a hostile trace can ask for more than any machine has."""


_OPENING_SECONDS = 30
"""Seconds of CPU time after which the traces' opening is given up. babeltrace2 reads metadata and
packets' headers for it, and what is damaged may keep it for ever."""


def main(scratch: str, directories: Sequence[str]) -> int:
    """Read the traces; return the exit status. scratch: an empty directory for copies."""
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # The signal's default action ends the process, within C functions, too.
    signal.setitimer(signal.ITIMER_PROF, _OPENING_SECONDS)
    try:
        read_all(directories, scratch)
    except Exception as error:  # whatever it is, it becomes the user's message
        said = causes(error) or type(error).__name__
        send({"frame": "error", "missing": False, "text": said})
        return 1
    send({"frame": "end"})
    return 0
