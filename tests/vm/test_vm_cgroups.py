# SPDX-License-Identifier: Apache-2.0
"""cgroup v2: a recording of one cgroup holds its I/O alone; limits show where they act."""

import json

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from tests.support.devices import read_fio_report
from tests.vm.machine import Case, Machine, biotrail

MS = 1_000_000


def reported(case: Case, capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, list]:
    capsys.readouterr()
    assert biotrail("report", "--json", *words, case.log.path) == 0
    return json.loads(capsys.readouterr().out)


def test_a_cgroups_recording_is_its_own_io(vm: Machine, capsys) -> None:
    # GIVEN two cgroups that read and write one disk at once, of which one was recorded
    case = vm.case("cgroup_filter")
    mine, theirs = (
        read_fio_report(case.directory / f"{name}.json")["jobs"][0]
        for name in (case.told["cgroup"].lstrip("/"), "vm-theirs")
    )
    # WHEN the bios on that disk are counted  THEN they are that cgroup's, to the byte
    bios = case.log.bios_of(case.top)
    ios, size = (mine["read"][key] + mine["write"][key] for key in ("total_ios", "io_bytes"))
    assert (len(bios), int(bios.bytes.sum())) == (ios, size)
    assert (bios.certainty == Certainty.EXACT).all()
    # AND the log holds nothing of others, whose number it tells
    assert [group["cgroup"] for group in reported(case, capsys)["cgroups"]] == [case.told["cgroup"]]
    left = case.log.reader.end["left_out"]["bios"]["cgroup"]
    assert left >= theirs["read"]["total_ios"] + theirs["write"]["total_ios"]


def test_written_back_pages_are_the_cgroups_that_wrote_them(vm: Machine, capsys) -> None:
    # GIVEN the same recording: both wrote a file through the page cache, a third one said sync
    case = vm.case("cgroup_filter")
    # WHEN what was written back is added up by file
    files = {file["file"]: file["bytes"] for file in reported(case, capsys)["files"]}
    # THEN all of the cgroup's file is there, nothing of the other's
    assert files["/mnt/vm-mine"] == case.told["written"]
    assert "/mnt/vm-theirs" not in files
    # AND a worker of the kernel wrote it
    bios, (disk,) = case.log.bios, case.lower
    back = (bios.dev == case.log.dev(disk)) & (bios.bytes > 4096)
    assert int(bios.bytes[back].sum()) == case.told["written"]
    assert all("kworker" in comm for comm in case.log.comms[back])


@pytest.mark.parametrize("name", ["io_max_bytes", "io_max_ios", "io_cost"])
def test_a_limited_cgroup_has_its_rate(vm: Machine, name: str, capsys) -> None:
    # GIVEN reads of a device that answers at once, under a limit of the cgroup
    case = vm.case(name)
    bios = case.log.bios_of(case.top)
    assert (len(bios), int(bios.bytes.sum())) == (
        case.job["read"]["total_ios"],
        case.job["read"]["io_bytes"],
    )
    # WHEN their rate is taken
    seconds = (int(bios.issue.max()) - int(bios.issue.min())) / 1e9
    bytes_a_second = int(bios.bytes[1:].sum()) / seconds
    limit = case.told["rate"] if name == "io_max_bytes" else case.told["iops"] * 4096
    # THEN it is the limit's, or less where the machine is so busy that fio, too, measured less
    assert bytes_a_second == pytest.approx(min(limit, case.job["read"]["bw_bytes"]), rel=0.1)
    # AND all are the cgroup's, whoever queued them
    assert case.told["cgroup"] in [g["cgroup"] for g in reported(case, capsys)["cgroups"]]
    assert len(np.unique(bios.cgroup)) == 1


@pytest.mark.parametrize("name", ["io_max_bytes", "io_max_ios"])
def test_io_max_acts_before_queueing(vm: Machine, name: str) -> None:
    # GIVEN reads that waited for most of their time, as fio says
    case = vm.case(name)
    waited = case.job["read"]["clat_ns"]["percentile"]["50.000000"]
    assert waited > 50 * MS
    # THEN nothing of it is in the log: they were queued when they might go on
    bios = case.log.bios_of(case.top)
    assert float(np.median(bios.complete - bios.queue)) < waited / 10
    # AND by a worker, but for those that did not wait
    comms = case.log.comms[np.isin(case.log.bios.number, bios.number)]
    assert {comm.partition("/")[0] for comm in comms} <= {"fio", "kworker"}
    assert np.mean([comm.startswith("kworker") for comm in comms]) > 0.8


@pytest.mark.parametrize(("name", "whose"), [("held_own", "/vm-mine"), ("held_above", "/vm-above")])
def test_who_holds_bios_and_for_how_long(vm: Machine, name: str, whose: str, capsys) -> None:
    # GIVEN reads one after the other, under a limit of their cgroup, or of the one above it
    case = vm.case(name)
    whole = reported(case, capsys, "-d", case.top)
    # WHEN a report is made  THEN it says whose limit held those that a worker queued
    (held,) = whole["held"]
    assert (held["cgroup"], held["device"], held["operation"]) == (whose, case.top, "read")
    bios = case.log.bios_of(case.top)
    comms = case.log.comms[np.isin(case.log.bios.number, bios.number)]
    assert held["bios"] == sum(comm.startswith("kworker") for comm in comms) > 0
    assert (held["bps"], held["iops"], held["several"]) == (case.told["rate"], None, 0)
    # AND for how long: fio waited for these reads, but for what followed their Q. A virtual CPU
    # that does not run for a while between a completion and its wake-up leaves a length unknown
    of_fio = case.job["read"]["clat_ns"]["mean"] * case.job["read"]["total_ios"]
    queued = int((bios.complete - bios.queue).sum())
    assert held["bios"] - 2 <= held["time"]["count"] <= held["bios"]
    each = held["time"]["mean_ns"] * held["bios"]
    assert each == pytest.approx(of_fio - queued, rel=0.15)
    assert held["process"] == "fio"
    # AND that is what its calls waited for
    waited = {(one["call"], one["reason"]): one for one in whole["waits"]}
    assert waited["pread64", "cgroup limit"]["count"] == held["time"]["count"]


def test_io_cost_is_named(vm: Machine, capsys) -> None:
    # GIVEN reads that io.cost holds between Q and G, one after the other
    case = vm.case("held_by_cost")
    # WHEN what calls waited for is reported  THEN it is io.cost, and no bio was held before Q
    whole = reported(case, capsys, "-d", case.top)
    assert whole["held"] == []
    assert max(whole["waits"], key=lambda one: one["sum_ns"])["reason"] == "io.cost"
    # AND the slowest I/Os say so
    assert biotrail("slow", "--json", "-d", case.top, case.log.path) == 0
    slowest = json.loads(capsys.readouterr().out)["ios"][0]["io"]
    assert slowest["q2g_reason"] == "io.cost"


def test_io_cost_shows_in_q2g(vm: Machine) -> None:
    # GIVEN a model by which the device can do ten reads a second, of which one is under way at once
    case = vm.case("io_cost")
    # THEN each waited for a tenth of a second between its queueing and its request
    stages = case.log.medians(case.log.bios_of(case.top))
    assert stages.pop("Q2G") == pytest.approx(1e9 / case.told["iops"], rel=0.1)
    # AND no other stage took a tenth of that
    assert all(ns < 1e8 / case.told["iops"] for ns in stages.values()), stages
