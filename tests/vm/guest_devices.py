# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: one case for each kind of device.

A case makes its device and says what load it wants. All loads run one after the other in one
recording, `devices/log.biotrail`: beginning one takes most of a case's time in emulation. What the
kernel skipped events of runs in a recording more.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.vm.guest_case import (
    DISK_BYTES,
    SECTORS,
    Case,
    Unavailable,
    disk,
    dm,
    fio,
    module,
    put,
    run,
    scheduler,
    tool,
    wait_for,
)
from tests.vm.guest_repeats import record_loads

NULLB = Path("/sys/kernel/config/nullb")
MIXED = {"bsrange": "4k-64k", "size": "4m"}
"""Sizes that stripes and device limits split."""


@dataclass
class Load:
    """fio's options for the first of `devices`; the others are below it. `told`: for the test.

    before, after: what the shell is told about it, within the recording.
    """

    devices: list[str]
    options: dict[str, object] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    before: str = "true"
    after: str = "true"


Prepared = Iterator[Load]


@contextmanager
def null_blk(name: str, **attributes: object) -> Iterator[str]:
    """A null_blk device of 64 MiB with these attributes; gives its kernel name."""
    module("null_blk", "nr_devices=0")
    if not NULLB.is_dir():
        run("mount", "-t", "configfs", "configfs", "/sys/kernel/config")
    place = NULLB / name
    place.mkdir()
    try:
        for key, value in ({"size": DISK_BYTES >> 20, "queue_mode": 2} | attributes).items():
            if not (place / key).exists():
                raise Unavailable(f"null_blk has no {key}")
            put(place / key, value)
        before = {path.name for path in Path("/sys/block").iterdir()}
        put(place / "power", 1)
        # Some kernels name the device as its directory is, others by a number.
        (kernel_name,) = {path.name for path in Path("/sys/block").iterdir()} - before
        wait_for(Path(f"/dev/{kernel_name}"))
        yield kernel_name
        put(place / "power", 0)
    finally:
        place.rmdir()


@contextmanager
def loop(below: str, direct: bool) -> Iterator[str]:
    """A loop device over a disk; gives its kernel name."""
    module("loop")
    mode = "on" if direct else "off"
    path = run("losetup", "--find", "--show", f"--direct-io={mode}", f"/dev/{below}").strip()
    try:
        yield Path(path).name
    finally:
        run("losetup", "--detach", path)


@contextmanager
def md(number: int, level: int, disks: list[str], *more: str) -> Iterator[str]:
    """An array without metadata, so that nothing but the load is written; gives its name."""
    tool("mdadm")
    module(f"raid{level}")
    name, words = f"md{number}", ("--run", f"--level={level}", "--raid-devices=2", *more)
    run("mdadm", "--build", f"/dev/{name}", *words, *(f"/dev/{below}" for below in disks))
    wait_for(Path(f"/dev/{name}"))
    try:
        yield name
    finally:
        run("mdadm", "--stop", f"/dev/{name}")


@contextmanager
def nvme() -> Prepared:
    yield Load([disk("nvme0")])


@contextmanager
def virtio_scsi() -> Prepared:
    yield Load([disk("scsi0")])


@contextmanager
def virtio_scsi_split() -> Prepared:
    name = disk("scsi1")
    put(Path(f"/sys/block/{name}/queue/max_sectors_kb"), 16)
    yield Load([name], MIXED)


@contextmanager
def ahci() -> Prepared:
    yield Load([disk("ata0")])


@contextmanager
def null_blk_none() -> Prepared:
    with null_blk("nullb_none") as name:
        scheduler(name, "none")
        yield Load([name])


@contextmanager
def null_blk_mq_deadline() -> Prepared:
    """Batches of neighbours: merges."""
    batches = {"iodepth": 16, "iodepth_batch_submit": 8, "iodepth_batch_complete_min": 8}
    with null_blk("nullb_mq") as name:
        module("mq-deadline")
        scheduler(name, "mq-deadline")
        yield Load([name], {"rw": "write"} | batches)


@contextmanager
def null_blk_zoned() -> Prepared:
    with null_blk("nullb_zoned", zoned=1, zone_size=4, memory_backed=1) as name:
        module("mq-deadline")
        scheduler(name, "mq-deadline")
        writes = {"rw": "write", "zonemode": "zbd", "size": "8m", "io_size": "1m", "iodepth": 1}
        yield Load([name], writes)


@contextmanager
def brd() -> Prepared:
    module("brd", "rd_nr=1", f"rd_size={DISK_BYTES >> 10}")
    wait_for(Path("/dev/ram0"))
    yield Load(["ram0"])


@contextmanager
def zram() -> Prepared:
    module("zram")
    put(Path("/sys/block/zram0/disksize"), DISK_BYTES)
    yield Load(["zram0"])


