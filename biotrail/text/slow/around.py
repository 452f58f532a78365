# SPDX-License-Identifier: Apache-2.0
"""Show as text what a device did while one of its I/Os waited."""

from collections.abc import Iterator

from biotrail.converters.analysis.slow.io_details import IO
from biotrail.converters.analysis.slow.slow import SlowIO
from biotrail.converters.analysis.slow.surroundings import Group, Moment, Surroundings
from biotrail.converters.events.context import Context
from biotrail.text import units


def device_lines(context: Context, slow: SlowIO) -> Iterator[str]:
    """Yield what was in flight when the I/O was queued and issued, and what overtook it."""
    around = slow.surroundings
    if around is None:
        return
    yield f"  {_device(context, slow.io)}"
    queued = around.when_queued
    most = int(context.devices.get(slow.io.dev, {}).get("queue", {}).get("nr_requests", 0))
    yield f"    when queued     {_moment(queued, most)}"
    if around.when_issued is not None:
        yield f"    when issued     {_moment(around.when_issued, most)}"
        yield from _order_lines(around)
        done = "while in device "
    else:
        done = "while under way "
    later = around.of_these_issued_later
    note = f", {later.ios} of them began later" if later.ios else ""
    yield f"    {done}{_group(around.completed_meanwhile, 'completed')}{note}"
    if around.flushes:
        yield f"    cache flushes   {_flushes(around)}"


def _flushes(around: Surroundings) -> str:
    """Return how many cache flushes the device did while the I/O waited, and the longest."""
    number = len(around.flushes) + around.flushes_left_out
    ended = [f for f in around.flushes if f.complete_ns is not None]
    text = f"{units.count(number)} meanwhile"
    if not ended:
        return text
    longest = max(ended, key=lambda f: (f.complete_ns or 0) - f.issue_ns)
    took = units.duration((longest.complete_ns or 0) - longest.issue_ns)
    since = f"{longest.issue_ns / 1000:+,.3f} µs"
    return f"{text}, {'the longest' if number > 1 else 'of'} {took} from {since} on"


def _order_lines(around: Surroundings) -> Iterator[str]:
    """Yield which I/Os were ahead of the I/O, overtook it, or were overtaken."""
    for name, group in (
        ("ahead of it", around.ahead),
        ("overtook it", around.overtook_it),
        ("it overtook", around.it_overtook),
    ):
        if group.ios:
            yield f"    {name:<15} {_group(group)}"


def _device(context: Context, io: IO) -> str:
    """Return the device and its scheduler, nr_requests and write cache."""
    entry = context.devices.get(io.dev, {})
    queue = entry.get("queue", {})
    facts = [
        f"scheduler {entry['scheduler']}" if entry.get("scheduler") else "",
        f"nr_requests {queue['nr_requests']}" if queue.get("nr_requests") else "",
        f"write cache {entry['write_cache']}" if entry.get("write_cache") else "",
    ]
    known = ", ".join(fact for fact in facts if fact)
    return f"{context.device_label(io.dev)}" + (f": {known}" if known else "")


def _moment(moment: Moment, most: int) -> str:
    """Return what waited and was in the device at one moment. most: nr_requests; 0: not known."""
    if not (moment.waiting.ios or moment.in_device.ios or moment.requests_allocated):
        return "idle"
    parts = [_group(moment.waiting, "waiting"), _group(moment.in_device, "in the device")]
    requests = units.plural(moment.requests_allocated, "request")
    full = " (all that nr_requests allows)" if 0 < most <= moment.requests_allocated else ""
    in_device = f"{moment.requests_in_device} in the device"
    return "; ".join([*parts, f"{requests} in use{full}, {in_device}"])


def _group(group: Group, what: str = "") -> str:
    """Return how many I/Os: of which operations and sizes, and by which tasks."""
    space = f" {what}" if what else ""
    if not group.ios:
        return f"none{space}"
    kinds = sorted(group.operations.items(), key=lambda item: -item[1].ios)
    operations = ", ".join(
        f"{units.count(share.ios)} {name} {units.size(share.bytes)}" for name, share in kinds
    )
    tasks = ", ".join(f"{n} {units.count(i)}" for n, i in _most(group.tasks))
    return f"{units.count(group.ios)}{space} ({operations}; by {tasks})"


def _most(tasks: dict[str, int]) -> list[tuple[str, int]]:
    """Return the three tasks with most I/Os, and `others` for the rest."""
    ranked = sorted(tasks.items(), key=lambda item: -item[1])
    rest = sum(number for _, number in ranked[3:])
    return ranked[:3] + ([("others", rest)] if rest else [])
