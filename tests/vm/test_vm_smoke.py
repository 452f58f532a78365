# SPDX-License-Identifier: Apache-2.0
"""Three kinds of disk recorded at once; call stacks; what the header and doctor say."""

import json

import numpy as np
import pytest

from biotrail.recorder.probes.programs import PROBES
from biotrail.recorder.schema.records import Kind
from tests.vm.machine import Machine, biotrail


@pytest.mark.parametrize("index", range(3), ids=["nvme", "virtio-scsi", "virtio-blk"])
def test_issues_equal_fios(vm: Machine, index: int) -> None:
    # GIVEN a recording of direct 4 KiB I/O that fits in one request each, on three disks at once
    case = vm.case("three_disks", lossy=True)
    name, job = case.told["devices"][index], case.jobs[index]
    total = job["read"]["total_ios"] + job["write"]["total_ios"]
    # WHEN bios and those requests that serve them are counted
    log = case.log
    bios, requests = log.bios_of(name), log.requests_of(name)
    # THEN every I/O of fio is there, once, with its bytes
    assert total == 512
    assert (len(bios), int((requests.bios > 0).sum())) == (total, total)
    assert int(bios.bytes.sum()) == job["read"]["io_bytes"] + job["write"]["io_bytes"]


def test_what_was_not_seen_is_told(vm: Machine) -> None:
    # GIVEN the same recording  WHEN its Q and its D are counted
    case = vm.case("three_disks", lossy=True)
    seen, log = case.log.seen(), case.log
    queues, issues = (sum(n for (k, _), n in seen.items() if k == kind) for kind in "QD")
    # THEN with those that the log tells as lost they are all that fio caused (a disk may flush)
    assert queues + log.lost(Kind.Q) == 3 * 512
    assert issues + log.lost(Kind.D) - int((log.requests.bios == 0).sum()) == 3 * 512


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
    header = vm.case("three_disks", lossy=True).log.reader.header
    # THEN the header names what this set of events wants and the kernel has not, and only that
    entries = header["events"]["missing"]
    missing = {e["tracepoint"] for e in entries if "no tracepoint" in e["reason"]}
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
    assert len(events) == len(PROBES)
    for check in events:
        tracepoint = check["name"].partition("(")[2].rstrip(")")
        assert check["ok"] == (tracepoint in case.told["tracepoints"]), check


def test_the_log_converts_here(vm: Machine, tmp_path) -> None:
    # GIVEN a log of that kernel  WHEN it is converted on this machine
    out = tmp_path / "log.pftrace"
    status = biotrail("convert", vm.case("three_disks", lossy=True).log.path, "-o", out)
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
