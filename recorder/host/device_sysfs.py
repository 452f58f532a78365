# SPDX-License-Identifier: Apache-2.0
"""Reads the facts of one block device from sysfs. A fact that is not known has no key."""

import contextlib
import fcntl
import os
import re
import sys
from typing import Any

from biotrail.recorder.host.device_mounts import Mounts, Roots
from biotrail.recorder.schema.device_numbers import dev_number, kernel_dev

_LOOP_GET_STATUS64 = 0x4C05
_LOOP_INFO_BYTES = 232
_BLANK = " \t\r\n\0"

_QUEUE_NUMBERS = (
    *("nr_requests", "max_sectors_kb", "max_hw_sectors_kb", "max_segments", "max_segment_size"),
    *("max_discard_segments", "logical_block_size", "physical_block_size", "minimum_io_size"),
    *("optimal_io_size", "chunk_sectors", "discard_granularity", "discard_max_bytes"),
    *("write_zeroes_max_bytes", "read_ahead_kb", "nomerges", "rq_affinity", "iostats"),
    *("wbt_lat_usec", "io_poll", "fua", "dax", "stable_writes", "nr_zones"),
)
_KINDS = (
    (re.compile(r"loop\d"), "loop"),
    (re.compile(r"md[\d_]"), "md"),
    (re.compile(r"dm-\d"), "dm"),
    (re.compile(r"zram\d"), "zram"),
    (re.compile(r"ram\d"), "ram"),
    (re.compile(r"pmem\d"), "pmem"),
    (re.compile(r"nbd\d"), "nbd"),
    (re.compile(r"rbd\d"), "rbd"),
    (re.compile(r"drbd\d"), "drbd"),
    (re.compile(r"bcache\d"), "bcache"),
    (re.compile(r"sr\d"), "rom"),
    (re.compile(r"fd\d"), "floppy"),
)


def read(path: str) -> str | None:
    """Return a sysfs attribute, stripped of white space; None: absent, unreadable or empty."""
    return _bytes(path).decode("utf-8", "replace").strip(_BLANK) or None


def _bytes(path: str) -> bytes:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(fd, 4096)
    except OSError:  # the device went away, or the attribute does not apply to it
        return b""
    finally:
        os.close(fd)


