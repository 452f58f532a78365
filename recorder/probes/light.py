# SPDX-License-Identifier: Apache-2.0
"""What the event set `light` cannot be combined with: it sees a request at its completion only."""

from pathlib import Path

from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.programs import LIGHT
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ProbeError

_DEVICES = Path("/sys/dev/block")
_SUBMITTER = "no task is known at a completion"
_WHOLE = "a completion does not show the request as it was queued"
_QUEUED = "it is known only when a bio is queued"
_HANGS = "what hangs has no completion, so the log would not show it; --events minimal does"


def refuse(config: ProbeConfig) -> None:
    """Raise ProbeError if a recording of the set `light` asks for what it does not have."""
    if config.events != LIGHT:
        return
    filters, triggers = config.filters, config.triggers
    asked = (
        ("--pid", filters.pids, _SUBMITTER),
        ("--tid", filters.tids, _SUBMITTER),
        ("--comm", filters.comms, _SUBMITTER),
        ("--file", filters.files, _QUEUED),
        ("--dir", filters.dirs, _QUEUED),
        ("--min-size", filters.min_bytes, _WHOLE),
        ("--sectors", filters.sectors, _WHOLE),
        ("--stacks", config.stacks, _QUEUED),
        ("--files", config.files, _QUEUED),
        ("--path", config.path, _QUEUED),
        ("--trigger depth", triggers.depth, "requests in flight are not counted"),
        ("--trigger stuck", triggers.stuck_ns, _HANGS),
    )
    for option, why in ((option, why) for option, given, why in asked if given):
        raise ProbeError(
            f"--events light cannot have {option}: {why}; leave it out, or record another event set"
        )
    disks = {disk for disk, _ in config.devices}
    if disks and not any(map(has_requests, disks)):
        raise ProbeError(
            "--events light records requests, and no chosen device has any, as most of dm and md: "
            "add --below for the devices that they stand on, or record another event set"
        )


def has_requests(disk: int) -> bool:
    """Return whether a disk (dev_t) makes requests; True where sysfs does not have the disk."""
    base = _DEVICES / dev_text(disk)
    return not base.exists() or (base / "mq").exists()
