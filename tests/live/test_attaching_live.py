# SPDX-License-Identifier: Apache-2.0
"""Programs that are loaded and attached by raw bpf(2), and a look into debugfs, on this kernel."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.kernel.bpf_calls import attach_tracepoint
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import RefusedError
from biotrail.recorder.probes.sites import attaching
from biotrail.recorder.probes.sites.attaching import (
    RETURN_0,
    AttachType,
    Descriptors,
    Place,
    ProgramType,
    all_ways,
    load,
)
from biotrail.recorder.probes.sites.follow_options import FUNCTION_WAYS

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path("/sys/kernel/btf/vmlinux").exists(), reason="needs root and BTF"
)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_program_is_attached_to_a_typed_tracepoint() -> None:
    # GIVEN the smallest program, loaded for a tracepoint by the BTF of its prototype
    with KernelBtf() as btf:
        number = btf._find("btf_trace_sched_switch", 8)  # BTF_KIND_TYPEDEF
    assert number is not None
    before = open_descriptors()
    with Descriptors() as kept:
        place = Place(ProgramType.TRACING, AttachType.RAW_TP, number)
        kept.add(attaching.typed(kept.add(load("test", RETURN_0, place))))
        # THEN it is attached, and leaving closes what was opened
        assert open_descriptors() == before + 2
    assert open_descriptors() == before


def test_a_program_is_attached_to_a_tracepoint_by_its_format() -> None:
    # GIVEN a tracepoint's number in tracefs
    number = tracefs.read(tracefs.find(), "sched", ["sched_switch"])["sched_switch"].number
    with Descriptors() as kept:
        program = kept.add(load("test", RETURN_0, Place(ProgramType.TRACEPOINT)))
        # WHEN the program is attached to it  THEN the kernel takes it
        assert kept.add(attach_tracepoint(program, number)) > 0


def test_a_refused_program_quotes_the_verifier() -> None:
    # GIVEN a program that ends without a result
    # WHEN it is loaded  THEN the error has the verifier's words
    with pytest.raises(RefusedError, match="R0 !read_ok"):
        load("test", RETURN_0[8:], Place(ProgramType.TRACEPOINT))


def test_every_way_is_tried_and_nothing_stays_open() -> None:
    # GIVEN this kernel  WHEN all ways to attach to functions are tried
    all_ways.cache_clear()
    before = open_descriptors()
    ways = all_ways()
    # THEN each works or has a reason
    assert tuple(way.name for way in ways) == FUNCTION_WAYS
    assert open_descriptors() == before


def test_a_module_without_btf_is_an_error() -> None:
    with pytest.raises(OSError, match="No such file"):
        attaching.Descriptors().module_btf("no_such_module")


def test_debugfs_is_read_without_a_mount_in_the_tree(tmp_path: Path) -> None:
    # GIVEN a host where debugfs is not mounted at its place
    before = Path("/proc/self/mountinfo").read_text()
    opened = len(os.listdir("/proc/self/fd"))
    # WHEN it is looked into
    with tracefs.debugfs(tmp_path / "nothing") as place:
        names = os.listdir(place) if place.exists() else []
        # THEN its files are there, and no mount has been added to the tree
        assert Path("/proc/self/mountinfo").read_text() == before
    if not names:
        pytest.skip("this kernel has no debugfs, or this process may not mount it")
    # AND nothing is left open
    assert len(os.listdir("/proc/self/fd")) == opened