@contextmanager
def loop_direct() -> Prepared:
    with loop(disk("virtio"), direct=True) as name:
        yield Load([name, disk("virtio")])


@contextmanager
def loop_buffered() -> Prepared:
    with loop(disk("nvme1"), direct=False) as name:
        yield Load([name])


@contextmanager
def dm_linear() -> Prepared:
    below = disk("virtio")
    with dm("linear", f"0 {SECTORS} linear /dev/{below} 2048") as name:
        yield Load([name, below])


@contextmanager
def dm_striped() -> Prepared:
    one, two = disk("ata0"), disk("virtio")
    with dm("striped", f"0 {SECTORS} striped 2 32 /dev/{one} 0 /dev/{two} 0") as name:
        yield Load([name, one, two], MIXED)


@contextmanager
def dm_crypt() -> Prepared:
    module("dm-crypt")
    key, below = "0123456789abcdef" * 4, disk("virtio")
    with dm("secret", f"0 {SECTORS} crypt aes-xts-plain64 {key} 0 /dev/{below} 0") as name:
        yield Load([name, below])


@contextmanager
def dm_flakey_down() -> Prepared:
    """A device that is never up: every I/O fails above, none arrives below."""
    module("dm-flakey")
    below = disk("virtio")
    with dm("flakey", f"0 {SECTORS} flakey /dev/{below} 0 0 3600") as name:
        yield Load([name, below], {"continue_on_error": "all", "rw": "randread"})


@contextmanager
def md_raid0() -> Prepared:
    disks = [disk("scsi0"), disk("scsi1")]
    with md(6, 0, disks, "--chunk=16") as name:
        yield Load([name, *disks], MIXED)


@contextmanager
def md_raid1() -> Prepared:
    disks = [disk("nvme0"), disk("nvme1")]
    with md(7, 1, disks, "--assume-clean") as name:
        yield Load([name, *disks], told={"write_copies": 2})


SLOW = {"rw": "randread", "size": "96k", "iodepth": 1}


@contextmanager
def dm_delay() -> Prepared:
    """200 ms by dm-delay."""
    module("dm-delay")
    below = disk("virtio")
    with dm("delay", f"0 {SECTORS} delay /dev/{below} 0 200") as name:
        yield Load([name, below], SLOW)


@contextmanager
def dm_delay_none() -> Prepared:
    below = disk("virtio")
    with dm("nodelay", f"0 {SECTORS} linear /dev/{below} 0") as name:
        yield Load([name, below], SLOW)


@contextmanager
def null_blk_20_ms() -> Prepared:
    """Completion by a timer of 20 ms."""
    with null_blk("nullb_20", irqmode=2, completion_nsec=20_000_000) as name:
        scheduler(name, "none")
        yield Load([name], SLOW)


@contextmanager
def null_blk_0_ms() -> Prepared:
    """Completion at once."""
    with null_blk("nullb_0", irqmode=0) as name:
        scheduler(name, "none")
        yield Load([name], SLOW)


Kinds = tuple[Callable[[], AbstractContextManager[Load]], ...]
DEVICES: Kinds = (
    nvme,
    virtio_scsi,
    virtio_scsi_split,
    ahci,
    null_blk_none,
    null_blk_mq_deadline,
    null_blk_zoned,
    brd,
    zram,
    loop_direct,
    loop_buffered,
    dm_linear,
    dm_striped,
    dm_crypt,
    dm_flakey_down,
    md_raid0,
    md_raid1,
    dm_delay,
    dm_delay_none,
    null_blk_20_ms,
    null_blk_0_ms,
)


def devices(whole: Case, kinds: Kinds = DEVICES) -> None:
    """All of them: makes the devices, records every load, writes each one's own case."""
    with ExitStack() as stack:
        prepared: list[tuple[Case, Load]] = []
        for make in kinds:
            case = Case(make.__name__)
            with case.ending():
                prepared.append((case, stack.enter_context(make())))
        names = sorted({name for _, load in prepared for name in load.devices})
        for name in names:  # the first who opens a disk has it read for partitions
            if (node := Path(f"/dev/{name}")).exists():  # a path of NVMe multipath has none
                node.open("rb").close()
        record_loads(whole, names, [(case, _commands(case, load)) for case, load in prepared])
        for case, load in prepared:
            case.told |= {"devices": load.devices} | load.told
            case.save()


def _commands(case: Case, load: Load) -> list[str]:
    """fio, where its exit status goes, and what the load wants before and after it."""
    usual = {"filename": f"/dev/{load.devices[0]}", "output": case.directory / "log.json"}
    words = fio(**(usual | load.options))
    return [load.before, " ".join(words), f"echo $? >{case.directory}/fio-status", load.after]


CASES = (devices,)
