# SPDX-License-Identifier: Apache-2.0
"""A file on ext4 on LVM on a mirror on two partitions: one write's family in a Perfetto trace."""

from pathlib import Path

import pytest

from tests.support import perfetto_check
from tests.support.perfetto_check import Read, Slice
from tests.vm.machine import Case, Machine, biotrail


def drawn(case: Case, out: Path) -> Read:
    """The case's trace, read with the protobuf classes."""
    assert biotrail("convert", case.log.path, "-o", out) == 0
    return perfetto_check.read(out.read_bytes())


def on(slices: list[Slice], dev: int) -> list[Slice]:
    """Those of a device; a volume goes by its own name in the trace, not by the kernel's."""
    number = f"({dev >> 20}:{dev & 0xFFFFF})"
    return [found for found in slices if found.args["device"].endswith(number)]


def the_write(case: Case, trace: Read) -> Slice:
    (top,) = [
        bio
        for bio in on(trace.slices("bio"), case.log.dev(case.top))
        if bio.args["process"] == "dd" and bio.args["bytes"] == case.told["bytes"]
    ]
    return top


def test_the_write_has_its_whole_family(vm: Machine, tmp_path: Path) -> None:
    # GIVEN a direct write of 64 KiB to a file, drawn as a trace
    case = vm.case("file_on_stack")
    trace = drawn(case, tmp_path / "log.pftrace")
    top = the_write(case, trace)
    # WHEN the slices of its colour are gathered
    bios = [bio for bio in trace.slices("bio") if bio.correlation == top.correlation]
    requests = [rq for rq in trace.slices("request") if rq.correlation == top.correlation]
    # THEN there is one bio on the volume, one on the mirror below it
    volume, mirror, *disks = map(case.log.dev, case.told["devices"])
    assert on(bios, volume) == [top]
    assert "parent" not in top.args
    (middle,) = on(bios, mirror)
    assert middle.args["parent"] == top.args["number"]
    # AND one below that on each disk, sent to its partition, with its request
    assert len(bios) == 4
    assert len(requests) == 2
    for disk, part in zip(disks, case.told["partitions"], strict=True):
        (low,), (request,) = on(bios, disk), on(requests, disk)
        assert low.args["parent"] == middle.args["number"]
        assert low.args.get("partition", part).startswith(part)  # 5.10 tells none
        assert low.args["request"] == request.args["number"]
        assert low.args["bytes"] == request.args["bytes"] == case.told["bytes"]
        assert top.start <= middle.start <= low.start
        assert low.end <= middle.end <= top.end
    # AND all of it is certain and went well
    assert {found.args["certainty"] for found in (*bios, *requests)} == {"exact"}
    assert {found.args["status"] for found in bios} == {"OK"}


def test_all_of_the_stack_has_ended(vm: Machine) -> None:
    # GIVEN the same recording: journal, flushes, the mirror's own writes
    log = vm.case("file_on_stack").log
    # THEN nothing is open
    assert log.unfinished() == 0
    assert (log.bios.status == 0).all()
    assert log.reader.problems == []


@pytest.mark.parametrize("level", range(1, 4), ids=["mirror", "first disk", "second disk"])
def test_what_the_volume_wrote_is_below(vm: Machine, level: int) -> None:
    # GIVEN the same recording  THEN all data of the volume went to each level below it
    case = vm.case("file_on_stack")
    top = case.log.bios_of(case.top)
    top = top.take(top.bytes > 0)
    below = case.log.bios_of(case.told["devices"][level])
    assert len(top) > 0
    assert set(top.number.tolist()) <= set(below.family.tolist())
