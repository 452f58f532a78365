# SPDX-License-Identifier: Apache-2.0
"""Descriptions of tracks, which the UI shows behind each track's help button."""

from biotrail.converters.events.tables import Stage
from biotrail.converters.outputs.perfetto.names import STAGE_TITLES

_STAGES = {
    Stage.Q2G: "waits for a request",
    Stage.G2I: "has a request, which is not in the scheduler yet (plugged)",
    Stage.I2D: "waits in the scheduler",
    Stage.G2D: "has a request, which is not issued yet (no scheduler)",
    Stage.Q2D: "waits until it is issued; no event lies between",
    Stage.D2C: "in the device",
    Stage.Q2M: "waits until it is merged into another's request",
    Stage.M2I: "merged; that request is not in the scheduler yet (plugged)",
    Stage.M2D: "merged; that request is not issued yet (no scheduler)",
    Stage.R2D: "given back by the driver (requeue), until it is issued again",
    Stage.PRE_FLUSH: "waits for the flush before its data",
    Stage.POST_FLUSH: "its data is written, and waits for the flush after that",
    Stage.FLUSH: "a flush without data (fsync), until the device has flushed",
    Stage.BIO_BASED: "in a device that takes bios as they are (dm, md, zram)",
    Stage.FAILED: "failed before it was issued",
    Stage.UNKNOWN: "its issue was not seen",
}
_LANES = "A lane has no meaning: what overlaps in time lies on different lanes."
_LINES = "\n".join(f"{STAGE_TITLES[stage]}: {text}." for stage, text in _STAGES.items())

ROOT = "Block I/O as the kernel saw it, recorded by biotrail. Below: a group for each device."
SLOW = (
    "The I/Os with the longest latency, of those that the trace shows whole and whose end is not "
    "in doubt, named by operation, size and process, with their stages; `why` says what they "
    f"waited for. At most three overlap, so that not all are of one burst. {_LANES}"
)
SLOW_CALLS = (
    "The system calls that took longest, of those that queued I/O or waited for it, with their "
    f"waits. At most three overlap, so that not all are of one burst. {_LANES}"
)
LOSSES = "Records were lost meanwhile: what was in flight then is marked."
BIOS = (
    "A slice is a bio, from queue (Q) to completion (C). Its stages lie in it and fill it without "
    f"gaps, so a sum over an area has each moment twice. {_LANES}\n{_LINES}"
)
STATES = (
    "idle: no I/O was queued or in flight. flushing: a flush was in flight (fsync, or the flush "
    "before or after data that asks for it). busy: other I/O alone. Gaps that are short beside the "
    "trace are not drawn: at most 250 stretches of a kind are told apart."
)
REQUESTS = (
    "A slice is a request, from allocation (G) to completion (C): what the driver saw. Its stages "
    f"lie in it, as those of bios do. {_LANES}"
)
MORE = "What was beyond the first {} lanes of {}, more than a screen holds. A lane has no meaning."
JOURNAL = (
    "A slice is a commit of the file system's journal (jbd2), with its phases in it. Starting: the "
    "transaction is chosen. Locking: it waits for calls that still change it. Flushing: data of "
    "files that has to precede is written. Logging: metadata and the commit block are written."
)
INTERRUPTS = (
    "A slice is an interrupt of the device, or a BLOCK softirq without one, up to the last request "
    "that it completed. Only what led to a recorded completion is drawn, and by default the "
    "longest of them. "
    f"{_LANES}"
)
