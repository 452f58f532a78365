# SPDX-License-Identifier: Apache-2.0
"""Parts of an I/O's way through the block layer: their time in a report, their words."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from biotrail.converters.analysis.report.tree import DeviceReport, OperationReport, Report

Found = tuple[str, str, dict[str, Any]]
"""What a rule of the verdict finds: text, what to look at next, figures."""
BELOW_SHARE = 0.5
"""A device is below another if at least this share of its bios have a parent."""
READING = "docs/reading.md"
CPU_NEXT = f"who uses the CPUs, and cpu.max: {READING}, For a CPU"
"""What to look at where a thread waits for a CPU."""
STAGES = {
    "D2C": ("D2C",),
    "bio-based": ("bio-based",),
    "Q2G": ("Q2G",),
    "I2D": ("I2D",),
    "plug": ("G2I", "M2I"),
    "G2D": ("G2D", "M2D", "Q2D"),
    "flush": ("flush", "pre-flush", "post-flush"),
    "R2D": ("R2D",),
    "Q2M": ("Q2M",),
    "failed": ("failed",),
    "unknown": ("unknown",),
}
"""Stages that are one part of an I/O's way, by the part's name."""
WORDS = {
    "D2C": "in the device (D2C)",
    "bio-based": "in the driver of a device without requests (bio-based)",
    "Q2G": "waiting for a request (Q2G)",
    "I2D": "in the scheduler (I2D)",
    "plug": "held back by the task, in its plug (G2I, M2I)",
    "G2D": "between getting a request and its issue (G2D, M2D)",
    "flush": "waiting for flushes",
    "R2D": "after the driver gave requests back (R2D)",
    "Q2M": "looking for a request to join (Q2M)",
    "failed": "before failing without an issue (failed)",
    "unknown": "in stages that the log does not show",
}
"""Where an I/O is in each part, as the sentences say it."""
NEXT = {
    "D2C": f"In flight and sizes below; {READING}, D2C",
    "bio-based": f"Stacked devices below; {READING}, D2C of a stacked device",
    "Q2G": f"nr_requests, and who queues so much: {READING}, Q2G",
    "I2D": f"biotrail slow: what went ahead; {READING}, I2D",
    "plug": f"merges below; {READING}, G2I, M2I, G2D, M2D",
    "G2D": f"merges below; {READING}, G2I, M2I, G2D, M2D",
    "flush": f"Flush requests below; {READING}, flush",
    "R2D": f"requeues; {READING}, R2D",
    "Q2M": f"busy CPUs; {READING}, Q2M",
    "failed": "biotrail slow --failed",
    "unknown": f"biotrail info: what is missing; {READING}, What is missing",
}
"""What to look at when most time is in a part."""
_PLURALS = {"read": "reads", "write": "writes", "flush": "flushes", "discard": "discards"}


def percent(share: float) -> str:
    """Return a share as a percentage; `more than 99 %` where rounding would give 100."""
    if 0.995 <= share < 1:
        return "more than 99 %"
    return f"{100 * share:.0f} %" if share >= 0.1 else f"{100 * share:.2g} %"


def ios_text(name: str) -> str:
    """Return an operation's plural: `reads`, `write_zeroes I/Os`."""
    return _PLURALS.get(name, f"{name} I/Os")


def operation_name(one: OperationReport) -> str:
    """Return the operation's name."""
    return str(one.bios.name["operation"])


def where_text(device: str, name: str) -> str:
    """Return which I/O a sentence is about: `writes on sda`."""
    return f"{ios_text(name)} on {device}"


def upper_devices(report: Report) -> list[DeviceReport]:
    """Return the devices with I/O that are not below another (BELOW_SHARE)."""
    children: Counter[str] = Counter()
    for pair in report.stacked:
        children[pair.below] += pair.children
    return [
        device
        for device in report.devices
        if (ios := device.total.bios.ios) and children[device.device] < BELOW_SHARE * ios
    ]


def time_by_part(ones: Iterable[OperationReport]) -> Counter[str]:
    """Return the time of the operations' bios by part, ns."""
    of = {stage: part for part, stages in STAGES.items() for stage in stages}
    found: Counter[str] = Counter()
    for one in ones:
        for stage in one.bios.stages:
            found[of[stage.stage]] += stage.time.sum
    return found


def recorder_share(ones: Iterable[OperationReport], part: str) -> float:
    """Return the share of a part's time that the recorder's own programs had; 0: not known."""
    stages = [one for each in ones for one in each.bios.stages if one.stage in STAGES[part]]
    whole = sum(one.time.sum for one in stages)
    return sum(one.recorder_share * one.time.sum for one in stages) / whole if whole else 0.0


def upper_operations(report: Report) -> list[tuple[str, OperationReport]]:
    """Return (device, operation) for all operations of upper devices."""
    return [(device.device, one) for device in upper_devices(report) for one in device.operations]


def whole_time(report: Report) -> tuple[Counter[str], int]:
    """Return the time of all bios of upper devices by part, and in all, ns."""
    parts = time_by_part(one for _, one in upper_operations(report))
    return parts, sum(parts.values())
