# SPDX-License-Identifier: Apache-2.0
"""The beginning of a recording: devices and command, output and probes, the log's header.

`prepare` loads and writes nothing; `open_recording` does, and says how to undo it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass

from biotrail.recorder.filters.filters import with_below
from biotrail.recorder.host import clocks, devices, memory_limit
from biotrail.recorder.host.device_paths import with_paths
from biotrail.recorder.notes.cgroup_look import CgroupLook
from biotrail.recorder.notes.files import FileWatch
from biotrail.recorder.notes.hotplug import fingerprint
from biotrail.recorder.notes.stacks import StackWatch
from biotrail.recorder.output.sinks import Sink
from biotrail.recorder.pausing import suspects
from biotrail.recorder.pausing.guard import Guard
from biotrail.recorder.probes.backend import ProbeConfig, Probes
from biotrail.recorder.probes.choice import make_probes
from biotrail.recorder.probes.kernel.run_stats import RIGHT as STATS_RIGHT
from biotrail.recorder.probes.kernel.run_stats import StatsChild
from biotrail.recorder.probes.programs import EVENT_SETS
from biotrail.recorder.rights import capabilities
from biotrail.recorder.rights.rights import Lack
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import Clock, Device, DeviceFilter, Header, MissingTracepoint
from biotrail.recorder.session import facts, rights_kept
from biotrail.recorder.session.child import Child
from biotrail.recorder.session.session_types import RecordOptions
from biotrail.recorder.session.sinks_open import open_sink, reserve
from biotrail.recorder.session.stop import StopRequests
from biotrail.recorder.session.watches import Watches
from biotrail.recorder.symbols.kallsyms import read_once

_STDERR = 2
_ROOM_FOR_SYMBOLS = 96 << 20
"""Below it loading the programs needs the memory more than the symbols' text, 5 to 15 MB."""


@dataclass(frozen=True)
class Prepared:
    """A recording whose devices, command and backend exist; nothing is loaded or written yet."""

    options: RecordOptions
    stop: StopRequests
    """Catches signals already."""
    child: Child | None
    """The command, not started; None: no command is recorded."""
    probes: Probes
    """Not open."""
    devices: list[DeviceFilter]
    """The header's `filters.devices`: {"spec" (if the user named it), "disk", "part"}, dev_t."""
    disks: list[tuple[int, int]]
    """The devices as pairs: dev_t of the disk, of the partition or 0; empty: all devices."""


@dataclass(frozen=True)
class Opened:
    """A recording whose programs are attached, whose log is open, and whose command runs."""

    prepared: Prepared
    header: Header
    seen: dict[str, str]
    """`fingerprint` of the devices, from before those in the header were looked up."""
    sink: Sink
    """Where the log is written; it has the header already, unless it is a flight recorder's."""
    stacks: StackWatch
    files: FileWatch
    watches: Watches
    """Triggers that the programs do not evaluate."""
    guard: Guard | None
    """Who stops the suspect, ready; None: there is none."""
    cgroups: CgroupLook
    missing: list[MissingTracepoint]
    """Tracepoints of the event set that are not recorded: letter, tracepoint, reason."""
    lacking: list[Lack]
    """What does not work for lack of rights."""
    count_runs: Callable[[bool], None]
    """Switches the kernel's counting of program runs."""
    messages: list[str]
    """Messages for the user that are not yet reported; the poll loop reports and removes them."""


def prepare(options: RecordOptions, stack: ExitStack, probes: Probes | None) -> Prepared:
    """Catch signals, look the command up, resolve the devices, and make the probes.

    Nothing is loaded, started or written. `stack`, at its end, sets the old signal handlers again
    and closes the command's descriptor. `probes`: what records, whatever the options say; None:
    made by `options.backend` and `options.follow`. Raises TraceError: a device, the command or the
    backend does not exist, or what is to be followed cannot be.
    """
    stop = stack.enter_context(StopRequests())
    child = _find_command(options, stack)
    named, pairs = _resolve_devices(options)
    config = ProbeConfig(
        options.events,
        pairs,
        options.ring_bytes,
        options.filters,
        triggers=options.triggers,
        stacks=options.stacks,
        files=options.files,
        path=options.path,
        call_over_ns=options.call_over_ns,
    )
    if probes is None:
        probes = make_probes(options.backend, config)
        if options.follow is not None:
            from biotrail.recorder.probes.sites.joined import follow_beside  # takes 50 ms

            probes = follow_beside(probes, options.follow, options.filters, pairs)
    return Prepared(options, stop, child, probes, named, pairs)


