# SPDX-License-Identifier: Apache-2.0
"""The beginning of a recording: devices and command, output and probes, the log's header."""

import os
import platform
import time
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import BinaryIO, cast

import numpy as np
import zstandard

from biotrail.recorder.filters.filters import with_below
from biotrail.recorder.host import clocks, devices, host, memory_limit
from biotrail.recorder.host.device_paths import with_paths
from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.host.own_io import own_file
from biotrail.recorder.log import LogWriter
from biotrail.recorder.notes.cgroups import CgroupLook
from biotrail.recorder.notes.hotplug import MountWatch, fingerprint
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.output.output import NewFile
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import FlightBuffer, Limit, LogSink, RotatingLog
from biotrail.recorder.pausing import suspects
from biotrail.recorder.pausing.guard import Guard
from biotrail.recorder.probes.backend import ProbeConfig, Probes, make_probes
from biotrail.recorder.probes.kernel.run_stats import RIGHT as STATS_RIGHT
from biotrail.recorder.probes.kernel.run_stats import StatsChild
from biotrail.recorder.probes.maps.fitting import RECORDER_BYTES
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.programs import EVENT_SETS
from biotrail.recorder.rights import capabilities, rights
from biotrail.recorder.schema import records
from biotrail.recorder.schema.errors import OutputError
from biotrail.recorder.schema.payloads import (
    Clock,
    Device,
    DeviceFilter,
    Header,
    HostFacts,
    KernelFacts,
    LackFacts,
    MissingTracepoint,
)
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.session_types import RecordOptions
from biotrail.recorder.session.stop import StopRequests
from biotrail.recorder.session.watches import PressureWatch, StuckWatch
from biotrail.recorder.symbols.kallsyms import read_once

_STDOUT = 1
KEEP_BYTES = 1 << 30
"""Most bytes of chunks in a flight recorder's memory where the option limits only seconds."""
LEAST_KEPT = 1 << 20
"""Bytes that it keeps however little memory there is."""


Place = NewFile | BinaryIO | HeldDirectory
"""A plain log's file or pipe, or the directory of a rotation or dumps."""


def reserve(options: RecordOptions, stack: ExitStack, undo: ExitStack) -> Place:
    """Make the file of a plain log, still hidden; or open its pipe, or the directory of several.

    Called before the programs are loaded, so that a wrong path fails at once. Raises OutputError.
    """
    path = options.output
    if options.rotate is None and options.keep is None:
        if path is None:
            return stack.enter_context(open(_STDOUT, "wb", buffering=0, closefd=False))
        made = NewFile(path, force=options.force)
        stack.callback(made.close)
        undo.callback(made.discard)
        return made
    if path is None:
        raise OutputError("standard output takes one log: give a file name (-o)")
    directory = os.path.dirname(path)
    called = directory or "."
    if not os.path.isdir(called):
        raise OutputError(f"{called} is not a directory: make it, or give another path (-o)")
    place = HeldDirectory(directory, shown=path)
    stack.callback(place.close)
    if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd):
        raise OutputError(f"{called} may not be written to: give another path (-o)")
    return place


