# SPDX-License-Identifier: Apache-2.0
"""Which devices of a window may have plain I/O, and how they stand to each other."""

import numpy as np

from biotrail.converters.association.ranges.md_parity import parity_arrays
from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64
from biotrail.recorder.schema.records import Kind


def plain_devices(context: Context, events: Events) -> I64:
    """Return the disks (dev_t) whose I/O may be plain, ascending.

    Not those whose requests or bios are linked to others by more than A: loop devices with files
    on listed devices, and all that stand on each other beside these; devices whose requests are
    those of others (dm's multipath); and md's with parity, whose A do not name a stripe.
    """
    remaps = events.fields(Kind.RQ_REMAP, events.rows(Kind.RQ_REMAP))
    left_out = set(remaps["from_dev"].tolist()) | set(remaps["dev"].tolist())
    left_out |= parity_arrays(context)
    below = {d: {context.disk_of(low) for low in context.lower_devices(d)} for d in context.devices}
    stacked = {dev: lower for dev, lower in below.items() if lower}
    if any(has_requests(context, dev) for dev in stacked):
        left_out |= set(stacked).union(*stacked.values())
    return np.array(sorted(set(context.devices) - left_out), np.int64)


def has_requests(context: Context, dev: int) -> bool:
    """Return whether a device is known to make requests: a loop device, or one with queues."""
    entry = context.devices[dev]
    return entry.get("kind") == "loop" or "nr_hw_queues" in entry.get("queue", {})


def device_table(context: Context, devices: I64, events: Events) -> I64:
    """Return (3, n): these devices; whether some A of the events comes from each; whether stacked.

    The A of partitions are none of those.
    """
    source = np.unique(events.field(Kind.A, "from_dev", events.rows(Kind.A)))
    sends = np.isin(devices, source)
    stacked = [bool(context.lower_devices(dev)) for dev in devices.tolist()]
    return np.array([devices, sends, stacked], np.int64)


def partitions_of(context: Context, disks: I64) -> I64:
    """Return (2, n) dev_t: partitions of these disks, and the disk of each."""
    pairs = [(dev, context.disk_of(dev)) for dev in context.devices]
    known = set(disks.tolist())
    found = [(dev, disk) for dev, disk in pairs if dev != disk and disk in known]
    return np.array(found, np.int64).reshape(-1, 2).T.copy()
