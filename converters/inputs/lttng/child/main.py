# SPDX-License-Identifier: Apache-2.0
"""A program of its own that reads CTF traces by babeltrace2's Python bindings, as columns.

The bindings (`bt2`) are built for the distribution's Python, which need not be the one that
biotrail runs on; and what they do to a damaged trace, up to an abort, ends with this process.
Nothing is imported but `bt2`, the standard library and this package.

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

import os
import resource
import shutil
import signal
import struct
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

import bt2

from biotrail.converters.inputs.lttng.child.frames import send
from biotrail.converters.inputs.lttng.child.reading import Reading, Unreadable, causes

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

    Where packets end says LTTng's index. (None, all bytes) if there is none, or the copy, too,
    cannot be opened.
    """
    path = os.path.join(directory, name)
    size = os.path.getsize(path)
    end = _whole_packets(os.path.join(directory, "index", f"{name}.idx"), size)
    if not end:
        return None, size
    copy = os.path.join(tempfile.mkdtemp(dir=scratch), name)
    shutil.copyfile(path, copy)
    os.truncate(copy, end)
    if _why_unreadable(_linked(directory, scratch, {name: copy})) is not None:
        os.unlink(copy)
        return None, size
    return copy, size - end


def _whole_packets(index: str, size: int) -> int:
    """Return the bytes of the packets that lie in the first `size` bytes of a stream, by its index.

    0 if there is no index, or it is none. index: the path of an LTTng index (ctf-index.h): a header
    of four be32 (magic, major, minor, bytes of an entry), and for each packet its offset in bytes,
    its size in bits, and more, as be64.
    """
    try:
        with open(index, "rb") as stream:
            magic, _, _, length = _INDEX.unpack(stream.read(_INDEX.size))
            entries = stream.read()
    except (OSError, struct.error):
        return 0
    if magic != _INDEX_MAGIC or length < _INDEX_ENTRY.size:
        return 0
    ends = [0]
    for at in range(0, len(entries) - length + 1, length):
        offset, bits = _INDEX_ENTRY.unpack_from(entries, at)
        ends.append(offset + bits // 8)
    return max(end for end in ends if end <= size)


def _span(directories: Sequence[str]) -> tuple[int, int] | None:
    """Return the first and last time (ns since the clock's origin) of traces; None: not known."""
    component = bt2.find_plugin("ctf").source_component_classes["fs"]
    query = bt2.QueryExecutor(component, "babeltrace.trace-infos", {"inputs": list(directories)})
    try:
        ranges = [s["range-ns"] for t in query.query() for s in t["stream-infos"]]
        return min(int(r["begin"]) for r in ranges), max(int(r["end"]) for r in ranges)
    except (bt2._Error, KeyError, ValueError):
        return None


def _linked(directory: str, scratch: str, files: Mapping[str, str]) -> str:
    """Return a new directory in `scratch` with links to a trace's metadata and files.

    files: absolute path by name.
    """
    made = tempfile.mkdtemp(dir=scratch)
    metadata = os.path.abspath(os.path.join(directory, "metadata"))
    for name, path in {"metadata": metadata, **files}.items():
        os.symlink(path, os.path.join(made, name))
    return made


def _stream_files(directory: str) -> list[str]:
    files = [entry.name for entry in os.scandir(directory) if entry.is_file()]
    return sorted(name for name in files if name != "metadata" and not name.startswith("."))


def read_all(directories: Sequence[str], scratch: str) -> None:
    """Send the contents of the traces. Raises Unreadable, bt2's errors: they cannot be read."""
    sizes = [os.path.getsize(os.path.join(d, f)) for d in directories for f in _stream_files(d)]
    reading = Reading(sum(sizes))
    opened = []
    for directory in directories:
        readable, bad = _readable(directory, scratch)
        reading.unreadable += bad
        opened.append(readable)
    reading.span = _span(opened)
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
    """Read the traces in these directories; return the exit status.

    scratch: an empty directory for copies, which the caller removes.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # The signal's default action ends the process, within C functions, too.
    signal.setitimer(signal.ITIMER_PROF, _OPENING_SECONDS)
    try:
        # Imported here because they import bt2.
        from biotrail.converters.inputs.lttng.child.main import read_all
        from biotrail.converters.inputs.lttng.child.reading import causes
    except ImportError as error:
        send({"frame": "error", "missing": True, "text": str(error)})
        return 1
    try:
        read_all(directories, scratch)
    except Exception as error:  # whatever it is, it becomes the user's message
        said = causes(error) or type(error).__name__
        send({"frame": "error", "missing": False, "text": said})
        return 1
    send({"frame": "end"})
    return 0
