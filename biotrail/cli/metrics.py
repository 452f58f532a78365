# SPDX-License-Identifier: Apache-2.0
"""`biotrail metrics`: figures of I/O that goes on, for Prometheus."""

from dataclasses import dataclass

import click

from biotrail.cli.measuring.server import DEFAULT, Address, parse_address
from biotrail.cli.options.blaming import blame_option
from biotrail.cli.options.gathering import added, gathered, option
from biotrail.cli.options.record_arguments import (
    EVENT_SETS,
    RecordingCommand,
    device_option,
    duration_option,
    given,
)
from biotrail.cli.options.record_filters import filter_options
from biotrail.cli.options.record_keeping import FlightOptions
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host import devices
from biotrail.recorder.probes import programs
from biotrail.recorder.probes.backend import BACKENDS
from biotrail.recorder.schema.errors import OutputError, ProbeError
from biotrail.text import units, values

_NOT_PASSED_ON = frozenset({"listen", "by", "blame", "target"})
"""Options that the recorder process does not get."""


@dataclass(frozen=True)
class MetricsOptions:
    listen: Address = option(
        "--listen",
        type=parse_address,
        default=DEFAULT,
        metavar="ADDRESS:PORT",
        show_default=True,
        help="Where to serve: a loopback address. Port 0: a free one, which is printed.",
    )
    devices: tuple[str, ...] = added(device_option)
    events: str | None = option(
        "--events",
        type=click.Choice(EVENT_SETS),
        help="Take figures from the model, by this event set; light costs the least. With --keep: "
        "what the flight recorder records.  [default: the kernel adds up; with --keep: lifecycle]",
    )
    by: str | None = option(
        "--by",
        type=click.Choice(["unit", "container", "pod", "namespace"]),
        help="With --events: also label figures with what the charged cgroup is. The first 128 "
        "names and the first 128 groups are kept apart; further ones are 'other'.",
    )
    blame: str | None = added(
        blame_option("With --events: also serve who waited for whom (biotrail_blame_seconds_total)")
    )
    backend: str = option(
        "--backend", type=click.Choice(BACKENDS), default="auto", help="See biotrail record."
    )
    buffer_size: int | None = option(
        "--buffer-size", type=units.size_from(1), metavar="SIZE", help="See biotrail record."
    )
    duration: float | None = added(duration_option())
    flight: FlightOptions = added(gathered(FlightOptions, "flight"))
    target: str | None = option(
        "-o",
        "--output",
        metavar="FILE",
        type=values.FileName(),
        help="With --keep: where its logs go; their names get a time and a number.",
    )
    filters: Filters = added(filter_options)

    def check(self) -> None:
        if self.flight.keep and (self.target is None or self.target == "-"):
            raise click.UsageError("--keep needs -o FILE, from which its logs are named")
        if self.target is not None and not self.flight.keep:
            raise click.UsageError("-o is for the logs of a flight recorder: give --keep 30s, too")
        if self.events is None or self.flight.keep:
            for option, given in (("--by", self.by), ("--blame", self.blame)):
                if given is not None:
                    raise click.UsageError(
                        f"{option} is of figures that the model adds up: give --events light (or "
                        "another set), without --keep"
                    )
        self.flight.check()
        if self.filters == Filters():
            return
        if self.flight.keep:
            raise click.UsageError(
                "figures beside a flight recorder (--keep) are of all I/O: leave the filters out"
            )
        if self.events is None:
            raise click.UsageError(
                "figures that the kernel adds up are of all I/O: with filters give --events light "
                "or, for filters by task, size, sectors or file, --events lifecycle"
            )


@click.command(cls=RecordingCommand)
@gathered(MetricsOptions, "wanted")
def command(wanted: MetricsOptions) -> int:
    """Serve figures of the I/O that goes on, to Prometheus and what else reads OpenMetrics.

    By device and operation: I/Os, bytes, errors, I/O in flight, and histograms of the latency and
    of each stage; what was lost, and what measuring costs. By default one program adds up in the
    kernel as requests complete, and nothing is recorded. With --events a recorder process and the
    model make the figures, of all that this event set shows.

    With --keep a flight recorder runs beside the sums. Exemplars then name the I/O that fired a
    trigger, and its log. SIGUSR1 or SIGUSR2 has it write one.

    Only this machine can connect (docs/metrics.md has a proxy's set-up, rules and a dashboard).
    Needs the extra metrics: pip install 'biotrail[metrics]'.

    \b
    sudo biotrail metrics
    sudo biotrail metrics -d nvme0n1 --listen 127.0.0.1:9478
    sudo biotrail metrics --events lifecycle --cgroup /system.slice/db.service
    sudo biotrail metrics --events light --by container
    sudo biotrail metrics --events lifecycle --blame
    sudo biotrail metrics --keep 30s --trigger slow=500ms -o /var/log/biotrail/host.biotrail
    curl -s http://127.0.0.1:9477/metrics | grep biotrail_ios_total
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    wanted.check()
    ctx = click.get_current_context()
    try:
        from biotrail.cli.measuring.running import serve_model, serve_sums
    except ImportError as error:
        raise OutputError(
            f"metrics needs the extra metrics ({error}): pip install 'biotrail[metrics]'"
        ) from error
    if wanted.events is not None and not wanted.flight.keep:
        arguments = given(ctx, _NOT_PASSED_ON)
        return serve_model(wanted.listen, arguments, wanted.events, wanted.by, wanted.blame)
    flight = given(ctx, {*_NOT_PASSED_ON, "duration"})
    disks = _disks(wanted.devices)
    return serve_sums(wanted.listen, disks, wanted.duration, flight, wanted.target or "")


def _disks(specs: tuple[str, ...]) -> list[tuple[int, int]]:
    found = []
    for spec in specs:
        disk, part = devices.resolve(spec)
        if part:
            raise ProbeError(
                f"{spec} is a partition, and the kernel adds up whole disks: name the disk, or "
                "give --events light"
            )
        if not programs.has_requests(disk):
            raise ProbeError(
                f"{spec} makes no requests, which are what the kernel adds up: name the devices "
                "below it, or give --events lifecycle"
            )
        found.append((disk, 0))
    return found
