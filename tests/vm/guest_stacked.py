# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: devices upon devices, of more kinds; zones that are appended to.

`hops` tells the test which devices each level has, from the top down.
"""

import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.vm.guest_case import (
    SECTORS,
    Case,
    Unavailable,
    dm,
    is_shown,
    module,
    nvme_disk,
    put,
    run,
    scheduler,
    tool,
    wait_for,
)
from tests.vm.guest_devices import MIXED, Kinds, Load, Prepared, devices, null_blk
from tests.vm.guest_faults import second_path
from tests.vm.guest_stack import array, dm_name, lvm, partition, volume

PARTITION_MIB = 96
ZONE_MIB = 4
ZONEFS_MAGIC = 0x5A4F4653
ZONEFS_SUPER_BYTES = 4096


@contextmanager
def memory(count: int, mib: int) -> Iterator[list[str]]:
    """So many null_blk disks that keep what is written."""
    with ExitStack() as stack:
        names = []
        for number in range(count):
            made = null_blk(f"nullb_{mib}_{number}", memory_backed=1, size=mib)
            names.append(stack.enter_context(made))
            scheduler(names[-1], "none")
        yield names


@contextmanager
def thin(name: str, mib: int) -> Iterator[list[str]]:
    """A volume in a pool with blocks of 64 KiB that are not zeroed: it, the pool, the disk."""
    module("dm-thin-pool")
    with memory(2, mib) as (data, metadata):
        pool_table = f"0 {SECTORS} thin-pool /dev/{metadata} /dev/{data} 128 0 1 skip_block_zeroing"
        with dm(f"{name}-pool", pool_table) as pool:
            run("dmsetup", "message", f"{name}-pool", 0, "create_thin 0")
            with dm(name, f"0 {SECTORS} thin /dev/{pool} 0") as volume_name:
                yield [volume_name, pool, data]


@contextmanager
def dm_thin() -> Prepared:
    """A volume whose blocks are all there, so that what is written goes straight on."""
    with thin("thin", 65) as levels:
        run("dd", "if=/dev/zero", f"of=/dev/{levels[0]}", "bs=1M", "count=4", "oflag=direct")
        yield Load(levels, MIXED, {"hops": [[name] for name in levels]})


@contextmanager
def dm_thin_new() -> Prepared:
    """A volume of which each block is allocated when it is first written."""
    with thin("newthin", 66) as levels:
        yield Load(levels, MIXED | {"rw": "randwrite"})


@contextmanager
def md_raid5() -> Prepared:
    """One at a time: what md itself reads for a write looks like what a read sends on."""
    tool("mdadm")
    module("raid456")
    with memory(3, 67) as disks:
        array("md9", disks, "--level=5", "--chunk=64")
        try:
            options = MIXED | {"rw": "rw", "iodepth": 1}
            yield Load(["md9", *disks], options, {"hops": [["md9"], disks]})
        finally:
            run("mdadm", "--stop", "/dev/md9")


@contextmanager
def lvm_on_raid1() -> Prepared:
    """A volume on a mirror on two partitions."""
    for needed in ("mdadm", "lvm", "addpart"):
        tool(needed)
    module("raid1")
    with memory(2, PARTITION_MIB + 1) as disks:
        array("md10", [partition(name) for name in disks], "--level=1")
        name = dm_name(volume("md10", "onmirror"))
        try:
            told = {"hops": [[name], ["md10"], disks]}
            yield Load([name, "md10", *disks], MIXED, told)
        finally:
            lvm("vgchange", "-an", "onmirror")
            run("mdadm", "--stop", "/dev/md10")


def multipath(paths: tuple[str, str]) -> str:
    """The table of two paths to one disk, by turns."""
    module("dm-multipath")
    module("dm-round-robin")
    disks = " ".join(f"/dev/{path} 1" for path in paths)
    return f"0 {SECTORS} multipath 0 0 1 1 round-robin 0 2 1 {disks}"


@contextmanager
def dm_multipath() -> Prepared:
    """Request-based: each request of the upper device is another one of a path."""
    with second_path() as paths, dm("multipath", multipath(paths)) as name:
        yield Load([name, *paths], MIXED)


@contextmanager
def dm_multipath_lost() -> Prepared:
    """A path is gone, which the upper device finds out by its requests."""
    with second_path() as paths, dm("lost", multipath(paths)) as name:
        state = f"/sys/block/{paths[1]}/device/state"
        believed = f"dmsetup message lost 0 reinstate_path /dev/{paths[1]}"
        lost, back = f"{believed}; echo offline >{state}", f"echo running >{state}"
        yield Load([name, *paths], MIXED, before=lost, after=back)


@contextmanager
def nvme_multipath() -> Prepared:
    """One disk by two controllers, by turns; recorded by its own name."""
    name = nvme_disk("2")
    disks = Path("/sys/block").glob(f"{name.removesuffix('n1')}c*n1")
    paths = sorted(path.name for path in disks if not is_shown(path))
    if len(paths) != 2:
        raise Unavailable("the kernel's NVMe driver knows no paths")
    put(Path(f"/sys/block/{name}/device/iopolicy"), "round-robin")
    yield Load([name], MIXED, {"paths": paths})


def zonefs_super() -> bytes:
    """A file of each zone, and nothing but: what mkfs.zonefs writes."""
    uuid = bytes(range(16))
    fields = (ZONEFS_MAGIC, 0, b"", uuid, 0, 0, 0, 0o640)
    block = bytearray(struct.pack("<II32s16sQIII", *fields).ljust(ZONEFS_SUPER_BYTES, b"\0"))
    struct.pack_into("<I", block, 4, zlib.crc32(block) ^ 0xFFFFFFFF)
    return bytes(block)


@contextmanager
def zones(kind: str, mib: int, conventional: int) -> Iterator[tuple[str, Path]]:
    """A disk of zones for a file system, and where it may be mounted."""
    module(kind)
    attributes = {"zone_size": ZONE_MIB, "zone_nr_conv": conventional, "size": mib}
    with null_blk(f"nullb_{kind}", zoned=1, memory_backed=1, **attributes) as name:
        module("mq-deadline")
        scheduler(name, "mq-deadline")
        place = Path("/run") / kind
        place.mkdir(exist_ok=True)
        yield name, place


@contextmanager
def zone_append() -> Prepared:
    """Synchronous writes to zonefs: where in the zone they go the device says."""
    with zones("zonefs", 64, 1) as (name, place):
        Path(f"/dev/{name}").write_bytes(zonefs_super())
        run("mount", "-t", "zonefs", f"/dev/{name}", place)
        try:
            wait_for(place / "seq" / "1")
            files = ":".join(f"{place}/seq/{number}" for number in range(2))
            kept = dict.fromkeys(("unlink", "create_on_open", "allow_file_create"), 0)
            writes = {"rw": "write", "bs": "16k", "size": "1m", "sync": 1, "file_append": 1}
            engine = {"ioengine": "psync", "iodepth": 1, "fallocate": "none"}
            told = {"zone_sectors": ZONE_MIB << 11}
            yield Load([name], {"filename": files} | writes | engine | kept, told)
        finally:
            run("umount", place)


@contextmanager
def zone_append_btrfs() -> Prepared:
    """Several at once to a file on btrfs, which leaves it to the device where they go."""
    tool("mkfs.btrfs")
    with zones("btrfs", 256, 0) as (name, place):
        if "btrfs_get_dev_zone_info" not in Path("/proc/kallsyms").read_text():
            raise Unavailable("this kernel's btrfs knows no zones")
        run("mkfs.btrfs", "-q", "-O", "zoned", "-d", "single", "-m", "single", f"/dev/{name}")
        run("mount", "-t", "btrfs", f"/dev/{name}", place)
        try:
            told = {"zone_sectors": ZONE_MIB << 11}
            file = {"filename": place / "file", "rw": "write", "bs": "16k", "fallocate": "none"}
            yield Load([name], file, told)
        finally:
            run("umount", place)


DEVICES: Kinds = (
    dm_thin,
    dm_thin_new,
    md_raid5,
    lvm_on_raid1,
    dm_multipath,
    dm_multipath_lost,
    nvme_multipath,
    zone_append,
    zone_append_btrfs,
)


def stacked(whole: Case) -> None:
    """All of them in one recording, as `devices` has its own."""
    devices(whole, DEVICES)


CASES = (stacked,)
