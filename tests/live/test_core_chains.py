# SPDX-License-Identifier: Apache-2.0
"""Merges, splits, flushes and errors: what a request's records say of its bios."""

import mmap
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import D_FLAG_CHAIN_CUT, NO_TAG, Kind
from tests.support.core_decoder import decode
from tests.support.core_recording import recording
from tests.support.kernel_completions import done_again
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("needs_bpf")

BPF = ROOT / "bpf"


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


def _write_neighbours(fio, loop_device):
    """512-byte writes in batches: requests of up to 128 bios, the device's max_segments."""
    fio(
        loop_device.path,
        rw="write",
        bs="512",
        size="1m",
        ioengine="libaio",
        iodepth=128,
        iodepth_batch=128,
        iodepth_batch_complete_min=128,
    )


def test_a_long_chain_is_cut_and_says_so(fio, loop_device, tmp_path):
    # GIVEN programs compiled to name 19 bios at most: no device here takes more than 259
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    small = tmp_path / "small.bpf.o"
    command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-DBT_MAX_CHAIN=3"]
    subprocess.run([*command, "-c", BPF / "biotrail.bpf.c", "-o", small], check=True)
    with recording("lifecycle", [(loop_device.dev, 0)], object_path=small) as record:
        # WHEN more neighbours are merged
        _write_neighbours(fio, loop_device)

    # THEN no chain is longer than that, and every cut one says so
    events = decode(record.segments)
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]
    lengths = [e.bytes // 512 for e in issued]
    assert max(lengths) > 19
    for issue, bios in zip(issued, lengths, strict=True):
        assert issue.nr_bios == len(events.chain(issue)) == min(bios, 19)
        assert issue.flags == (D_FLAG_CHAIN_CUT if bios > 19 else 0)


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
    ops = record.probes.kernel_enums()["op_enum"]
    flags = record.probes.kernel_enums()["flag_bits"]
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
    with recording("all", [(loop_device.dev, 0)]) as record:
        # WHEN what is no longer there is read
        fd = os.open(loop_device.path, os.O_RDONLY | os.O_DIRECT)
        try:
            with pytest.raises(OSError, match="Input/output error"):
                os.preadv(fd, [_aligned(4096)], 8 << 20)
        finally:
            os.close(fd)

    # THEN completion and error say so, and later requeues have no tag of their own yet
    events = decode(record.segments)
    bad = [e for e in events.of(Kind.C, dev=loop_device.dev) if e.status]
    errors = events.of(Kind.E, dev=loop_device.dev)
    assert bad
    assert [(e.rq, e.status) for e in errors] == [(e.rq, e.status) for e in bad]


def _aligned(size):
    return mmap.mmap(-1, size)
