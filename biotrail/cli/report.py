# SPDX-License-Identifier: Apache-2.0
"""`biotrail report`: where I/O time goes, as text, JSON, CSV or a page."""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from biotrail.cli.options import report_scope
from biotrail.cli.options.blaming import WithBlame, blame_option
from biotrail.cli.options.cuts import Cut, Opened, cut_of, cut_options
from biotrail.cli.options.gathering import added, flag, gathered, option
from biotrail.cli.options.guests import GuestOf, guest_options
from biotrail.cli.options.opening import Reading, reading_options
from biotrail.cli.options.recordings import (
    AlignedRecording,
    InputRecording,
    align_recordings,
    as_one_object,
    logs_argument,
    names_beside,
    of_each,
    recordings,
)
from biotrail.converters.analysis.choosing.choosing import OutcomeFilter
from biotrail.converters.analysis.distributions.keys import KEYS
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.analysis.report.tree import FORMAT, Report
from biotrail.recorder.output import output
from biotrail.text import tallies, units, values
from biotrail.text.printing import cells, guard_option, say, say_json
from biotrail.text.progress import progress
from biotrail.text.report.cells import arranged, shortened
from biotrail.text.report.verdict import as_dicts, lines, verdict
from biotrail.text.rows import Order, limit_option, sort_option

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.figures import Figures
    from biotrail.converters.analysis.guests.guest import Guest

LEAST_INTERVAL = 1e-6


@dataclass(frozen=True)
class ReportOptions:
    cut: Cut = added(cut_options)
    by: str | None = option(
        "--by",
        type=click.Choice(list(KEYS)),
        help="Group I/O by this, with all stages; file: by path, even if several inodes had it; "
        "call: by the system call that queued it; writer: by the task that dirtied the page "
        "written back; unit, container, pod, namespace: by what the charged cgroup is.",
    )
    interval: float | None = option(
        "--interval",
        type=units.duration_from(LEAST_INTERVAL),
        help="Add a time series with intervals this long: 1s, 100ms.",
    )
    order: Order | None = added(sort_option("devices and lists total, others count"))
    limit: int | None = added(limit_option("15; --json and --csv have all"))
    """Rows of each table; 0: all; None: the usual number as text, all as JSON and CSV."""
    reading: Reading = added(reading_options(labels=True))
    guest: GuestOf = added(guest_options)
    page: str | None = option(
        "--html",
        metavar="OUT",
        type=values.FileName(),
        help="Write the report as an HTML page with charts, which needs no network.",
    )
    force: bool = flag("-f", "--force", "With --html: replace OUT if it exists.")
    as_json: bool = flag("--json", "Print one JSON object.")
    as_csv: bool = flag("--csv", "Print a line for each stage of each group.")
    guard: bool = added(guard_option)
    blame: str | None = added(
        blame_option("Also show who waited for whom (docs/blame.md): victims and culprits")
    )

    def check(self) -> None:
        if self.as_json and self.as_csv:
            raise click.UsageError("--json and --csv: give one of them")
        if self.as_csv and self.blame is not None:
            raise click.UsageError("--blame has no lines in CSV: use --json")
        if self.blame is not None and self.cut.wanted != OutcomeFilter():
            raise click.UsageError(
                "--blame tells of all I/O, however it went: leave out --slower-than, --slowest, "
                "--failed"
            )
        if self.page is None:
            return
        if (
            self.by
            or self.interval is not None
            or self.as_json
            or self.as_csv
            or self.order
            or self.limit is not None
        ):
            raise click.UsageError(
                "--html has all groups, and intervals of its own: leave out --by, --interval, "
                "--sort, --limit, --json and --csv"
            )
        if self.cut.wanted != OutcomeFilter():
            raise click.UsageError(
                "--html reports all I/O, however it went: leave out --slower-than, --slowest, "
                "--failed"
            )


