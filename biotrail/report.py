# SPDX-License-Identifier: Apache-2.0
"""`biotrail report`: where the time of I/O went."""

import sys

import click

from biotrail import tallies
from biotrail.cut_options import cut_options
from biotrail.cuts import Cut, opened
from biotrail.opening import associate_option, log_argument
from biotrail.printing import cells, guard_option, say, say_json
from biotrail.progress import progress
from biotrail.units import Duration
from converters.answers.keys import KEYS
from converters.answers.outcomes import Wish
from converters.answers.report import make_report
from converters.answers.tree import Report
from converters.model.trace import Trace

LEAST_INTERVAL = 1e-6
"""s."""


@click.command()
@log_argument
@cut_options
@click.option("--by", type=click.Choice(list(KEYS)), help="Group I/O by this, with all stages.")
@click.option("--interval", type=Duration(), help="Add a time series, so long each: 1s, 100ms.")
@associate_option
@click.option("--html", "page", metavar="OUT", help="Write a page that a browser opens offline.")
@click.option("-f", "--force", is_flag=True, help="With --html: replace OUT if it exists.")
@click.option("--json", "form", flag_value="json", help="Print one JSON object.")
@click.option("--csv", "form", flag_value="csv", help="Print a line for each stage of each group.")
@guard_option
def command(
    log: str,
    cut: Cut,
    by: str | None,
    interval: float | None,
    associate: str,
    page: str | None,
    force: bool,
    form: str | None,
    guard: bool,
) -> None:
    """Tell where the time of the I/O in LOG went.

    For each device and operation: how many, how much, how fast; every stage from queue to
    completion with its share of the time, mean, percentiles and maximum; what was in flight;
    merges, splits, requeues, errors, flushes; sequential or not; and the processes, cgroups,
    CPUs and files that it came from. Percentiles of times are within 0.4 %; the rest is exact.
    docs/report.md explains every figure. LOG is anything that convert reads; - reads
    standard input.

    \b
    biotrail report disk.biotrail
    biotrail report --by process -d nvme0n1 disk.biotrail
    biotrail report --from 10s --to 12s --comm 'postgres*' disk.biotrail
    biotrail report --interval 1s --json disk.biotrail | jq '.intervals[].depths'
    biotrail report --html disk.html disk.biotrail
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    if page is not None:
        if by or interval is not None or form:
            raise click.UsageError(
                "--html has all groups, and intervals of its own: leave out --by, --interval, "
                "--json and --csv"
            )
        if cut.wish != Wish():
            raise click.UsageError(
                "--html tells of fast and slow: leave out --slower-than, --slowest, --failed"
            )
        _write_page(log, associate, cut, page, force)
        return
    if interval is not None and interval < LEAST_INTERVAL:
        raise click.UsageError("--interval must be at least 1us")
    with opened(log, cut, associate) as source:
        trace = source.trace
        with progress(trace, "reading") as windows:
            report = make_report(trace, source.chosen(windows), round((interval or 0) * 1e9), by)
    if form == "json":
        from converters.answers.report_json import as_dict

        facts = cut.facts(trace)
        say_json({**as_dict(report), **({"cut": facts} if facts else {})}, indent=2)
    elif form == "csv":
        from converters.answers.report_csv import write

        write(report, sys.stdout, cells(guard, sys.stdout.isatty()))
    else:
        _print(trace, report, source.lines())


def _write_page(log: str, associate: str, cut: Cut, target: str, force: bool) -> None:
    from biotrail import report_html, units

    path = report_html.write(log, associate, cut, target, force)
    size = units.size(path.stat().st_size)
    say(f"wrote {path} ({size}): open it in a browser; it needs no network")


def _print(trace: Trace, report: Report, chosen: list[str]) -> None:
    from biotrail.columns import console
    from biotrail.report_text import parts

    screen = console()
    for part in parts(report, screen.width):
        screen.print(part)
        screen.print()
    for line in chosen:
        screen.print(line)
    lost = tallies.loss_lines(trace)
    screen.print("missing from the log:" if lost else "nothing is missing from the log")
    for line in lost:
        screen.print(f"  {line}")
