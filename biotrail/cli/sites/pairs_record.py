# SPDX-License-Identifier: Apache-2.0
"""`biotrail pairs -o LOG`: records every pair to an ordinary log."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import click

from biotrail import __version__
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.sites.pairs import PairProbes
from biotrail.recorder.session.session import RecordOptions, Status, Summary, record
from biotrail.text import units
from biotrail.text.printing import say_all
from biotrail.text.record import closing
from biotrail.text.sites import pairs as text

EVENT_SET = "sites"
"""Name of the event set in the log's header: events of chosen sites, and no others."""


@dataclass(frozen=True)
class LogOptions:
    """Where to record pairs to, and until when. output: `-`: standard output."""

    output: str
    force: bool = False
    command: Sequence[str] = ()
    devices: Sequence[str] = ()
    filters: Filters = field(default_factory=Filters)
    duration: float | None = None
    max_cpu: float | None = None
    quiet: bool = False
    filtered: bool = False


def run(probes: PairProbes, options: LogOptions, tell: Callable[[str], None]) -> int:
    """Record pairs until the end that `options` set, and return the exit status.

    That is the command's, or 0. `tell`: takes messages for the user. Raises TraceError: recording
    could not begin, or had to end; click.UsageError: a terminal would get the log.
    """
    log = None if options.output == "-" else options.output
    if log is None and sys.stdout.isatty():
        raise click.UsageError("-o - writes a binary log: send it to a file or a pipe")
    recording = RecordOptions(
        created_by=f"biotrail {__version__}",
        argv=["biotrail", *sys.argv[1:]],
        output=log,
        force=options.force,
        devices=options.devices,
        filters=options.filters,
        events=EVENT_SET,
        duration=options.duration,
        command=options.command,
        max_cpu=options.max_cpu,
        max_cpu_ends=True,
        give_up_rights=True,
    )

    def update(status: Status) -> None:
        if status.note:
            tell(status.note)

    tell(f"recording pairs to {options.output}")
    summary = record(recording, update, probes)
    for line in _closing(recording, summary):
        tell(line)
    for pair, reading in zip(probes.pairs, probes.final, strict=True):
        counts = reading.counts if options.filtered else reading.counts.without_left_out()
        say_all(text.count_lines(pair, reading.total, counts), err=True)
    if summary.error is not None:
        raise summary.error
    return summary.command_status or 0


def _closing(options: RecordOptions, summary: Summary) -> list[str]:
    """Return lines on what was recorded, what was lost, and what to do next."""
    size = summary.file_bytes or summary.log_bytes
    lines = [
        f"{units.plural(summary.events, 'pair')} in {units.duration(summary.seconds * 1e9)} "
        f"({summary.reason}), log {units.size(size)}"
    ]
    if lost := sum(summary.lost.values()):
        lines.append(
            f"LOST {units.plural(lost, 'pair')} because the ring was full: use a larger "
            "--buffer-size, or fewer pairs"
        )
    if skipped := sum(summary.skipped.values()):
        lines.append(
            f"{units.plural(skipped, 'event')} not seen: the kernel skips a program while one "
            "runs on that CPU (docs/pairs.md, Losses)"
        )
    if summary.unwritten_bytes:
        lines.append(closing.unwritten_line(summary).removeprefix("biotrail: "))
    if options.output and summary.error is None:
        lines.append(f"next: biotrail report {closing.as_arguments([options.output])}")
    return lines
