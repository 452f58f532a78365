# SPDX-License-Identifier: Apache-2.0
"""Merges, splits, flushes and errors: what a request's records say of its bios."""

import mmap
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import CHAIN_COUNT, D_FLAG_CHAIN_CUT, NO_TAG, Kind
from tests.support import block_loads, devices
from tests.support.core_decoder import decode
from tests.support.core_recording import recording, unseen
from tests.support.devices import dev_of, read_block
from tests.support.kernel_completions import done_again
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("needs_bpf")

OWN_BYTES = 1024


@pytest.fixture(scope="module")
def few_bios(tmp_path_factory):
    """The programs compiled to name 13 bios of a request: no device here takes more than 259."""
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    small = tmp_path_factory.mktemp("bpf") / "small.bpf.o"
    command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-DBT_MAX_CHAIN=2"]
    devices.run(*command, "-c", ROOT / "bpf" / "biotrail.bpf.c", "-o", small)
    return small


def _sectors(events):
    return sum(e.bytes for e in events) // 512


def test_merged_bios_are_in_the_chain_of_their_issue(fio, loop_device):
    # GIVEN sequential writes handed over in batches, so that they merge under a plug
    with recording("all", [(loop_device.dev, 0)]) as record:
        fio(
            loop_device.path,
            rw="write",
            bs="4k",
            size="4m",
            ioengine="libaio",
            iodepth=64,
            iodepth_batch=64,
            iodepth_batch_complete_min=64,
        )

    # WHEN the chains are read
    events = decode(record.segments)
    queued = [e for e in events.of(Kind.Q, dev=loop_device.dev) if e.bytes]
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]
    merges = events.of(Kind.M, Kind.F, dev=loop_device.dev)

    # THEN there were merges, and each bio is in exactly one chain
    assert len(queued) == 1024
    assert len(merges) > 500
    assert len(issued) + len(merges) == len(queued)
    assert max(e.nr_bios for e in issued) > 7
    in_chains = Counter(bio for e in issued for bio in events.chain(e))
    assert in_chains == Counter(e.bio for e in queued)
    # AND each issue says how long its chain is, and is as long as its bios
    for issue in issued:
        assert issue.nr_bios == len(events.chain(issue)) == issue.bytes // 4096
        assert issue.flags == 0
    assert _sectors(issued) == _sectors(queued) == 8192


def _write_neighbours(fio, loop_device, **size):
    """512-byte writes in batches: requests of up to 128 bios, the device's max_segments."""
    batches = {"iodepth": 128, "iodepth_batch": 128, "iodepth_batch_complete_min": 128}
    job = {"rw": "write", "size": "1m", "ioengine": "libaio", **(size or {"bs": "512"})}
    fio(loop_device.path, **job, **batches)


@pytest.mark.xdist_group("programs that name few bios")
def test_a_long_chain_is_cut_and_says_so(fio, loop_device, few_bios):
    # GIVEN programs that name 13 bios at most
    with recording("lifecycle", [(loop_device.dev, 0)], path=few_bios) as record:
        # WHEN more neighbours are merged
        _write_neighbours(fio, loop_device)

    # THEN no chain is longer than that, and every cut one says so
    events = decode(record.segments)
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]
    lengths = [e.bytes // 512 for e in issued]
    assert max(lengths) > 13
    for issue, bios in zip(issued, lengths, strict=True):
        assert issue.nr_bios == len(events.chain(issue)) == min(bios, 13)
        assert issue.flags == (D_FLAG_CHAIN_CUT if bios > 13 else 0)


@pytest.mark.xdist_group("programs that name few bios")
def test_others_are_counted_beyond_the_chains_bound(fio, loop_device, completions, few_bios):
    # GIVEN programs that name few bios, and requests of many, most of them of others
    only_large = Filters(ops=("write",), min_bytes=OWN_BYTES)
    truth = completions(loop_device.dev)
    with recording("all", [(loop_device.dev, 0)], path=few_bios, filters=only_large) as record:
        _write_neighbours(fio, loop_device, bssplit="512/70:1k/30")

    # WHEN the issues are read
    events = decode(record.segments)
    queued = events.of(Kind.Q, dev=loop_device.dev)
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]

    # THEN only the larger bios are there, and every address that an issue names is one of them
    assert {e.bytes for e in queued} == {OWN_BYTES}
    named, others = set(), 0
    for issue in issued:
        chain = events.chain(issue)
        counts = [slot - CHAIN_COUNT for slot in chain if slot >> 62 == 1]
        own = [slot for slot in chain if slot >> 62 != 1]
        named.update(own)
        others += sum(counts)
        # AND where all own bios are named, sizes say that each of the others was counted
        if not issue.flags & D_FLAG_CHAIN_CUT:
            assert issue.bytes == OWN_BYTES * len(own) + 512 * sum(counts)
            assert issue.nr_bios == len(own)
    assert named <= {e.bio for e in queued}
    assert others > 0
    assert any(issue.flags & D_FLAG_CHAIN_CUT for issue in issued)
    # AND each request's end is there, plugs are not, and what was left out is counted
    done = len(events.of(Kind.C, dev=loop_device.dev)) + len(unseen(truth, events))
    assert done >= len(issued)
    assert not events.of(Kind.P, Kind.U)
    assert record.left_out.bios["min_size"] > 0


