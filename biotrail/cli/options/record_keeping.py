# SPDX-License-Identifier: Apache-2.0
"""`record`'s options for when to stop and what to keep. Imports only what recording needs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import click

from biotrail.cli.options.gathering import added, gathered, option
from biotrail.recorder.filters.triggers import Pressure, Triggers
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.pausing.guard import LEAST_TIMES, MOST_TIMES, SHORTEST, Pausing
from biotrail.recorder.pausing.stops import LONGEST
from biotrail.text import units, values

AFTER, EVERY = 2.0, 60.0


def amount(text: str) -> int | float:
    """Parse a size, `1G` or `512MiB`, to bytes (int), or a time, `10min`, to seconds (float)."""
    unit = text.lstrip("0123456789. ")
    if unit[:1] in ("K", "M", "G", "k", "B"):
        return units.bytes_of(text, 1)
    if unit:
        return units.seconds(text, units.ABOVE_ZERO)
    raise click.BadParameter(f"{text!r} has no unit: write 512M, 1G, 30s or 10min")


def limit(amounts: Sequence[int | float]) -> Limit | None:
    """Return the smallest size (int, bytes) and time (float, seconds) as one Limit."""
    if not amounts:
        return None
    sizes = [a for a in amounts if isinstance(a, int)]
    times = [a for a in amounts if isinstance(a, float)]
    return Limit(min(sizes, default=None), min(times, default=None))


_MOST_DEPTH = (1 << 31) - 1
_LEAST_STUCK_NS = 1_000_000_000
_TRIGGERS = "write slow=50ms, failed, depth=128, stuck=10s or pressure=io:150ms/1s"
_PRESSURE = "write pressure=[some-|full-]io:STALL/WINDOW[@CGROUP], such as pressure=io:150ms/1s"
_WINDOW_US = (500_000, 10_000_000)  # WINDOW_MIN_US, WINDOW_MAX_US of kernel/sched/psi.c


def trigger(text: str) -> Triggers:
    """Parse --trigger, such as `slow=50ms` or `failed`, to a Triggers with that one condition."""
    name, sign, amount = text.partition("=")
    if name == "failed" and not sign:
        return Triggers(failed=True)
    if name in ("slow", "stuck") and amount:
        ns = round(units.seconds(amount, units.ABOVE_ZERO) * 1e9)
        if name == "slow":
            return Triggers(slow_ns=ns)
        if ns < _LEAST_STUCK_NS:
            raise click.BadParameter("a device is looked at each half second: stuck=1s or longer")
        return Triggers(stuck_ns=ns)
    if name == "pressure":
        return Triggers(pressure=(_pressure(amount),))
    depth = units.whole(amount, 1, _MOST_DEPTH)
    if name != "depth" or depth is None:
        raise click.BadParameter(f"{text!r} is no trigger: {_TRIGGERS}")
    return Triggers(depth=depth)


def _pressure(text: str) -> Pressure:
    times, sign, cgroup = text.partition("@")
    kind, _, lengths = times.partition(":")
    stall, slash, window = lengths.partition("/")
    if kind not in ("io", "some-io", "full-io") or not slash or (sign and not cgroup):
        raise click.BadParameter(f"pressure={text!r}: {_PRESSURE}")
    stall_us, window_us = (
        round(units.seconds(one, units.ABOVE_ZERO) * 1e6) for one in (stall, window)
    )
    least, most = _WINDOW_US
    if not least <= window_us <= most:
        raise click.BadParameter(f"pressure={text!r}: the kernel's windows are 0.5 to 10 s")
    if not 0 < stall_us <= window_us:
        raise click.BadParameter(f"pressure={text!r}: the stall is longer than the window")
    return Pressure(stall_us, window_us, kind == "full-io", cgroup)


def together(triggers: Sequence[Triggers]) -> Triggers:
    """Merge triggers: of several of one kind the lowest threshold, of pressure all that differ."""
    return Triggers(
        min((t.slow_ns for t in triggers if t.slow_ns), default=0),
        any(t.failed for t in triggers),
        min((t.depth for t in triggers if t.depth), default=0),
        min((t.stuck_ns for t in triggers if t.stuck_ns), default=0),
        tuple(dict.fromkeys(one for t in triggers for one in t.pressure)),
    )


def pausing(text: str) -> Pausing:
    """Parse --pause, `NAME=8x1s`: whom to pause, how often, how long."""
    name, _, lengths = text.rpartition("=")
    times, sign, length = lengths.partition("x")
    number = units.whole(times, LEAST_TIMES, MOST_TIMES)
    if not name or not sign:
        raise click.BadParameter(f"{text!r}: write NAME=8x1s: whom, how often, how long")
    if number is None:
        why = f"a suspect is stopped {LEAST_TIMES} to {MOST_TIMES} times"
        raise click.BadParameter(f"{text!r}: {why}: fewer show nothing")
    seconds = units.seconds(length, units.ABOVE_ZERO)
    if not SHORTEST <= seconds <= LONGEST:
        raise click.BadParameter(f"{text!r}: a suspect stands 0.5 to 5 s at once")
    return Pausing(name, number, seconds)


@dataclass(frozen=True)
class FlightOptions:
    """How a flight recorder keeps and writes the newest events. Times in seconds."""

    max_files: int | None = option(
        "--max-files",
        type=units.Count(),
        metavar="N",
        help="With --rotate or --keep: keep the newest N files of this run, delete older ones.",
    )
    keep: tuple[int | float, ...] = option(
        "--keep",
        type=amount,
        multiple=True,
        metavar="SIZE|TIME",
        help="Flight recorder: keep the newest events, e.g. 30s or 512M of them, in memory, and "
        "write them to a file on SIGUSR1, at the end, and on a --trigger.",
    )
    triggers: tuple[Triggers, ...] = option(
        "--trigger",
        type=trigger,
        multiple=True,
        metavar="WHAT",
        help="With --keep: write a file when an I/O takes long (slow=50ms), fails (failed), "
        "this many requests are in flight on a device (depth=128), a device with I/O in flight "
        "completes none (stuck=10s), or tasks wait for I/O (pressure=[some-|full-]io:150ms/1s, "
        "@CGROUP behind it for one of cgroup v2). Can be repeated.",
    )
    after: float | None = option(
        "--after",
        type=units.duration_from(),
        metavar="TIME",
        help="Continue recording this long after a trigger, then write.  [default: 2s]",
    )
    every: float | None = option(
        "--every",
        type=units.duration_from(),
        metavar="TIME",
        help="Ignore further triggers for this long after one.  [default: 60s]",
    )

    def check(self, rotate: bool = False) -> None:
        if self.max_files is not None and not (rotate or self.keep):
            raise click.UsageError("--max-files needs --rotate or --keep")
        if self.triggers and not self.keep:
            raise click.UsageError("--trigger needs --keep")
        for name in ("after", "every"):
            if getattr(self, name) is not None and not self.triggers:
                raise click.UsageError(f"--{name} needs --trigger")


@dataclass(frozen=True)
class Keeping:
    max_events: int | None = option(
        "--max-events",
        type=units.Count(),
        metavar="N",
        help="Stop when about N events have been recorded.",
    )
    max_size: int | None = option(
        "--max-size",
        type=units.size_from(1),
        metavar="SIZE",
        help="Stop when the log has reached about this size, e.g. 1G.",
    )
    rotate: tuple[int | float, ...] = option(
        "--rotate",
        type=amount,
        multiple=True,
        metavar="SIZE|TIME",
        help="Begin a new file at this size or age, e.g. 1G or 10min; give both for whichever "
        "comes first. Each file can be read by itself.",
    )
    flight: FlightOptions = added(gathered(FlightOptions, "flight"))
    pausing: Pausing | None = option(
        "--pause",
        type=pausing,
        metavar="NAME=8x1s",
        help="The experiment for `biotrail blame`: stop NAME (a process's number or name, a "
        "cgroup's path, a unit, a container) eight times for about a second each, and let it "
        "run in between. Whatever happens to the recorder, it goes on.",
    )
    dry_run: bool = option(
        "--dry-run",
        is_flag=True,
        help="With --pause: say what would be stopped, stop and record nothing.",
    )
    resume: bool = option(
        "--resume",
        is_flag=True,
        help="Let go on what an experiment has left stopped, and record nothing.",
    )
    max_cpu: float | None = option(
        "--max-cpu",
        type=values.percent_from(values.LEAST_PER_CENT),
        metavar="PERCENT",
        help="Warn when recording takes more than this share of one core.",
    )

    @property
    def several_files(self) -> bool:
        return bool(self.rotate or self.flight.keep)

    def record_options(self, output: str | None) -> dict[str, Any]:
        """Return keyword arguments of RecordOptions. output: the log; None: standard output."""
        flight = self.flight
        if self.rotate and flight.keep:
            raise click.UsageError(
                "--rotate writes everything, --keep the newest: give one of them"
            )
        flight.check(bool(self.rotate))
        if self.several_files and output is None:
            raise click.UsageError(
                "-o - takes one log: give -o FILE, from which the files are named"
            )
        return {
            "max_events": self.max_events,
            "max_bytes": self.max_size,
            "rotate": limit(self.rotate),
            "max_files": flight.max_files,
            "max_cpu": self.max_cpu,
            "keep": limit(flight.keep),
            "triggers": together(flight.triggers),
            "pausing": self.pausing,
            "after": AFTER if flight.after is None else flight.after,
            "every": EVERY if flight.every is None else flight.every,
        }
