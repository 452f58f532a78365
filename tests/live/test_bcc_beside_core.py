# SPDX-License-Identifier: Apache-2.0
"""One load, recorded by both backends at once: what bcc tells equals what core tells."""

import os
from collections import Counter

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.schema.kernel_names import FLAGS, OPS, RWBS_FLAGS
from biotrail.recorder.schema.records import BY_KIND, Kind
from tests.support import block_loads, devices
from tests.support.bcc_recording import both, needs_bcc
from tests.support.core_decoder import decode
from tests.support.core_recording import unseen
from tests.support.kernel_completions import done_again

__all__ = ["needs_bcc"]

pytestmark = pytest.mark.usefixtures("needs_bpf", "needs_bcc")

BIOS = (Kind.Q, Kind.G, Kind.M, Kind.F, Kind.X, Kind.A)
REQUESTS = (Kind.START, Kind.I, Kind.R, Kind.RQ_MERGE, Kind.D, Kind.C)


def told(opf, enums):
    """Core's opf as bcc can tell it."""
    names = {number: name for name, number in enums["op_enum"].items()}
    flags = ["PREFLUSH", *RWBS_FLAGS.values()]
    bits = (1 << FLAGS[f] for f in flags if opf >> enums["flag_bits"][f] & 1)
    return OPS[names[opf & 0xFF]] | sum(bits)


def what(record, dev, opf=lambda value: value):
    """{kind: Counter of (sector, bytes, opf, task, …)}, of one device."""
    fields = ("sector", "bytes", "opf", "tid", "from_sector", "from_dev", "status")
    found = {}
    for event in decode(record.segments).events:
        names = BY_KIND[event.kind].dtype.names
        if event.kind in BIOS + REQUESTS and event.dev == dev:
            row = {f: getattr(event, f) for f in fields if f in names}
            row["opf"] = opf(row["opf"])
            found.setdefault(event.kind, Counter())[tuple(row.items())] += 1
    return found


def compare(core, bcc, dev, truth):
    """Equal events of each kind, but for those that the kernel says it has not shown bcc.

    Of completions also but for those that ftrace alone has (truth): of either backend's.

    Returns how many there are of each kind.
    """
    with KernelBtf() as btf:
        enums = kernel_enums(btf)
    assert core.lost == core.too_deep == bcc.lost == bcc.too_deep == 0
    expected, found = what(core, dev, lambda opf: told(opf, enums)), what(bcc, dev)
    skipped = Counter()
    for program in bcc.programs:
        skipped[program.letter] += program.recursion_misses
    for kind in BIOS + REQUESTS:
        one, other = expected.get(kind, Counter()), found.get(kind, Counter())
        assert not other - one or kind is Kind.C, (kind, other - one)
        missing = (one - other).total()
        allowed = skipped[BY_KIND[kind].letter]
        if kind is Kind.C:
            allowed += len(unseen(truth, decode(bcc.segments)))
            assert (other - one).total() <= len(unseen(truth, decode(core.segments)))
        assert missing <= allowed, (kind, missing, allowed)
    return {kind: counter.total() for kind, counter in found.items()}


def test_direct_io(fio, loop_device, completions):
    # GIVEN both backends on one device
    truth = completions(loop_device.dev)
    loads = (("randread", "io_uring", 16), ("randrw", "libaio", 8), ("randwrite", "psync", 1))
    with both("lifecycle", [(loop_device.dev, 0)]) as (core, bcc):
        # WHEN fio does direct I/O
        for rw, engine, depth in loads:
            fio(loop_device.path, rw=rw, bs="4k", size="8m", ioengine=engine, iodepth=depth)
    # THEN they agree on every queue, start, issue, their bytes, flags and tasks
    counts = compare(core, bcc, loop_device.dev, truth)
    assert min(counts[Kind.Q], counts[Kind.D]) >= 3 * 2048


def test_merges_and_splits(fio, loop_device, completions):
    truth = completions(loop_device.dev)
    # GIVEN a device with small requests
    block_loads.schedule(loop_device, "none")
    with both("all", [(loop_device.dev, 0)]) as (core, bcc):
        # WHEN small writes come in order in batches, and large ones are over the limit
        block_loads.merges_and_splits(fio, loop_device.path)
    # THEN merges and splits are the same
    counts = compare(core, bcc, loop_device.dev, truth)
    assert counts[Kind.M] > 10
    assert counts[Kind.X] >= 8
    # AND what has nothing to tell the device by is left out under a device filter
    reasons = {p.letter: p.reason for p in bcc.programs if not p.attached}
    assert set(reasons) == {"P", "U"}
    assert "does not report the device" in reasons["P"]


def test_flushes_and_a_file_system(loop_device, completions, tmp_path):
    truth = completions(loop_device.dev)
    # GIVEN a file system
    devices.make_ext4(loop_device.path)
    with both("lifecycle", [(loop_device.dev, 0)]) as (core, bcc):
        # WHEN files are written and made durable
        block_loads.durable_files(loop_device.path, tmp_path / "mounted")
    # THEN flushes, metadata and their flags are the same
    compare(core, bcc, loop_device.dev, truth)
    issued = {e.opf for e in decode(bcc.segments).of(Kind.D, dev=loop_device.dev)}
    assert OPS["FLUSH"] in {opf & 0xFF for opf in issued}
    assert any(opf >> FLAGS["META"] & 1 for opf in issued)


@done_again
def test_a_failure(loop_device, completions):
    truth = completions(loop_device.dev)
    # GIVEN a device whose file has lost its end
    os.truncate(loop_device.backing, 1 << 20)
    # WHEN the end is read
    with both("lifecycle", [(loop_device.dev, 0)]) as (core, bcc), pytest.raises(OSError):
        devices.read_block(loop_device.path, 32 << 20)
    # THEN both say how it ended
    compare(core, bcc, loop_device.dev, truth)
    statuses = {e.status for e in decode(bcc.segments).of(Kind.C, dev=loop_device.dev)}
    assert statuses == {10}


@pytest.mark.parametrize(
    "filters", [Filters(ops=("read",)), Filters(sectors=((8192, 16383),))], ids=["op", "sectors"]
)
def test_filters(fio, loop_device, completions, filters):
    truth = completions(loop_device.dev)
    # GIVEN both backends with a filter that tracepoints can tell
    with both("lifecycle", [(loop_device.dev, 0)], filters) as (core, bcc):
        # WHEN there is I/O of both kinds everywhere
        fio(loop_device.path, rw="randrw", bs="4k", size="16m", ioengine="psync")
    # THEN both keep the same, and count the rest
    counts = compare(core, bcc, loop_device.dev, truth)
    assert 500 < counts[Kind.Q] == counts[Kind.D] < 3500
    reason = "op" if filters.ops else "sectors"
    assert counts[Kind.Q] + bcc.left_out.bios[reason] == 4096
    assert bcc.left_out.bios[reason] == core.left_out.bios[reason]


def test_a_partition(fio, completions):
    # GIVEN a disk with two partitions, one of them to be recorded
    with block_loads.partitioned() as (disk, parts):
        truth, part = completions(disk.dev), devices.dev_of(parts[0])
        with both("lifecycle", [(disk.dev, part)]) as (core, bcc):
            # WHEN both are written to
            for path in parts:
                fio(path, rw="write", bs="16k", size="1m", ioengine="psync")
        # THEN there is the one's I/O, on the disk's sectors; where it came from names it
        counts = compare(core, bcc, disk.dev, truth)
        assert counts[Kind.Q] == counts[Kind.D] == counts[Kind.A] == 64
        assert {e.from_dev for e in decode(bcc.segments).of(Kind.A)} == {part}