def test_a_chain_of_the_most_bios_is_whole(fio, loop_device):
    # GIVEN the programs as they ship
    with recording("lifecycle", [(loop_device.dev, 0)]) as record:
        # WHEN requests of as many bios as the device takes are made
        _write_neighbours(fio, loop_device)

    # THEN none is cut
    events = decode(record.segments)
    issued = [e for e in events.of(Kind.D) if e.bytes]
    assert max(e.nr_bios for e in issued) > 64
    for issue in issued:
        assert issue.nr_bios == len(events.chain(issue)) == issue.bytes // 512
        assert issue.flags == 0


def test_a_chain_that_finds_the_ring_full_is_cut(fio, loop_device):
    # GIVEN a small ring that nobody drains
    config = ProbeConfig("minimal", [(loop_device.dev, 0)], 64 << 10)
    with CoreProbes(config) as probes:
        probes.attach()
        # WHEN long requests are made until it is full
        _write_neighbours(fio, loop_device)
        probes.detach()
        segments, lost = probes.drain(), probes.lost().sum(axis=(0, 1))

    # THEN each D that was written is as long as its chain, or says that it was cut
    events = decode(segments)
    issued = [e for e in events.of(Kind.D) if e.bytes]
    cut = [e for e in issued if e.flags & D_FLAG_CHAIN_CUT]
    assert len(cut) == lost[Kind.CHAIN]
    assert lost[Kind.Q] > 0
    for issue in issued:
        assert issue.nr_bios == len(events.chain(issue))
        assert (issue.nr_bios < issue.bytes // 512) == (issue in cut)


def test_a_split_names_the_parent(fio, loop_device):
    # GIVEN a device that takes 64 KiB at a time
    queue = Path(f"/sys/class/block/{loop_device.name}/queue")
    (queue / "max_sectors_kb").write_text("64")
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN 1 MiB is written at once
        fio(loop_device.path, rw="write", bs="1m", size="1m", ioengine="psync")

    # THEN one bio was queued, fifteen pieces split off it, and sixteen requests issued
    events = decode(record.segments)
    (queued,) = [e for e in events.of(Kind.Q, dev=loop_device.dev) if e.bytes]
    splits = events.of(Kind.X, dev=loop_device.dev)
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]
    assert len(issued) == len(splits) + 1 == 16
    assert {e.parent for e in splits} == {queued.bio}
    # AND the pieces follow one another, the last being the bio itself
    assert [e.sector for e in splits] == [128 * i for i in range(15)]
    assert [e.new_sector for e in splits] == [128 * (i + 1) for i in range(15)]
    assert [e.bio for e in splits] + [queued.bio] == [e.bio for e in issued]


