# SPDX-License-Identifier: Apache-2.0
"""`biotrail record`: records block I/O to a log. Imports only what recording needs."""

import importlib
import os
import re
import sys
import time
from contextlib import suppress
from dataclasses import dataclass

import click

from biotrail import __version__
from biotrail.cli.options.gathering import added, flag, gathered
from biotrail.cli.options.record_arguments import RecordArguments, RecordingCommand, given
from biotrail.cli.options.record_filters import filter_options
from biotrail.cli.options.record_keeping import Keeping
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices
from biotrail.recorder.pausing import stops, suspects
from biotrail.recorder.pausing.guard import Pausing
from biotrail.recorder.probes.sites.follow_options import PART as FOLLOW
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import BY_KIND, Kind
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.text import units
from biotrail.text.printing import StatusLine, say, tell
from biotrail.text.record import closing as record_closing
from biotrail.text.record.closing import followed_lines
from biotrail.text.record.left_out import left_out_text, let_pass_text

LOG_SUFFIX = ".biotrail"
NOT_PASSED_ON = frozenset({"print_ios", "as_json", "output", "force", "quiet"})
"""Options that the printing process handles itself."""


@dataclass(frozen=True)
class RecordCommandOptions:
    what: RecordArguments = added(gathered(RecordArguments, "what"))
    print_ios: bool = flag(
        "--print",
        "Print a line for each I/O that ends, as biosnoop does. No log is kept unless -o is "
        "given. See docs/print.md.",
    )
    as_json: bool = flag("--json", "With --print: print a JSON object per line.")

    keeping: Keeping = added(gathered(Keeping, "keeping"))
    quiet: bool = flag("-q", "--quiet", "Print errors and losses only.")
    filters: Filters = added(filter_options)


