# SPDX-License-Identifier: Apache-2.0
"""Partitions, bio-based devices and stacked ones: what names the device of a record."""

import mmap
import os
import shutil
import time
import uuid
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import Kind
from tests.support import devices
from tests.support.core_decoder import decode
from tests.support.core_recording import recording
from tests.support.devices import dev_of
from tests.support.kernel_completions import done_again

pytestmark = pytest.mark.usefixtures("needs_bpf")


def _read(path, offset=0, size=4096):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        os.preadv(fd, [mmap.mmap(-1, size)], offset)
    finally:
        os.close(fd)


@dataclass(frozen=True)
class Partitioned:
    """A disk and the paths of its two partitions, at sectors 2048 and 20480."""

    path: str
    dev: int
    parts: list[str]


@pytest.fixture
def disk(needs_root):
    """A loop device that takes partitions, added without a table on it."""
    if shutil.which("addpart") is None:
        pytest.skip("needs addpart (util-linux)")
    backing = Path(f"/dev/shm/biotrail-test-{uuid.uuid4().hex}.img")
    with ExitStack() as stack:
        stack.callback(backing.unlink, missing_ok=True)
        backing.write_bytes(bytes(32 << 20))
        loop = stack.enter_context(devices.loop_over(backing, False, "--partscan"))
        for number, start in (("1", "2048"), ("2", "20480")):
            devices.run("addpart", loop.path, number, start, "16384")
            stack.callback(devices.run, "delpart", loop.path, number)
        parts = [f"{loop.path}p{number}" for number in (1, 2)]
        if not all(_appears(part) for part in parts):
            pytest.skip("needs device nodes of partitions, which nobody makes here")
        yield Partitioned(loop.path, loop.dev, parts)


def _appears(path):
    for _ in range(50):
        if os.path.exists(path):
            return True
        time.sleep(0.1)
    return False


def test_a_partition_is_kept_beside_its_disk(disk):
    # GIVEN a disk with partitions, recorded as a whole
    with recording("all", [(disk.dev, 0)]) as record:
        # WHEN the second partition is read
        _read(disk.parts[1], offset=8192)

    # THEN the remap names the partition and where it came from
    events = decode(record.segments)
    (remap,) = events.of(Kind.A)
    assert (remap.dev, remap.from_dev) == (disk.dev, dev_of(disk.parts[1]))
    assert (remap.from_sector, remap.sector) == (16, 20480 + 16)
    # AND the queued bio is on the disk, by way of the partition
    (queued,) = events.of(Kind.Q)
    assert (queued.dev, queued.part) == (disk.dev, dev_of(disk.parts[1]))
    assert (queued.bio, queued.sector) == (remap.bio, remap.sector)


@done_again
def test_a_filter_on_a_partition(disk):
    # GIVEN a recording of one partition
    wanted = dev_of(disk.parts[0])
    with recording("all", [(disk.dev, wanted)]) as record:
        # WHEN both, and the bare disk, are read
        _read(disk.parts[0])
        _read(disk.parts[1])
        _read(disk.path)

    # THEN only its I/O is there, requests included
    events = decode(record.segments)
    assert [e.part for e in events.of(Kind.Q)] == [wanted]
    assert [e.sector for e in events.of(Kind.Q, Kind.START, Kind.D, Kind.C)] == [2048] * 4


def test_several_devices(loop_device, make_loop):
    # GIVEN a recording of two devices of three
    other, third = make_loop(), make_loop()
    with recording("all", [(loop_device.dev, 0), (third.dev, 0)]) as record:
        # WHEN all are read
        for device in (loop_device, other, third):
            _read(device.path)
    # THEN the two are there
    events = decode(record.segments)
    assert [e.dev for e in events.of(Kind.Q)] == [loop_device.dev, third.dev]


def test_a_partition_that_does_not_exist_is_refused(loop_device):
    # GIVEN a partition number that nothing has
    probes = CoreProbes(ProbeConfig(devices=[(loop_device.dev, loop_device.dev + 0xFFF)]))
    # WHEN it is asked for
    # THEN the message names it
    with pytest.raises(ProbeError, match="is no partition"):
        probes.open()


def test_too_many_devices_are_refused():
    # GIVEN more devices than a filter holds
    probes = CoreProbes(ProbeConfig(devices=[(number, 0) for number in range(1, 40)]))
    # WHEN they are asked for
    # THEN the message says how many can be
    with pytest.raises(ProbeError, match="at most 32"):
        probes.open()


@pytest.fixture
def zram():
    """A fresh bio-based device of 16 MiB."""
    if not devices.ZRAM.exists():
        pytest.skip("needs zram")
    with devices.zram() as name:
        yield f"/dev/{name}"


def test_a_bio_based_device_has_queue_and_bio_completion_alone(zram):
    # GIVEN a device without requests
    with recording("all", [(dev_of(zram), 0)]) as record:
        # WHEN it is written and read
        fd = os.open(zram, os.O_RDWR | os.O_DIRECT)
        buffer = mmap.mmap(-1, 4096)
        os.pwritev(fd, [buffer], 0)
        os.preadv(fd, [buffer], 0)
        os.close(fd)

    # THEN each bio is queued and ends by itself
    events = decode(record.segments)
    queued, ended = events.of(Kind.Q), events.of(Kind.BIO_COMPLETE)
    assert len(queued) == len(ended) == 2
    assert [e.bio for e in queued] == [e.bio for e in ended]
    assert [e.status for e in ended] == [0, 0]
    assert not events.of(Kind.D, Kind.C)


def test_the_first_page_links_a_loop_device_to_what_is_below(make_loop):
    # GIVEN a direct-I/O loop device over another loop device, which is in memory
    lower = make_loop()
    with (
        devices.loop_over(lower.path, direct_io=True) as upper,
        recording("all", [(upper.dev, 0), (lower.dev, 0)]) as record,
    ):
        # WHEN the upper one is read
        _read(upper.path, offset=4096)

    # THEN the lower bio carries the same first page
    events = decode(record.segments)
    above = events.of(Kind.Q, dev=upper.dev)
    below = events.of(Kind.Q, dev=lower.dev)
    assert [e.sector for e in above] == [e.sector for e in below] == [8]
    assert above[0].page == below[0].page != 0