def _find_command(options: RecordOptions, stack: ExitStack) -> Child | None:
    """Return the command, not started; None: `options` have none. `stack` closes its descriptor.

    The command's standard output goes to stderr if stdout takes the log (no `options.output`).
    Raises TraceError: its program is not in PATH, or not executable.
    """
    if not options.command:
        return None
    child = Child(options.command, stdout=_STDERR if options.output is None else None)
    stack.callback(child.close)
    return child


def _resolve_devices(
    options: RecordOptions,
) -> tuple[list[DeviceFilter], list[tuple[int, int]]]:
    """Return the devices to record: (the header's `filters.devices`, pairs for ProbeConfig).

    First the devices that the user named, then those that they are stacked on (if `--below`), then
    the path disks of NVMe multipath devices among all these; the latter two without "spec". A pair
    is (dev_t of the disk, dev_t of the partition or 0). A device that was named twice has two
    entries, by each "spec", and one pair. Both are empty if no device was named, which means all
    devices. Raises TraceError: a device does not exist.
    """
    named = [(spec, devices.resolve(spec)) for spec in options.devices]
    pairs = list(dict.fromkeys(pair for _, pair in named))
    more = with_paths(with_below(pairs) if options.filters.below else pairs)[len(pairs) :]
    entries: list[DeviceFilter] = [{"spec": s, "disk": d, "part": p} for s, (d, p) in named]
    return entries + [{"disk": d, "part": p} for d, p in more], pairs + more


def open_recording(prepared: Prepared, stack: ExitStack, undo: ExitStack) -> Opened:
    """Open the output and the probes, attach, write the header, start the command; in this order.

    The header's clocks are read right before attaching. A flight recorder writes its header only
    with a dump. `stack` closes what was opened, when the recording is over or has failed to begin.
    `undo` deletes the files made and ends the command, in case it fails to begin; a file that
    `options.force` replaced does not come back. Raises TraceError or OSError.
    """
    options, probes = prepared.options, prepared.probes
    messages: list[str] = []
    place = reserve(options, stack, undo)
    # Before rights are given up: the kernel may ask for one to register a threshold.
    watches = Watches(options.triggers, {disk for disk, _ in prepared.disks})
    stack.callback(watches.close)
    stack.callback(probes.close)
    with _reading_symbols():
        probes.open()
    count_runs = _run_counter(prepared, stack, messages)
    # Reads the symbols anew: stacks begin in the programs, which are among them once loaded.
    stacks = StackWatch(
        options.stacks,
        probes,
        options.command,
        waits="fs" in probes.path.parts,
        sites=probes.capabilities.site_stacks,
    )
    files = FileWatch(options.files, probes)
    messages += [files.lacking] if files.lacking else []
    messages += _path_messages(options, probes)
    cgroups = CgroupLook.watching(probes, options.filters.named, stack, messages.append)
    cgroups.begin()
    seen = fingerprint()
    listed = devices.snapshot()
    clock = clocks.reading()
    probes.attach()
    missing = _missing_tracepoints(options, probes)
    lacking = rights_kept.lacking(options)
    messages += [str(lack) for lack in lacking if lack.key == "processes"]
    header = _header(prepared, clock, listed, files, missing, lacking)
    sink = open_sink(options, place, header, probes)
    stack.callback(sink.release)
    undo.callback(sink.discard)
    if prepared.child is not None:
        prepared.child.start()
        undo.callback(prepared.child.terminate)
    return Opened(
        prepared,
        header,
        seen,
        sink,
        stacks,
        files,
        watches,
        _guard(options, stack, messages),
        cgroups,
        missing,
        lacking,
        count_runs,
        messages,
    )


