# SPDX-License-Identifier: Apache-2.0
"""Which limit held an I/O: one before its Q (blk-throttle), or one between Q and G."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.path_tables import HeldSince
from biotrail.converters.events.tables import NEVER, Lifecycles

_NO_BPS, _NO_IOPS = (1 << 64) - 1, (1 << 32) - 1
_SINCE = {HeldSince.REMAP: "remap", HeldSince.WAIT: "wait"}
_BEFORE_REQUEST = (
    *(WaitReason.REQUEST, WaitReason.QUEUE, WaitReason.WRITE_LIMIT),
    *(WaitReason.IO_COST, WaitReason.IO_LATENCY, WaitReason.WRITE_BACK_LIMIT),
)
"""Reasons of a thread's waits between Q and G of a bio that it queued."""


@dataclass
class HeldBack:
    """A cgroup's limit that held an I/O before it was queued. None: not known."""

    cgroup: str | None
    """Whose limit it is: the I/O's own cgroup, or one above."""
    bps: int | None
    """The limit, bytes a second; None: none."""
    iops: int | None
    """The limit, bios a second; None: none."""
    limits: int
    """Cgroups with a limit, from the I/O's own upwards; of several any may have held it."""
    ns: int | None
    """For how long."""
    by: str | None
    """How that is known: "remap" (from a partition or an upper device), or the "wait" of a call,
    which gives the least that it can be."""
    tid: int | None
    """Thread that submitted it, or waited for it."""
    pid: int | None
    comm: str | None


def held_back(context: Context, window: Lifecycles, number: int) -> HeldBack | None:
    """Return the limit that held the bio of this number; None: none did, as far as is known."""
    if window.path is None:
        return None
    rows = np.flatnonzero(window.path.held.number == number)
    if not len(rows):
        return None
    one = window.path.held.take(rows[:1])
    limit, task, ns = int(one.limit[0]), int(one.task[0]), int(one.held[0])
    bps, iops = int(one.bps[0]), int(one.iops[0])
    return HeldBack(
        cgroup=context.cgroups.get(limit, f"id {limit}") if limit else None,
        bps=None if bps == _NO_BPS else bps,
        iops=None if iops == _NO_IOPS else iops,
        limits=int(one.limits[0]),
        ns=None if ns == NEVER else ns,
        by=_SINCE.get(HeldSince(int(one.since[0]))),
        tid=int(one.tid[0]) or None,
        pid=int(window.tasks.tgid[task]) if task >= 0 else None,
        comm=str(window.tasks.comm[task]) if task >= 0 else None,
    )


def wait_for_request(window: Lifecycles, row: int) -> str | None:
    """Return what the thread that queued a bio waited for longest between its Q and G, by name.

    As in WAIT_REASON_NAMES, of _BEFORE_REQUEST alone. None: no such wait is among the window's.
    row: of the window's bios.
    """
    queue, getrq = int(window.bios.queue[row]), int(window.bios.getrq[row])
    if window.path is None or NEVER in (queue, getrq):
        return None
    waits = window.path.waits
    found = (waits.tid == window.bios.tid[row]) & (waits.out >= queue) & (waits.woken <= getrq)
    rows = np.flatnonzero(found & np.isin(waits.reason, _BEFORE_REQUEST))
    if not len(rows):
        return None
    longest = rows[np.argmax(waits.woken[rows] - waits.out[rows])]
    return WAIT_REASON_NAMES[WaitReason(int(waits.reason[longest]))]
