# SPDX-License-Identifier: Apache-2.0
"""Writes traces with the layouts of LTTng's kernel events, by babeltrace2's own sink.

`write` runs this file as a program by the distribution's Python, for which the bindings are built:
its argument is the directory to make, its standard input JSON as `write` makes it.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

BIO = {"dev": "u32", "sector": "u64", "nr_sector": "u32", "rwbs": "u32"}
TASK = {"tid": "i32", "comm": "text"}
RQ = BIO | {"bytes": "u32"} | TASK
LAYOUTS = {
    "block_bio_queue": BIO | TASK,
    "block_rq_insert": RQ,
    "block_rq_issue": RQ,
    "block_rq_complete": BIO | {"error": "i32"},
    "lttng_statedump_block_device": {"dev": "u32", "diskname": "text"},
    "sched_switch": {"prev_comm": "text", "prev_tid": "i32"},
}
"""Fields of events, by lttng-modules 2.13's instrumentation/events/block.h for Linux 6.1."""
CLOCK = {"name": "monotonic", "frequency": 10**9, "offset": [1_700_000_000, 5]}

ENVIRONMENT = {
    "hostname": "box",
    "sysname": "Linux",
    "kernel_release": "6.1.0-test",
    "tracer_name": "lttng-modules",
}

Event = tuple[int, int, str, dict[str, Any]]
"""(cycles, CPU, name, fields). The name "discarded" begins a packet; its fields are count, and the
cycles at which the packet before ended (begin) and the new one does (end)."""


def write(
    place: Path,
    events: Iterable[Event],
    *,
    cpus: Sequence[int] = (0, 1),
    context: Sequence[str] = ("pid", "tid", "procname"),
    clock: dict[str, Any] | None = None,
    domain: str = "kernel",
    layouts: dict[str, dict[str, str]] | None = None,
    version: tuple[int, int] | None = (2, 13),
) -> Path:
    """Make a trace in `place` and return it. context: of each event, with the values of `_context`.

    layouts: the events that were enabled, all of LAYOUTS by default. version: of lttng-modules;
    None: the environment does not say.
    """
    what = {
        "events": list(events),
        "cpus": list(cpus),
        "context": list(context),
        "clock": CLOCK | (clock or {}),
        "domain": domain,
        "layouts": LAYOUTS if layouts is None else layouts,
        "version": version,
    }
    command = ["/usr/bin/python3", "-B", __file__, str(place)]
    subprocess.run(command, input=json.dumps(what).encode(), check=True)
    return place


def _context(name: str) -> Any:
    return {"pid": 70, "tid": 77, "procname": "fio"}[name]


TYPES: dict[str, Callable[[Any], Any]] = {
    "u32": lambda trace: trace.create_unsigned_integer_field_class(32),
    "u64": lambda trace: trace.create_unsigned_integer_field_class(64),
    "i32": lambda trace: trace.create_signed_integer_field_class(32),
    "text": lambda trace: trace.create_string_field_class(),
}
CONTEXT = {"pid": "i32", "tid": "i32", "procname": "text"}


def structure(trace_class: Any, fields: dict[str, str]) -> Any:
    made = trace_class.create_structure_field_class()
    for name, kind in fields.items():
        made.append_member(name, TYPES[kind](trace_class))
    return made


def messages_class(bt2: Any, what: dict[str, Any]) -> Any:
    class Messages(bt2._UserMessageIterator):
        def __init__(self, config: Any, port: Any) -> None:
            self._packets: dict[int, Any] = {}
            self._messages = self._all(*port.user_data)

        def __next__(self) -> Any:
            return next(self._messages)

        def _all(self, trace: Any, stream_class: Any, classes: dict[str, Any]) -> Any:
            end = min((event[0] for event in what["events"]), default=0)
            for cpu in what["cpus"]:
                stream = trace.create_stream(stream_class, id=cpu)
                yield self._create_stream_beginning_message(stream)
                yield self._packet(stream, cpu, end)
            for end, cpu, name, fields in what["events"]:
                if name == "discarded":
                    yield from self._discard(cpu, end, fields)
                else:
                    yield self._event(classes[name], self._packets[cpu], end, fields)
            for packet in self._packets.values():
                yield self._create_packet_end_message(packet, end)
                yield self._create_stream_end_message(packet.stream)

        def _packet(self, stream: Any, cpu: int, begin: int) -> Any:
            self._packets[cpu] = stream.create_packet()
            self._packets[cpu].context_field["cpu_id"] = cpu
            return self._create_packet_beginning_message(self._packets[cpu], begin)

        def _discard(self, cpu: int, begin: int, lost: dict[str, int]) -> Any:
            old = self._packets[cpu]
            yield self._create_packet_end_message(old, lost["begin"])
            yield self._create_discarded_events_message(
                old.stream, lost["count"], lost["begin"], lost["end"]
            )
            yield self._packet(old.stream, cpu, begin)

        def _event(self, event_class: Any, packet: Any, at: int, fields: dict[str, Any]) -> Any:
            message = self._create_event_message(event_class, packet, at)
            for field, value in fields.items():
                message.event.payload_field[field] = value
            for field in what["context"]:
                message.event.common_context_field[field] = _context(field)
            return message

    return Messages


def source_class(bt2: Any, what: dict[str, Any]) -> Any:
    class Source(bt2._UserSourceComponent, message_iterator_class=messages_class(bt2, what)):
        def __init__(self, config: Any, params: Any, obj: Any) -> None:
            trace_class = self._create_trace_class()
            stream_class = self._stream_class(trace_class)
            classes = {
                name: stream_class.create_event_class(
                    name=name, payload_field_class=structure(trace_class, fields)
                )
                for name, fields in what["layouts"].items()
            }
            environment = ENVIRONMENT | {"domain": what["domain"]}
            for name, number in zip(
                ("tracer_major", "tracer_minor"), what["version"] or (), strict=False
            ):
                environment[name] = number
            trace = trace_class(environment=environment)
            self._add_output_port("out", (trace, stream_class, classes))

        def _stream_class(self, trace_class: Any) -> Any:
            clock = self._create_clock_class(
                name=what["clock"]["name"],
                frequency=what["clock"]["frequency"],
                offset=bt2.ClockClassOffset(*what["clock"]["offset"]),
            )
            context = {name: CONTEXT[name] for name in what["context"]}
            return trace_class.create_stream_class(
                default_clock_class=clock,
                assigns_automatic_stream_id=False,
                supports_packets=True,
                packet_context_field_class=structure(trace_class, {"cpu_id": "u32"}),
                packets_have_beginning_default_clock_snapshot=True,
                packets_have_end_default_clock_snapshot=True,
                supports_discarded_events=True,
                discarded_events_have_default_clock_snapshots=True,
                event_common_context_field_class=structure(trace_class, context),
            )

    return Source


def main(place: str, what: dict[str, Any]) -> None:
    import bt2  # this file is a program here; tests import it where the module is not

    graph = bt2.Graph()
    source = graph.add_component(source_class(bt2, what), "source")
    sink = graph.add_component(
        bt2.find_plugin("ctf").sink_component_classes["fs"],
        "sink",
        params={"path": place, "assume-single-trace": True, "quiet": True},
    )
    graph.connect_ports(source.output_ports["out"], sink.input_ports["in"])
    graph.run()


if __name__ == "__main__":
    main(sys.argv[1], json.load(sys.stdin))