@done_again
def test_flush_and_discard_carry_no_page(loop_device):
    # GIVEN a write, a flush and a discard
    with recording("all", [(loop_device.dev, 0)]) as record:
        fd = os.open(loop_device.path, os.O_RDWR)
        try:
            os.pwrite(fd, b"x" * 4096, 0)
            os.fsync(fd)
        finally:
            os.close(fd)
        subprocess.run(
            ["blkdiscard", "--offset", "1048576", "--length", "65536", loop_device.path], check=True
        )

    # WHEN the queued bios are told apart by their operation
    events = decode(record.segments)
    ops = record.probes.enums["op_enum"]
    flags = record.probes.enums["flag_bits"]
    queued = events.of(Kind.Q, dev=loop_device.dev)
    flushes = [e for e in queued if e.opf >> flags["PREFLUSH"] & 1]
    discards = [e for e in queued if e.opf & 0xFF == ops["DISCARD"]]
    writes = [e for e in queued if e.opf & 0xFF == ops["WRITE"] and e.bytes]

    # THEN only the write has a page, and the flush request has no bio and no sector
    assert len(flushes) == len(discards) == 1
    assert [e.page for e in flushes + discards] == [0, 0]
    assert discards[0].bytes == 65536
    assert all(e.page for e in writes)
    (flush,) = [e for e in events.of(Kind.D) if e.opf & 0xFF == ops["FLUSH"]]
    assert (flush.bio, flush.nr_bios, flush.sector) == (0, 0, (1 << 64) - 1)
    assert flush.tag != NO_TAG
    ends = [e for e in events.of(Kind.C) if e.rq == flush.rq and e.opf & 0xFF == ops["FLUSH"]]
    assert len(ends) == 1


@done_again
def test_an_error_carries_its_status(loop_device):
    # GIVEN a loop device whose file was cut short behind its back
    os.truncate(loop_device.backing, 1 << 20)
    # WHEN what is no longer there is read
    with (
        recording("all", [(loop_device.dev, 0)]) as record,
        pytest.raises(OSError, match="Input/output error"),
    ):
        read_block(loop_device.path, 8 << 20)

    # THEN completion and error say so, and later requeues have no tag of their own yet
    events = decode(record.segments)
    bad = [e for e in events.of(Kind.C, dev=loop_device.dev) if e.status]
    errors = events.of(Kind.E, dev=loop_device.dev)
    assert bad
    assert [(e.rq, e.status) for e in errors] == [(e.rq, e.status) for e in bad]


# Partitions, bio-based devices and stacked ones: what names the device of a record.


def test_a_partition_is_kept_beside_its_disk(needs_root):
    # GIVEN a disk with partitions, recorded as a whole
    with (
        block_loads.partitioned() as (disk, parts),
        recording("all", [(disk.dev, 0)]) as record,
    ):
        # WHEN the second partition is read
        part = dev_of(parts[1])
        read_block(parts[1], 8192)

    # THEN the remap names the partition and where it came from
    events = decode(record.segments)
    (remap,) = events.of(Kind.A)
    assert (remap.dev, remap.from_dev) == (disk.dev, part)
    assert (remap.from_sector, remap.sector) == (16, 34816 + 16)
    # AND the queued bio is on the disk, by way of the partition
    (queued,) = events.of(Kind.Q)
    assert (queued.dev, queued.part) == (disk.dev, part)
    assert (queued.bio, queued.sector) == (remap.bio, remap.sector)


@done_again
def test_a_filter_on_a_partition():
    # GIVEN a recording of one partition
    with block_loads.partitioned() as (disk, parts):
        wanted = dev_of(parts[0])
        with recording("all", [(disk.dev, wanted)]) as record:
            # WHEN both, and the bare disk, are read
            for path in (*parts, disk.path):
                read_block(path)

    # THEN only its I/O is there, requests included
    events = decode(record.segments)
    assert [e.part for e in events.of(Kind.Q)] == [wanted]
    assert [e.sector for e in events.of(Kind.Q, Kind.START, Kind.D, Kind.C)] == [2048] * 4


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


def test_a_bio_based_device_has_queue_and_bio_completion_alone(zram):
    # GIVEN a device without requests
    path = f"/dev/{zram}"
    with recording("all", [(dev_of(path), 0)]) as record:
        # WHEN it is written and read
        fd = os.open(path, os.O_RDWR | os.O_DIRECT)
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
        read_block(upper.path, 4096)

    # THEN the lower bio carries the same first page
    events = decode(record.segments)
    above = events.of(Kind.Q, dev=upper.dev)
    below = events.of(Kind.Q, dev=lower.dev)
    assert [e.sector for e in above] == [e.sector for e in below] == [8]
    assert above[0].page == below[0].page != 0