@click.command(cls=RecordingCommand, context_settings={"allow_interspersed_args": False})
@click.argument("command", nargs=-1, type=click.Path(), metavar="[-- COMMAND ...]")
@gathered(RecordCommandOptions, "asked")
def command(command: tuple[str, ...], asked: RecordCommandOptions) -> int:
    """Record block I/O to a log, until Ctrl-C, for a time, or while a command runs.

    The log is readable by you alone (mode 0600; under sudo it belongs to the user who called
    sudo), and it is complete up to the last second even if the recorder is killed.

    Filters are decided when a bio is queued, and keep or leave out its whole lifecycle. A bio
    must match every kind of filter given; of one filter given several times, it must match any.
    Bios left out are counted. The recorder's own I/O is recorded and marked, and other commands
    leave it out.

    With COMMAND, recording begins before the command starts and ends when the command ends, and
    the command's exit status becomes biotrail's. The command runs as the user that biotrail runs
    as, with that user's rights. If --duration is over first, recording ends and the command runs
    on; Ctrl-C ends both. With -o - the command's standard output goes to standard error.

    Once its programs are attached, the recorder gives up all rights that it no longer needs
    (docs/recording.md).

    \b
    sudo biotrail record                                  # everything, until Ctrl-C
    sudo biotrail record -d nvme0n1 --duration 10s -o slow.biotrail
    sudo biotrail record -d /home -- make -j8             # the device below /home
    sudo biotrail record --rotate 1G --max-files 10       # for as long as you like
    sudo biotrail record --keep 30s --trigger slow=50ms   # what led to a slow I/O
    sudo biotrail record --pid 1234 --children            # I/O of a process and its children
    sudo biotrail record --stacks --duration 10s          # with the call stack that queued each bio
    sudo biotrail record --files --duration 10s           # with the file that each bio belongs to
    sudo biotrail record --dir /srv/db --files            # I/O of the files below a directory
    sudo biotrail record --cgroup /system.slice/db.service --op write --min-size 64k
    sudo biotrail record --pause backup.service=8x1s      # what does it cost others?
    sudo biotrail record --follow request,every=100       # with the functions that some pass
    sudo biotrail record --print -d nvme0n1               # a line per I/O, as biosnoop prints
    ssh host sudo biotrail record -o - --duration 5s > host.biotrail
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    what, keeping = asked.what, asked.keeping
    if asked.filters.below and not what.devices:
        raise click.UsageError("--below needs -d: without it every device is recorded")
    if keeping.resume:
        return _resume()
    if keeping.dry_run:
        return _dry_run(keeping.pausing, asked.filters)
    if asked.as_json and not asked.print_ios:
        raise click.UsageError("--json needs --print: give both")
    if asked.print_ios and what.output == "-":
        raise click.UsageError("--print and -o - both write to standard output: give -o FILE")
    flight = keeping.flight
    if asked.print_ios and (keeping.several_files or flight.max_files or flight.triggers):
        raise click.UsageError("--print follows one log: leave out --rotate and --keep")
    path = what.output or default_name(keeping.several_files)
    log = None if path == "-" else path
    if log is None and sys.stdout.isatty():
        raise click.UsageError("-o - writes a binary log: send it to a file or a pipe")
    what.check()
    options = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        filters=asked.filters,
        command=command,
        give_up_rights=True,
        **what.record_options(),
        **keeping.record_options(log),
    )
    quiet = asked.quiet
    if asked.print_ios:
        return _print(options, what.output, asked.as_json, quiet)
    if not quiet:
        tell("starting")  # compiling (bcc) or listing thousands of devices takes seconds
    line = LiveLine("" if quiet else _what(options), show=not quiet and sys.stderr.isatty())
    try:
        summary = record(options, line.update)
    finally:
        line.clear()
    return _finish(options, summary, quiet)


def _resume() -> int:
    try:
        lines = list(stops.resume())
    except OSError as error:
        raise ProbeError(
            f"--resume: {error.filename or stops.DIRECTORY}: {error.strerror}"
        ) from error
    for line in lines or ["nothing is stopped"]:
        tell(line)
    return 0


def _dry_run(pausing: Pausing | None, filters: Filters) -> int:
    if pausing is None:
        raise click.UsageError("--dry-run needs --pause")
    suspect = suspects.find(pausing.name, {*filters.pids, *filters.tids}, range(3))
    suspect.stop.close()
    tell(
        f"would stop {suspect.label} {pausing.times} times for about "
        f"{units.duration(pausing.seconds * 1e9)} each:"
    )
    for line in suspect.lines():
        say(f"  {line}", err=True)
    return 0


def _print(options: RecordOptions, kept: str | None, as_json: bool, quiet: bool) -> int:
    what = _what(options).partition(" to ")[0]
    # Not an import statement: recording alone does not need the reader of logs.
    printer = importlib.import_module("biotrail.cli.print_ios")
    status: int = printer.run(
        kept,
        given(click.get_current_context(), NOT_PASSED_ON),
        options.command,
        what=f"{what}, printing each I/O" + (f", log {kept}" if kept else "; no log is kept"),
        force=options.force,
        own_io=options.filters.own_io,
        as_json=as_json,
        quiet=quiet,
    )
    return status


def default_name(several: bool = False) -> str:
    """Return `biotrail-HOST-YYYYmmdd-HHMMSS.biotrail`; the recorder names each of several files."""
    host = re.sub(r"[^A-Za-z0-9._-]", "_", os.uname().nodename) or "host"
    if several:
        return f"biotrail-{host}{LOG_SUFFIX}"
    return f"biotrail-{host}-{time.strftime('%Y%m%d-%H%M%S')}{LOG_SUFFIX}"


def _what(options: RecordOptions) -> str:
    named: dict[object, str] = {}
    for spec in options.devices:
        found: object = spec
        with suppress(ProbeError):  # the recorder says what is wrong with it
            found = devices.resolve(spec)
        named.setdefault(found, spec)
    what = ", ".join(named.values()) or "all devices"
    until = record_closing.until_text(options.command, options.duration)
    to = options.output or "standard output"
    if options.keep is not None:
        seconds, size = options.keep.seconds, options.keep.bytes
        lengths = [units.duration(seconds * 1e9)] if seconds else []
        kept = " or ".join([*lengths, *([units.size(size)] if size else [])])
        how = f"kill -USR1 {os.getpid()} writes it"
        return f"recording {what} {until}, keeping the newest {kept}; {how}"
    if options.rotate is not None:
        to = f"{to.removesuffix(LOG_SUFFIX)}-TIME-NUMBER{LOG_SUFFIX}"
    return f"recording {what} {until} to {to}"


class LiveLine(StatusLine):
    """A status line on standard error that is overwritten with each status."""

    def __init__(self, what: str, show: bool) -> None:
        super().__init__(draws=show)
        self._what = what
        self._last = Status(0.0, 0, 0, 0)

    def update(self, status: Status) -> None:
        """Draw the status; a note in it is printed on a line of its own instead."""
        if self._what:
            tell(self._what)
            self._what = ""
        if status.note:
            self.clear()
            tell(status.note)
        else:
            passed = status.seconds - self._last.seconds
            rate = round((status.events - self._last.events) / passed) if passed > 0 else 0
            self.show(
                f"{status.seconds:7.1f} s   {units.count(status.events)} events   "
                f"{units.count(rate)}/s   {units.count(status.lost)} lost   "
                f"{units.size(status.log_bytes)}"
            )
        self._last = status


def _finish(options: RecordOptions, summary: Summary, quiet: bool) -> int:
    if not quiet:
        for line in _summary_lines(options, summary):
            tell(line)
    for line in loss_lines(summary):
        tell(line)
    if summary.error is not None:
        if summary.command_status is not None:
            tell(f"{options.command[0]} ended with exit status {summary.command_status}")
        raise summary.error
    return summary.command_status or 0


def _summary_lines(options: RecordOptions, summary: Summary) -> list[str]:
    about = "" if summary.events_exact else "about "
    per_event = summary.log_bytes / summary.events if summary.events else 0.0
    plain = [options.output] if options.output and not (options.rotate or options.keep) else []
    size = summary.file_bytes or summary.log_bytes
    lines = [
        f"{about}{units.plural(summary.events, 'event')} in "
        f"{units.duration(summary.seconds * 1e9)} ({summary.reason}), log {units.size(size)}"
        + (f", {per_event:.1f} bytes per event" if summary.events else ""),
        _cost(summary),
    ]
    if options.follow is not None:
        lines += followed_lines(options.follow, summary.followed)
    if text := left_out_text(summary.left_out):
        lines.append(text)
    if summary.missing:
        names = ", ".join(f"{m['letter']} ({m['tracepoint']})" for m in summary.missing)
        lines.append(f"this kernel does not offer {names}: see biotrail doctor")
    if options.rotate or options.keep:
        lines.append(record_closing.files_line(summary))
    if summary.triggers_let_pass:
        passed = let_pass_text(summary.triggers_let_pass)
        lines.append(f"no dump for {passed}")
    if (files := summary.files or plain) and summary.error is None:
        # Dumps of a flight recorder may overlap, so they are not one log: suggest the last.
        logs = files[-1:] if options.keep else files
        verb = "convert" if options.follow is None else "slow --functions"
        lines.append(f"next: biotrail {verb} {record_closing.as_arguments(logs)}")
    return lines


def _cost(summary: Summary) -> str:
    """Return the recorder's CPU time and memory and, as far as it is known, the programs'."""
    programs = (summary.events - summary.path_events) * summary.ns_per_event / 1e9
    parts_of_path = {p: s for p, s in summary.path_seconds.items() if p != FOLLOW}
    path, followed = sum(parts_of_path.values()), summary.path_seconds.get(FOLLOW, 0.0)
    total = summary.cpu_seconds + programs + path + followed
    share = 100 * total / summary.seconds if summary.seconds else 0.0
    parts = f"recorder {units.duration(summary.cpu_seconds * 1e9)}"
    if summary.ns_per_event:
        parts += (
            f", probes {units.duration(programs * 1e9)}: {summary.ns_per_event:.0f} ns per event"
        )
    else:
        parts += "".join(f"; {lack}" for lack in summary.lacking if lack.key == "program_times")
    if parts_of_path:
        each = ", ".join(f"{part} {units.duration(s * 1e9)}" for part, s in parts_of_path.items())
        parts += f", path {units.duration(path * 1e9)}: {each}"
    if followed:
        parts += f", following {units.duration(followed * 1e9)}"
    memory = units.size(summary.max_rss_bytes)
    return f"cost: {share:.1f} % of one core ({parts}), {memory} of memory"


def loss_lines(summary: Summary) -> list[str]:
    lines = []
    if summary.lost:
        named = {
            k: f"{BY_KIND[Kind(k)].letter} ({BY_KIND[Kind(k)].name})"
            for k in summary.lost
            if k in set(Kind) and Kind(k) in BY_KIND
        }
        what = ", ".join(
            f"{named.get(k, f'kind {k}')} {units.count(n)}" for k, n in summary.lost.items()
        )
        lines.append(
            f"LOST {units.plural(sum(summary.lost.values()), 'event')}: {what}; "
            f"{units.count(summary.too_deep)} of them because interrupts nested too deep, the "
            "others because rings were full: use a larger --buffer-size, fewer devices (-d) or "
            "--events minimal. I/O of that time is marked in what is made from the log."
        )
    if unfollowed := summary.left_out.unfollowed:
        lines.append(
            f"{units.plural(unfollowed, 'bio')} of them were wanted, but more were in "
            "flight than --max-in-flight allows: use a larger one"
        )
    if summary.skipped:
        what = ", ".join(f"{letter} {units.count(n)}" for letter, n in summary.skipped.items())
        lines.append(
            f"{units.plural(sum(summary.skipped.values()), 'event')} not seen: {what}. "
            "The kernel skips a program that is already running on that CPU (recursion): "
            "docs/recording.md, Missing completions."
        )
    if summary.unwritten_bytes:
        lines.append(record_closing.unwritten_line(summary))
    return lines
