# SPDX-License-Identifier: Apache-2.0
"""Three kinds of disk recorded at once; call stacks; what the header and doctor say."""

import json
from collections import Counter

import numpy as np
import pytest
from machine import Log, Machine, biotrail

from converters.model.trace import Trace
from recorder.records import Kind


def events(log: Log) -> Counter[tuple[str, int]]:
    """Counts of (kind, dev), straight from the log."""
    counts: Counter[tuple[str, int]] = Counter()
    for window, _ in Trace(log.path).events():
        for kind in (Kind.Q, Kind.D):
            devices, numbers = np.unique(window.dev[window.rows(kind)], return_counts=True)
            for dev, number in zip(devices.tolist(), numbers.tolist(), strict=True):
                counts[kind.name, dev] += number
    return counts


@pytest.mark.parametrize("index", range(3), ids=["nvme", "virtio-scsi", "virtio-blk"])
def test_events_equal_fios(vm: Machine, index: int) -> None:
    # GIVEN a recording of direct 4 KiB I/O that fits in one request each, on three disks at once
    case = vm.case("three_disks")
    name, job = case.told["devices"][index], case.jobs[index]
    total = job["read"]["total_ios"] + job["write"]["total_ios"]
    # WHEN events and bios are counted
    found, dev = events(case.log), case.log.dev(name)
    bios = case.log.bios_of(name)
    # THEN every queue and every issue that fio caused is there, once, with its bytes
    assert total == 512
    assert (found["Q", dev], found["D", dev], len(bios)) == (total, total, total)
    assert int(bios.bytes.sum()) == job["read"]["io_bytes"] + job["write"]["io_bytes"]


def test_every_bio_has_its_request(vm: Machine) -> None:
    # GIVEN the same recording  WHEN it is associated
    log = vm.case("three_disks").log
    # THEN identity settles everything: each bio has one request, and its times rise
    assert log.certainties() == {"EXACT"}
    assert np.isin(log.bios.request, log.requests.number).all()
    assert len(np.unique(log.bios.request)) == len(log.bios)
    assert (log.bios.queue <= log.bios.issue).all()
    assert (log.bios.issue < log.bios.complete).all()
    assert (log.bios.status == 0).all()


def test_what_the_kernel_lacks_is_named(vm: Machine) -> None:
    # GIVEN the tracepoints of that kernel
    there = set(vm.case("doctor").told["tracepoints"])
    header = vm.case("three_disks").log.reader.header
    # THEN the header names what this set of events wants and the kernel has not, and only that
    missing = {entry["tracepoint"] for entry in header["events"]["missing"]}
    for tracepoint in ("block_io_start", "block_rq_error"):
        assert (tracepoint in missing) == (tracepoint not in there)
    assert missing.isdisjoint(there)


def test_doctor_names_what_the_kernel_lacks(vm: Machine) -> None:
    # GIVEN what doctor said  WHEN held against the kernel's tracepoints
    case = vm.case("doctor")
    said = json.loads((case.directory / "doctor.json").read_text(encoding="utf-8"))
    events = [check for check in said["checks"] if check["name"].startswith("event ")]
    # THEN the core backend can record, and each event is offered where the tracepoint is there
    assert "core" in said["backends"]
    assert len(events) == 18
    for check in events:
        tracepoint = check["name"].partition("(")[2].rstrip(")")
        assert check["ok"] == (tracepoint in case.told["tracepoints"]), check


def test_the_log_converts_here(vm: Machine, tmp_path) -> None:
    # GIVEN a log of that kernel  WHEN it is converted on this machine
    out = tmp_path / "log.pftrace"
    status = biotrail("convert", vm.case("three_disks").log.path, "-o", out)
    # THEN there is a trace with something of each bio in it
    assert status == 0
    assert out.stat().st_size > 3 * 512 * 24


def test_every_bio_has_its_call_stack(vm: Machine, capsys) -> None:
    # GIVEN a recording with call stacks of a program that reads a disk directly
    case = vm.case("call_stacks")
    # WHEN its reads are added up by stack
    assert biotrail("stacks", "--json", case.log.path) == 0
    made = json.loads(capsys.readouterr().out)
    reads = [
        entry
        for entry in made["stacks"]
        if entry["comm"] == "fio" and any("read" in frame["name"] for frame in entry["kernel"])
    ]
    # THEN all of fio's are there, from the block layer's first function on
    assert sum(entry["bytes"] for entry in reads) >= case.job["read"]["io_bytes"]
    assert all(entry["kernel"][0]["name"].startswith("submit_bio") for entry in reads)
    assert not any(entry["missing"] for entry in made["stacks"])
    # AND they come from functions of the program, by name
    assert any(frame["name"] for entry in reads for frame in entry["user"])
    assert made["notes"] == []
