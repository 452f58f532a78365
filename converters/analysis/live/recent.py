# SPDX-License-Identifier: Apache-2.0
"""A stretch of a recording that goes on as a report, for its first sentences."""

from collections.abc import Mapping
from dataclasses import replace

from biotrail.converters.analysis.blame.tree import Blamed, Victim, Waited
from biotrail.converters.analysis.distributions.depth import Depth
from biotrail.converters.analysis.distributions.groups import Group
from biotrail.converters.analysis.distributions.keys import OP_BITS
from biotrail.converters.analysis.report.calls.callers import Callers
from biotrail.converters.analysis.report.calls.groups import CallsByGroup
from biotrail.converters.analysis.report.calls.waits import WaitsByReason
from biotrail.converters.analysis.report.devices.devices import Device
from biotrail.converters.analysis.report.devices.held import HeldByLimit
from biotrail.converters.analysis.report.summaries import (
    device_report,
    operation_report,
    operation_reports,
    time_and_number,
)
from biotrail.converters.analysis.report.tree import (
    DepthReport,
    GroupReport,
    LossReport,
    Percentiles,
    Report,
)
from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import Lifecycles

_NOTHING_LOST = LossReport({}, 0, 0, 0, False, 0, 0, 0, 0, [], [])
Places = dict[int, Group]


class Recent:
    """What sentences need of a stretch beside its groups: calls that waited, and limits."""

    def __init__(self, context: Context) -> None:
        """context: of the log."""
        self._context = context
        self._waits = WaitsByReason(context)
        self._calls = CallsByGroup(context, "process")
        self._callers = Callers(context, self._calls, self._waits)
        self._held = HeldByLimit(context)

    def add(self, window: Lifecycles) -> None:
        """Add the stretch's next window."""
        if window.path is None:
            return
        self._calls.add(window)
        self._waits.add(window)
        self._callers.add(window)
        self._held.add(window)

    def report(
        self,
        begin: int,
        end: int,
        groups: tuple[Places, Places],
        processes: list[GroupReport],
        depths: Mapping[str, DepthReport],
        blamed: Blamed | None,
    ) -> Report:
        """Return the stretch's report, whose lists are those that sentences are made of.

        begin, end: ns. groups: of bios that no stacked device queued for others, and of requests,
        by place. depths: name of a device → bios in flight. blamed: who waited for whom.
        """
        context, span = self._context, max(end - begin, 0)
        bios, requests = groups
        devices = []
        for dev in sorted({place >> OP_BITS for place in (*bios, *requests) if place >= 0}):
            operations = operation_reports(dev, bios, requests, {}, span, context)
            nothing = Device(Depth(0), Depth(0))
            one = device_report(dev, nothing, None, [], [], operations, {}, span, context)
            devices.append(replace(one, queue=depths.get(one.device, one.queue)))
        return Report(
            log_id=context.log_id,
            host=context.host,
            kernel="",
            begin_ns=begin,
            end_ns=end,
            begin=None,
            total=operation_report({}, bios.values(), requests.values(), span, context),
            devices=sorted(devices, key=lambda one: time_and_number(one.total.bios)),
            processes=processes,
            loss=_NOTHING_LOST,
            percentiles=Percentiles(),
            waits=self._waits.reports(),
            held=self._held.reports(),
            callers=self._callers.reports(),
            path_parts=tuple(context.path_parts),
            blamed=blamed,
        )


def blamed_now(by: str, victims: list[Waited]) -> Blamed:
    """Return who waited for whom in a stretch, without what would be without a culprit."""
    told = [
        Victim(
            name=one.name,
            ios=one.ios,
            wait_ns=one.wait_ns,
            parts=one.parts,
            small_ns=one.small_ns,
            p99_ns=0,
            without=[],
        )
        for one in victims
    ]
    return Blamed(by, by, told)