@click.command(cls=WithBlame)
@logs_argument
@gathered(ReportOptions, "asked")
def command(logs: tuple[str, ...], asked: ReportOptions) -> None:
    """Show where I/O time goes, by device, operation and process.

    For each device and operation: number, bytes and rate of the I/Os; every stage from queue to
    completion with its share of the time, mean, percentiles and maximum; how much was in
    flight; merges, splits, requeues, errors, flushes; the share of sequential I/O; and the
    processes, cgroups, CPUs and files that the I/O came from. Logs recorded with --path also
    give the system calls with the parts of their time, and the steps from the device to the
    completion. Percentiles of times are within 0.4 %; all other figures are exact.
    docs/report.md explains every figure. LOG is anything that convert reads; - reads standard
    input. The files of a rotated recording are one log; several recordings or hosts are compared
    in tables and then reported one by one (docs/hosts.md).

    \b
    biotrail report disk.biotrail
    biotrail report --by process -d nvme0n1 --sort p99 -n 5 disk.biotrail
    biotrail report --from 10s --to 12s --comm 'postgres*' disk.biotrail
    biotrail report --by call disk.biotrail          # of a log recorded with --path
    biotrail report --interval 1s --json disk.biotrail | jq '.intervals[].depths'
    biotrail report --blame disk.biotrail            # and whose I/O made whose I/O wait
    biotrail report --html disk.html disk.biotrail
    biotrail report disk-*.biotrail                  # a rotated recording
    biotrail report db1.biotrail db2.biotrail        # hosts beside each other
    biotrail report guest.biotrail host.biotrail --guest-of qemu-system-x86
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    asked.check()
    asked.guest.check()
    if asked.page is not None:
        _write_pages(logs, asked)
        return
    twice = asked.cut.needs_file() or asked.blame is not None
    with recordings(logs, asked.reading, twice=twice) as given:
        joined = asked.guest.joined(given, asked.reading)
        lined = align_recordings(given, None if joined is None else joined.fit.line)
        answers = of_each(given, lambda one: _read(one, asked))
    reported = [report for _, report in answers]
    of_guest = _figures(joined)
    if asked.as_json:
        made = _as_dict(reported, lined, asked.limit)
        if of_guest is not None:
            made["guest"] = asdict(of_guest)
        say_json(made, indent=2)
    elif asked.as_csv:
        from biotrail.converters.analysis.report.csv import write_all

        rows = []
        for one in reported:
            chosen, filters = one.scope.get("cut", {}), one.scope["filters"]
            scope = {
                "filters": filters["options"] if filters else "",
                "cut": chosen.get("cut", ""),
                "chosen": chosen.get("chosen", ""),
            }
            rows.append((one.given.label, shortened(one.report, asked.limit)[0], scope))
        guest_rows = [] if of_guest is None else of_guest.lines()
        write_all(rows, sys.stdout, cells(asked.guard, sys.stdout.isatty()), guest_rows)
    else:
        _print_all(reported, lined, asked.limit, asked.order)
        if of_guest is not None:
            from biotrail.text.columns import console
            from biotrail.text.guests import guest_lines, stage_table

            screen = console()
            screen.print()
            screen.print(stage_table(of_guest, screen.width))
            screen.print()
            for line in guest_lines(of_guest):
                screen.print(line)


def _figures(joined: "Guest | None") -> "Figures | None":
    if joined is None:
        return None
    from biotrail.converters.analysis.guests.figures import figures

    return figures(joined)


@dataclass
class RecordingReport:
    given: InputRecording
    source: Opened
    report: Report
    scope: dict[str, Any]


def _read(one: InputRecording, asked: ReportOptions) -> RecordingReport:
    source = cut_of(one.again, asked.cut)
    blaming = None
    if asked.blame is not None:
        from biotrail.cli.options.blame_reading import Blaming

        blaming = Blaming(one.again, asked.cut, asked.blame)
    with progress(source.trace, f"reading {one.label}".rstrip()) as windows:
        every = windows if blaming is None else blaming.watch(source.trace, windows)
        interval_ns = round((asked.interval or 0) * 1e9)
        report = make_report(source.trace, source.chosen(every), interval_ns, asked.by)
    if blaming is not None:
        report.blamed = blaming.finish()[1]
    scope = report_scope.facts(source.trace, asked.cut)
    return RecordingReport(one, source, arranged(report, asked.order), scope)


def _as_dict(
    reported: Sequence[RecordingReport], lined: Sequence[AlignedRecording], limit: int | None
) -> dict[str, Any]:
    from biotrail.converters.analysis.figures import as_json

    alignments = {one.label: one.alignment for one in lined}
    each = []
    for one in reported:
        report, more = shortened(one.report, limit)
        facts: dict[str, Any] = {}
        if one.given.label:
            begin, how = report.begin_ns, alignments.get(one.given.label)
            line = how and {"begin_ns": how.time(begin), "within_ns": how.uncertainty}
            facts["timeline"] = line
        facts |= {**as_json(report), **one.scope, "verdict": as_dicts(verdict(one.report))}
        each.append((one.given, facts | ({"left_out": more} if more else {})))
    return as_one_object(each, format=FORMAT)


def _write_pages(logs: tuple[str, ...], asked: ReportOptions) -> None:
    """Write a page for each recording; of several, each page's name gets the label."""
    from biotrail.cli.reporting import page as page_file
    from biotrail.text import units

    target, force = asked.page or "", asked.force
    if len(logs) == 1:  # before a pipe is read
        output.ensure_free(target, force)
    with recordings(logs, asked.reading, twice=True) as found:
        targets = dict(zip((one.label for one in found), names_beside(target, found), strict=True))
        for name in targets.values():
            output.ensure_free(name, force)
        joined = asked.guest.joined(found, asked.reading)

        def write(one: InputRecording) -> Path:
            of_guest = _figures(joined) if one is found[0] else None
            return page_file.write(one, asked.cut, targets[one.label], force, of_guest)

        for _, path in of_each(found, write):
            size = units.size(path.stat().st_size)
            say(f"wrote {path} ({size}): open it in a browser; it needs no network")


def _print_all(
    reported: Sequence[RecordingReport],
    lined: Sequence[AlignedRecording],
    limit: int | None,
    order: Order | None,
) -> None:
    from biotrail.text.columns import console
    from biotrail.text.report.report import parts

    screen = console()
    several = bool(reported[0].given.label)
    if several:
        from biotrail.cli.reporting import comparison

        reports = [(one.given.label, one.report) for one in reported]
        for part in comparison.parts(reports, lined, screen.width, limit, order):
            screen.print(part)
            screen.print()
    for one in reported:
        if several:
            screen.rule(one.given.title, align="left")
        words = [*report_scope.lines(one.scope), *lines(verdict(one.report))]
        for part in parts(one.report, screen.width, limit, order, words):
            screen.print(part)
            screen.print()
        trace = one.source.trace
        for line in [*one.source.lines(), *tallies.pairing_lines(trace.account.pairing)]:
            screen.print(line)
        lost = tallies.loss_lines(trace)
        screen.print("missing from the log:" if lost else "nothing is missing from the log")
        for line in lost:
            screen.print(f"  {line}")
        if several:
            screen.print()
    traces = {one.given.label: one.source.trace for one in reported}
    for place in lined:
        if place.label in traces:
            place.clocks.compare(traces[place.label].context.clocks)
    if lined:
        from biotrail.text.alignment import alignment_lines

        logs = [(one.label, one.clocks, None if one.reference else one.alignment) for one in lined]
        for line in alignment_lines(logs):
            screen.print(line)
