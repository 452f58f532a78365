# SPDX-License-Identifier: Apache-2.0
"""Requests that hold bios of others, and what the programs keep of them."""

import shutil
import subprocess

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import CHAIN_COUNT, D_FLAG_CHAIN_CUT, Kind
from tests.support.core_decoder import decode
from tests.support.core_recording import Recording, unseen
from tests.support.kernel_completions import done_again
from tests.support.paths import ROOT

pytestmark = pytest.mark.usefixtures("needs_bpf")

BPF = ROOT / "bpf"
OWN_BYTES = 1024


def _merged_writes(fio, path):
    """Neighbours of 512 and 1024 bytes in batches: requests of many bios of both sizes."""
    fio(
        path,
        rw="write",
        bssplit="512/70:1k/30",
        size="1m",
        ioengine="libaio",
        iodepth=128,
        iodepth_batch=128,
        iodepth_batch_complete_min=128,
    )


def test_others_are_counted_beyond_the_chains_bound(fio, loop_device, completions, tmp_path):
    # GIVEN programs compiled to name few bios, and requests of many, most of them of others
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    small = tmp_path / "small.bpf.o"
    command = ["clang", "-target", "bpf", "-mcpu=v3", "-O2", "-g", "-DBT_MAX_CHAIN=2"]
    subprocess.run([*command, "-c", BPF / "biotrail.bpf.c", "-o", small], check=True)
    config = ProbeConfig(
        "all", [(loop_device.dev, 0)], filters=Filters(ops=("write",), min_bytes=OWN_BYTES)
    )
    truth = completions(loop_device.dev)
    with CoreProbes(config, small) as probes:
        record = Recording(probes)
        record.start()
        _merged_writes(fio, loop_device.path)
        record.finish()

    # WHEN the issues are read
    events = decode(record.segments)
    queued = events.of(Kind.Q, dev=loop_device.dev)
    issued = [e for e in events.of(Kind.D, dev=loop_device.dev) if e.bytes]

    # THEN only the larger bios are there, and every address that an issue names is one of them
    assert queued
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


@done_again
def test_the_table_is_empty_when_all_has_ended(fio, loop_device):
    # GIVEN more writes, with a flush after each, than there is room to follow at once
    filters = Filters(ops=("write",), max_followed=64)
    with CoreProbes(ProbeConfig("lifecycle", [(loop_device.dev, 0)], filters=filters)) as probes:
        record = Recording(probes)
        record.start()
        # WHEN they come one after the other
        deep = {"ioengine": "libaio", "iodepth": 32}
        for sync in ("none", "dsync"):
            fio(loop_device.path, rw="write", bs="4k", size="1m", sync=sync, **deep)
        record.finish()
        # THEN all were followed: each gave its place back
        assert probes.left_out().unfollowed == 0
    events = decode(record.segments)
    assert len([e for e in events.of(Kind.Q, dev=loop_device.dev) if e.bytes]) == 512
