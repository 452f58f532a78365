# SPDX-License-Identifier: Apache-2.0
"""A guest's log joined with its host's: disks with their images, one clock, linked requests."""

from dataclasses import dataclass

import numpy as np

from biotrail.converters.analysis.guests.agreement import Agreement, agree
from biotrail.converters.analysis.guests.image import Mapping
from biotrail.converters.analysis.guests.links import Links, Recorded, link
from biotrail.converters.analysis.guests.sides import (
    Asked,
    Process,
    Served,
    guest_side,
    host_side,
)
from biotrail.converters.events.context import Context
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError


@dataclass(frozen=True)
class Disk:
    """A virtual disk and what is behind it."""

    dev: int
    """dev_t in the guest."""
    part: int
    """dev_t on the host of the device, or partition, with the image."""
    asked: Asked
    served: Served
    links: Links
    agreement: Agreement


@dataclass(frozen=True)
class Guest:
    """What `join` found."""

    process: Process
    guest: Context
    host: Context
    disks: list[Disk]
    agreement: Agreement
    """Of the disk with the tightest bound; the clocks are all disks' clocks."""
    unmatched: list[int]
    """dev_t of the guest's disks with requests that are on no device of the host's log."""


def join(guest: Trace, host: Trace, wanted: str, mapping: Mapping) -> Guest:
    """Read both logs to their ends, and link the guest's requests with the host's bios.

    wanted: the virtual machine's process on the host, its id or name. Raises ConversionError: no
    such process, or no disk of the guest is found on the host.
    """
    asked = guest_side(guest)
    served, process = host_side(host, wanted, mapping)
    found: list[tuple[int, int, Agreement]] = []
    unmatched = []
    for dev in np.unique(asked.dev).tolist():
        best = _image_of(asked.take(asked.dev == dev), served)
        if best is None:
            unmatched.append(dev)
        else:
            found.append((dev, *best))
    if not found:
        raise ConversionError(
            f"--guest-of {wanted}: no disk of the guest has its requests among the "
            f"{len(served):,} bios of process {process.pid} ({process.name}) by sector, operation "
            "and order: were both recorded at the same time, with cache=none or a device that the "
            "host recorded? An image in a file or of qcow2 needs --image (docs/guests.md)"
        )
    agreement = min((one for *_, one in found), key=lambda one: one.fit.line.within)
    recorded = _recorded(host)
    disks = []
    for dev, part, own in found:
        mine = asked.take(asked.dev == dev), served.take(served.part == part)
        links = link(*mine, agreement.fit.line, recorded)
        disks.append(Disk(dev, part, *mine, links, own))
    return Guest(process, guest.context, host.context, disks, agreement, unmatched)


def _recorded(host: Trace) -> Recorded:
    """Return what a log covers, once it was read to its end; all time without clock readings."""
    clocks = [reading["monotonic"] for reading in host.context.clocks]
    begin, end = (clocks[0], clocks[-1]) if clocks else (0, int(np.iinfo(np.int64).max))
    return Recorded(begin, end, [(int(w["start"]), int(w["end"])) for w in host.losses])


def _image_of(asked: Asked, served: Served) -> tuple[int, Agreement] | None:
    """Return the device on the host where most of a disk's requests are found; None: nowhere."""
    found = [
        (part, agreement)
        for part in np.unique(served.part).tolist()
        if (agreement := agree(asked, served.take(served.part == part))) is not None
    ]
    return max(found, key=lambda one: one[1].requests, default=None)
