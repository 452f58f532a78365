# SPDX-License-Identifier: Apache-2.0
"""The calls that waited most, by process: for what, and what others did meanwhile."""

from collections import Counter

from biotrail.converters.analysis.distributions.keys_process import ProcessNames
from biotrail.converters.analysis.report.calls.groups import CallsByGroup
from biotrail.converters.analysis.report.calls.meanwhile import Meanwhile
from biotrail.converters.analysis.report.calls.waits import WaitsByReason
from biotrail.converters.analysis.report.tree import Caller, CallerWait, CallReport, Who
from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles
from biotrail.recorder.schema.syscalls import KERNEL_THREAD, shown_name

MOST = 10
_WORKERS = shown_name(KERNEL_THREAD, False, "")
_WAITING = ("runnable", "own_io", "other_io")
"""Parts of a call's time in which it waits for a CPU, or for I/O, or for who does it."""


class Callers:
    """Finds the calls that waited most; takes each window after the figures that it rests on."""

    def __init__(self, context: Context, calls: CallsByGroup, waits: WaitsByReason) -> None:
        """context: the log's. calls: by process. waits: of the same windows."""
        self._context, self._calls, self._waits = context, calls, waits
        self._meanwhile = Meanwhile(context)
        self._names = ProcessNames()
        self._process: dict[int, int] = {}
        """Thread → its process."""

    def add(self, window: Lifecycles) -> None:
        """Take the log's next window."""
        if window.path is None:
            return
        self._process.update((tid, tgid) for tid, tgid, _ in self._names.take(window.tasks))
        self._meanwhile.add(window)

    def reports(self) -> list[Caller]:
        """Return the MOST pairs of a process and a call's name that waited most, the first most.

        Calls that did no I/O, of kernel threads and of processes that are not known are none.
        """
        found = [
            one
            for one in self._calls.reports()
            if one.io and one.call != _WORKERS and one.name.get("pid") is not None
        ]
        found.sort(key=lambda one: (-waited_ns(one), one.call))
        return [self._caller(one) for one in found[:MOST] if waited_ns(one)]

    def _caller(self, one: CallReport) -> Caller:
        pid = int(one.name["pid"] or 0)
        beside = self._meanwhile.of(pid)
        waits = self._waits.of_call(pid, one.call)
        ran = sum((wait.ran for wait in waits), Counter[int]())
        devices = {party.party.device for party in beside}
        return Caller(
            call=one,
            waits=[
                CallerWait(
                    reason=wait.reason,
                    ns=wait.ns,
                    own_io_ns=wait.own_io_ns,
                    limit=self._limit(wait.limits.most_common(1)),
                    waker=self._who(wait.wakers.most_common(1)),
                )
                for wait in waits
                if wait.reason != WAIT_REASON_NAMES[WaitReason.UNKNOWN]
            ],
            ran=[who for by, ns in ran.most_common() if (who := self._named(by, ns))],
            beside=beside,
            carried={
                party: size
                for party, size in self._meanwhile.carried().items()
                if party.device in devices and party.pid != pid
            },
        )

    def _limit(self, most: list[tuple[int, int]]) -> str | None:
        return self._context.cgroups.get(most[0][0]) if most else None

    def _who(self, most: list[tuple[int, int]]) -> Who | None:
        """Return the process of the thread, with the ns."""
        for tid, ns in most:
            return self._named(self._process.get(tid, 0), ns)
        return None

    def _named(self, pid: int, ns: int) -> Who | None:
        """Return a process by its id, with the ns; None: it has no name, or is the idle task."""
        name = self._names[pid] if pid else ""
        return Who(name, pid, self._context.titles.title(pid, name), ns) if name else None


def waited_ns(one: CallReport) -> int:
    """Return how long calls waited for a CPU, for I/O, or for who does it, ns."""
    return sum(part.time.sum for part in one.parts if part.stage in _WAITING)