def _reading_symbols() -> AbstractContextManager[None]:
    """Return the block in which the kernel's symbols are read once, where memory has room."""
    room = memory_limit.room()
    roomy = room is None or room.bytes >= _ROOM_FOR_SYMBOLS
    return read_once() if roomy else nullcontext()


def _guard(options: RecordOptions, stack: ExitStack, messages: list[str]) -> Guard | None:
    """Start the guard of the experiment, while there are all rights; it stops nothing yet.

    `stack` ends it, and lets the suspect go on. Raises ProbeError.
    """
    if options.pausing is None:
        return None
    victims = {*options.filters.pids, *options.filters.tids}
    suspect = suspects.find(options.pausing.name, victims, range(3))
    stack.callback(suspect.stop.close)
    guard = Guard(suspect, options.pausing, messages.append)
    stack.callback(guard.close)
    return guard


def _path_messages(options: RecordOptions, probes: Probes) -> list[str]:
    """Return a message for each part of the path that was asked for and is not recorded.

    probes: open. Raises ProbeError: parts were asked for, and the backend records none.
    """
    if options.path and not probes.capabilities.path:
        raise ProbeError("this backend records no path: use --backend core, or no --path")
    return probes.path.messages()


def _run_counter(
    prepared: Prepared, stack: ExitStack, messages: list[str]
) -> Callable[[bool], None]:
    """Return a function that switches (True: on) the kernel's counting of program runs.

    If rights are to be given up and this process has the one for counting, a child process keeps
    it and switches; `stack` ends the child, and what is to be said of it is added to `messages`,
    also later. Otherwise the probes switch, also where no process can be started, which is added to
    `messages` too.
    """
    if prepared.options.give_up_rights and capabilities.holds(STATS_RIGHT):
        try:
            child = StatsChild(messages.append)
        except OSError as error:
            messages.append(f"run time of programs: not known, no process for it: {error}")
        else:
            stack.callback(child.close)
            return child.switch
    return prepared.probes.count_runs


def _missing_tracepoints(options: RecordOptions, probes: Probes) -> list[MissingTracepoint]:
    """Return the tracepoints of the event set that are not recorded: letter, tracepoint, reason.

    In the order of PROBES, for attached probes. A tracepoint outside of the event set is not
    missing, nor is G where it only stands in for s (lifecycle without block_io_start).
    """
    return [
        {"letter": p.letter, "tracepoint": p.tracepoint, "reason": p.reason}
        for p in probes.programs()
        if not p.attached and p.letter in EVENT_SETS.get(options.events, "")
    ]


def _header(
    prepared: Prepared,
    clock: Clock,
    listed: list[Device],
    files: FileWatch,
    missing: list[MissingTracepoint],
    lacking: list[Lack],
) -> Header:
    """Return the log's header, for attached probes; the host is looked up now.

    `clock`: clock readings (name → ns) from before the programs were attached. `listed`: the
    devices, likewise. `missing`,
    `lacking`: as in Opened. The event letters are those of attached programs, sorted; rings are
    {"levels": number, "bytes": one CPU's by level}.
    """
    options, probes = prepared.options, prepared.probes
    levels = [] if probes.sizes is None else list(probes.sizes.by_level)
    letters = sorted({p.letter for p in probes.programs() if p.attached})
    return facts.header(
        created_by=options.created_by,
        clock=clock,
        command=options.argv,
        filters={"devices": prepared.devices, **options.filters.header()},
        events={"set": options.events, "letters": letters, "missing": missing},
        stacks=options.stacks,
        files=files.facts,
        path=probes.path,
        kernel_enums=probes.kernel_enums(),
        backend=probes.backend_facts(),
        rings={"levels": len(levels), "bytes": levels},
        rights=rights_kept.facts(lacking),
        listed=listed,
    )