def buffer_limit(limit: Limit, room: Room | None) -> tuple[Limit, str | None]:
    """Return `limit` with a limit of bytes that `room` has, and a message if it was to be more.

    Half of what recording leaves: chunks that a dump still writes, or that show what hangs, stay
    beside the newest. Who takes more than a cgroup's limit is killed, and all that is kept is lost.
    """
    most = limit.bytes
    if most is None:  # else memory would grow with the load
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        most = min(KEEP_BYTES, total // 8)
    fits = most if room is None else max((room.bytes - RECORDER_BYTES) // 2, LEAST_KEPT)
    if room is None or fits >= most:
        return Limit(most, limit.seconds), None
    return Limit(fits, limit.seconds), (
        f"the flight recorder keeps {fits >> 20} MiB at most instead of {most >> 20}: "
        f"{max(0, room.bytes) >> 20} MiB {room.limit}; raise the memory limit of this service or "
        "login, or keep less"
    )


_STDERR = 2
_ROOM_FOR_SYMBOLS = 96 << 20
"""Below it loading the programs needs the memory more than the symbols' text, 5 to 15 MB."""


def _resolve_devices(options: RecordOptions) -> tuple[list[DeviceFilter], list[tuple[int, int]]]:
    """Return the devices to record: (the header's `filters.devices`, pairs for ProbeConfig)."""
    named: dict[tuple[int, int], str] = {}
    for spec in options.devices:
        named.setdefault(devices.resolve(spec), spec)
    pairs = list(named)
    more = with_paths(with_below(pairs) if options.filters.below else pairs)[len(pairs) :]
    entries: list[DeviceFilter] = [
        {"spec": spec, "disk": disk, "part": part} for (disk, part), spec in named.items()
    ]
    return entries + [{"disk": disk, "part": part} for disk, part in more], pairs + more


def _make_probes(options: RecordOptions, disks: list[tuple[int, int]]) -> Probes:
    config = ProbeConfig(
        options.events,
        disks,
        options.ring_bytes,
        options.filters,
        triggers=options.triggers,
        stacks=options.stacks,
        files=options.files,
        path=options.path,
        call_over_ns=options.call_over_ns,
    )
    probes = make_probes(options.backend, config)
    if options.follow is None:
        return probes
    from biotrail.recorder.probes.sites.follow import follow_beside  # takes 50 ms

    return follow_beside(probes, options.follow, options.filters, disks)


class Opened:
    """A recording whose programs are attached, whose log is open, and whose command runs."""

    def __init__(
        self, options: RecordOptions, probes: Probes | None, stack: ExitStack, undo: ExitStack
    ) -> None:
        """Open output and probes, attach, write the header, start the command; in this order.

        Before anything is loaded, started or written, signals are caught, and the command and
        devices looked up. To standard output the header is written last: who reads it takes it for
        the beginning of the recording, which is not to come if the command cannot be started.

        `probes`: None: made by the options. `stack` closes what was opened. `undo` deletes the
        files made and ends the command, in case it fails to begin. A plain log's file is left
        hidden, and one that `options.force` may replace as it is. Raises TraceError or OSError.
        """
        self.options = options
        self.stop = stack.enter_context(StopRequests())
        self.child = None
        if options.command:
            # Standard output is the log's, if that has no file.
            self.child = Child(options.command, stdout=_STDERR if options.output is None else None)
            stack.callback(self.child.close)
        named, disks = _resolve_devices(options)
        self.probes = probes = _make_probes(options, disks) if probes is None else probes
        self.messages: list[str] = []
        """Messages for the user that are not yet reported; the poll loop reports and removes
        them."""
        place = reserve(options, stack, undo)
        self.new_file = place if isinstance(place, NewFile) else None
        """A plain log's file, to be published once recording has begun; None: no such file."""
        # Before rights are given up: the kernel may ask for one to register a threshold.
        triggers = options.triggers
        self.pressure = PressureWatch(triggers.pressure)
        stack.callback(self.pressure.close)
        self.stuck = None
        if triggers.stuck_ns:
            watched = {disk for disk, _ in disks}
            self.stuck = StuckWatch(triggers.stuck_ns, watched, time.monotonic_ns())
        stack.callback(probes.close)
        room = memory_limit.room()
        with read_once() if room is None or room.bytes >= _ROOM_FOR_SYMBOLS else nullcontext():
            probes.open()
        self.count_runs = self._run_counter(stack)
        """Switches the kernel's counting of program runs."""
        # Reads the symbols anew: stacks begin in the programs, which are among them once loaded.
        waits = "fs" in probes.path.parts
        self.stacks = StackWatch(options.stacks, probes, options.command, waits=waits)
        self.mounts: MountWatch | None = None
        if options.files:
            # Where only this kernel is to blame, recording goes on without.
            self.messages += [probes.files.lacking] if probes.files.lacking else []
            if probes.files.recorded:
                self.mounts = MountWatch(of_calls="time" in probes.path.parts)
        self.messages += probes.path.messages()
        self.cgroups = CgroupLook(probes, options.filters.named, stack, self.messages.append)
        self.cgroups.begin()
        self.seen = fingerprint()
        """Of the devices, from before those in the header were looked up."""
        listed = devices.snapshot()
        clock = clocks.reading()
        probes.attach()
        self.missing: list[MissingTracepoint] = [
            {"letter": p.letter, "tracepoint": p.tracepoint, "reason": p.reason}
            for p in probes.programs()
            if not p.attached and p.letter in EVENT_SETS.get(options.events, "")
        ]
        # As long as this thread has its rights.
        self.lacking = [
            one for one in rights.lacking() if one.key != "processes" or options.filters.children
        ]
        self.messages += [str(lack) for lack in self.lacking if lack.key == "processes"]
        self.header = self._header(clock, listed, named)
        if options.output is None:
            self._start_command(undo)
        self.sink = self._open_sink(place, stack, undo)
        if options.output is not None:
            self._start_command(undo)
        self.guard: Guard | None = None
        """Of the experiment, made while there are all rights; it stops nothing yet."""
        if options.pausing is not None:
            victims = {*options.filters.pids, *options.filters.tids}
            suspect = suspects.find(options.pausing.name, victims, range(3))
            stack.callback(suspect.stop.close)
            self.guard = Guard(suspect, options.pausing, self.messages.append)
            stack.callback(self.guard.close)

    def _run_counter(self, stack: ExitStack) -> Callable[[bool], None]:
        """Return a function that switches (True: on) the kernel's counting of program runs."""
        if self.options.give_up_rights and capabilities.holds(STATS_RIGHT):
            try:
                child = StatsChild(self.messages.append)
            except OSError as error:
                self.messages.append(f"run time of programs: not known, no process for it: {error}")
            else:
                stack.callback(child.close)
                return child.switch
        return self.probes.count_runs

    def _start_command(self, undo: ExitStack) -> None:
        if self.child is not None:
            self.child.start()
            undo.callback(self.child.terminate)

    def _open_sink(self, place: Place, stack: ExitStack, undo: ExitStack) -> LogSink:
        """Return the recording's sink; `place`: what `reserve` returned.

        The probes' maps have their memory by now, and get to know every file before it is written
        to. Raises OutputError or OSError.
        """
        options, probes, header = self.options, self.probes, self.header

        def on_file(stream: BinaryIO) -> None:
            if file := own_file(stream.fileno()):
                probes.own_file(file)

        if not isinstance(place, HeldDirectory):
            stream = place.stream if isinstance(place, NewFile) else place
            on_file(stream)
            name = options.output or "standard output"
            return LogWriter(stream, header, level=options.level, sync=options.sync, name=name)
        series = Series(
            options.output or "",
            options.max_files,
            force=options.force,
            on_file=on_file,
            directory=place,
        )
        if options.keep is not None:
            limit, smaller = buffer_limit(options.keep, memory_limit.room())
            self.messages += [smaller] if smaller else []
            return FlightBuffer(series, header, limit, probes.programs, options.level)
        limit = options.rotate or Limit()
        log = RotatingLog(series, header, limit, probes.programs, options.level, options.sync)
        stack.callback(log.release)
        undo.callback(series.discard)
        return log

    def _header(self, clock: Clock, listed: list[Device], named: list[DeviceFilter]) -> Header:
        options, probes = self.options, self.probes
        machine = host.facts()
        kernel: KernelFacts = machine.pop("kernel", {})
        letters = sorted({p.letter for p in probes.programs() if p.attached})
        made: Header = {
            "log_id": os.urandom(16).hex(),
            "created_by": options.created_by,
            "host": cast(HostFacts, machine),
            "kernel": {**kernel, **probes.enums},
            "clocks": clock,
            "devices": listed,
            "command": list(options.argv),
            "filters": {"devices": named, **options.filters.header()},
            "events": {"set": options.events, "letters": letters, "missing": self.missing},
        }
        if options.stacks:
            made["stacks"] = {"user": options.stacks >= Stacks.USER}
        if self.mounts is not None:
            direct = probes.files.iomap_end_io != 0
            made["files"] = {"direct": direct, "ways": list(probes.files.ways)}
        if (parts := probes.path.facts()) is not None:
            made["path"] = parts
        made.update(cast(Header, probes.backend_facts()))
        made["versions"] = {
            "biotrail": options.created_by,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "zstandard": zstandard.__version__,  # importlib.metadata takes 0.1 s to ask
        }
        levels = [] if probes.sizes is None else list(probes.sizes.by_level)
        made["rings"] = {"levels": len(levels), "bytes": levels}
        lacks: list[LackFacts] = [{"what": lack.what, "needs": lack.needs} for lack in self.lacking]
        made["rights"] = {"uid": os.geteuid(), "lacking": lacks}
        made["schema"] = records.schema(
            probes.path.parts, "sites" in made, options.events == "light"
        )
        return made