def number(path: str) -> int | None:
    """Return the integer in the sysfs attribute at `path`; None: it has none."""
    text = read(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def entry(path: str, dev: int, roots: Roots, mounts: Mounts) -> dict[str, Any] | None:
    """Return the facts of the block device `dev` (kernel dev_t), as in a log's header.

    `path`: its sysfs directory. A fact that is not known, does not apply or is empty has no key.
    None where the device has gone, also while it was read.
    """
    sectors = number(f"{path}/size")
    if sectors is None:
        return None
    # In sysfs, "!" replaces the "/" of names such as cciss/c0d0.
    name = os.path.basename(path).replace("!", "/")
    partition = os.path.exists(f"{path}/partition")
    names: list[str] = []
    with contextlib.suppress(OSError):
        names = os.listdir(f"{path}/slaves")
    below = (dev_number(read(f"{path}/slaves/{one}/dev")) for one in names)
    found: dict[str, Any] = {
        "dev": dev,
        "name": name,
        "kind": "partition" if partition else kind(path, name),
        "disk": dev_number(read(f"{os.path.dirname(path)}/dev")) if partition else dev,
        "start": number(f"{path}/start") if partition else None,
        "sectors": sectors,
        "read_only": True if read(f"{path}/ro") == "1" else None,
        "stacked_on": sorted(dev for dev in below if dev is not None),
        "mounts": mounts.points.get(dev),
    }
    if not partition:
        found |= _disk(path, roots, mounts)
    # Path disks of NVMe multipath, which are `hidden`, have no attribute `dev`.
    is_there = os.path.exists(f"{path}/dev") or read(f"{path}/hidden") == "1"
    return _known(**found) if is_there else None


def kind(path: str, name: str) -> str:
    for directory in ("dm", "md", "loop"):
        if os.path.isdir(f"{path}/{directory}"):
            return directory
    return next((kind for pattern, kind in _KINDS if pattern.match(name)), "disk")


def _disk(path: str, roots: Roots, mounts: Mounts) -> dict[str, Any]:
    zoned = read(f"{path}/queue/zoned")
    queue = _known(**{name: number(f"{path}/queue/{name}") for name in _QUEUE_NUMBERS})
    with contextlib.suppress(OSError):
        # Only request-based devices have this directory (blk_mq_sysfs_register).
        queue["nr_hw_queues"] = len(os.listdir(f"{path}/mq"))
    schedulers = read(f"{path}/queue/scheduler")
    chosen = re.search(r"\[(.+?)\]", schedulers or "")
    driver = None
    with contextlib.suppress(OSError):
        driver = os.path.basename(os.readlink(f"{path}/device/driver"))
    return {
        "dm_name": read(f"{path}/dm/name"),
        "dm_uuid": read(f"{path}/dm/uuid"),
        "md": _known(
            level=read(f"{path}/md/level"),
            disks=number(f"{path}/md/raid_disks"),
            chunk_bytes=number(f"{path}/md/chunk_size"),
            state=read(f"{path}/md/array_state"),
        ),
        "loop": _loop(path, roots, mounts),
        # In brackets in "none [mq-deadline] bfq", or the only one.
        "scheduler": chosen[1] if chosen else schedulers,
        "rotational": _flag(read(f"{path}/queue/rotational")),
        "removable": True if read(f"{path}/removable") == "1" else None,
        "write_cache": read(f"{path}/queue/write_cache"),
        "zoned": None if zoned == "none" else zoned,
        "queue": queue,
        "model": read(f"{path}/device/model"),
        "vendor": read(f"{path}/device/vendor"),
        "serial": read(f"{path}/serial")
        or read(f"{path}/device/serial")
        # SCSI: page 80h of the vital product data has four bytes of header, then the number.
        or _bytes(f"{path}/device/vpd_pg80")[4:].decode("utf-8", "replace").strip(_BLANK),
        "firmware": read(f"{path}/device/firmware_rev") or read(f"{path}/device/rev"),
        "wwid": read(f"{path}/wwid") or read(f"{path}/device/wwid"),
        "driver": driver,
    }


def _loop(path: str, roots: Roots, mounts: Mounts) -> dict[str, Any]:
    """Return the facts of a loop device and its file; {} for others, and without a file.

    "backing_dev": the file if it is a block device, else the only one that its file system is on.
    """
    file = read(f"{path}/loop/backing_file")
    if file is None:
        return {}
    backing = roots.number(file)
    if not backing:
        try:
            st_dev: int | None = kernel_dev(os.stat(file).st_dev)
        except OSError:  # deleted, in another mount namespace, or not permitted
            st_dev = _loop_status_dev(f"{roots.dev}/{os.path.basename(path)}")
        below = [] if st_dev is None else mounts.devices.get(st_dev, [])
        backing = below[0] if len(below) == 1 else None
    return _known(
        file=file,
        direct_io=_flag(read(f"{path}/loop/dio")),
        offset=number(f"{path}/loop/offset"),
        size_limit=number(f"{path}/loop/sizelimit"),
        backing_dev=backing,
    )


def _known(**facts: Any) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if value not in (None, "", [], {})}


def _loop_status_dev(node: str) -> int | None:
    """Return the st_dev of a loop device's file as the driver knows it; None: it has none."""
    answer = bytearray(_LOOP_INFO_BYTES)
    try:
        fd = os.open(node, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.ioctl(fd, _LOOP_GET_STATUS64, answer)
    except OSError:  # the loop device has no file any more
        return None
    finally:
        os.close(fd)
    return kernel_dev(int.from_bytes(answer[:8], sys.byteorder))


def _flag(text: str | None) -> bool | None:
    return None if text is None else text == "1"
