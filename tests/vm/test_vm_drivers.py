# SPDX-License-Identifier: Apache-2.0
"""What drivers did with requests: every completion has its steps, in their order."""

import json
from typing import NamedTuple

import numpy as np
import pytest

from biotrail.converters.events.path import DRIVERS
from biotrail.converters.events.path_tables import DriverSteps
from biotrail.converters.events.tables import NEVER, Requests
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.path_tables import recorded_path
from tests.vm.machine import Case, Machine, biotrail

NO_FILE_IO = {"5.10", "6.1"}
"""Kernels without iomap's tracepoints of direct I/O, so without loop's steps."""


class Found(NamedTuple):
    """Requests of a case's disk that read or wrote data, and the steps of each."""

    requests: Requests
    steps: DriverSteps


def found_in(case: Case, driver: str) -> Found:
    """What a case's log has; fails where a completed request of data lacks its steps."""
    read = recorded_path(case.log.path)
    assert set(read.steps.driver.tolist()) == {DRIVERS.index(driver)}
    data = read.requests.take(read.requests.bytes > 0)
    assert len(data) >= 256
    return Found(data, read.steps_of(data))


def test_drivers_are_recorded_or_named(vm: Machine, capsys: pytest.CaptureFixture[str]) -> None:
    # GIVEN a recording with the part driver, with all modules loaded
    case = vm.case("nvme_steps", lossy=True)
    # WHEN header, info and doctor are read
    facts = case.log.reader.header["path"]
    assert biotrail("info", case.log.path) == 0
    info = " ".join(capsys.readouterr().out.split())
    said = json.loads((case.directory / "doctor.json").read_text(encoding="utf-8"))
    checks = {check["name"]: check for check in said["checks"]}
    # THEN all drivers are recorded, but loop where its file's I/O has no tracepoint
    lacking = {name for name, why in facts["drivers"].items() if why}
    assert lacking == ({"loop"} if vm.branch in NO_FILE_IO else set())
    assert facts["parts"] == ["irq", "driver"]
    assert facts["missing"] == []
    # AND all three say so, with the same reason
    assert checks["path driver"]["ok"]
    for name in lacking:
        reason = facts["drivers"][name]
        assert "iomap_dio_rw_begin" in reason
        assert reason in info
        assert checks[f"path driver {name}"]["detail"] == reason


def test_nvme_steps_of_every_request(vm: Machine) -> None:
    # GIVEN 256 direct I/Os of an NVMe disk WHEN the steps of its requests are read
    requests, steps = found_in(vm.case("nvme_steps"), "nvme")
    # THEN each was set up, issued, answered, done by the driver and completed, in this order
    times = (steps.begun, requests.issue, steps.answered, steps.finished, requests.complete)
    assert all((time != NEVER).all() for time in times)
    assert (np.diff(np.stack(times), axis=0) >= 0).all()
    assert (requests.start <= steps.begun).all()
    # AND the device told how far it had fetched the queue
    assert len(np.unique(steps.sq_head)) > 1


@pytest.mark.parametrize("case", ["scsi_steps", "ata_steps"])
def test_scsi_steps_of_every_request(vm: Machine, case: str) -> None:
    # GIVEN 256 direct I/Os of a virtio-scsi disk, or of one below libata
    requests, steps = found_in(vm.case(case), "scsi")
    # WHEN the steps of its requests are read
    # THEN each was issued, dispatched, answered and completed, in this order, without an error
    times = (requests.issue, steps.begun, steps.answered, requests.complete)
    assert all((time != NEVER).all() for time in times)
    assert (np.diff(np.stack(times), axis=0) >= 0).all()
    assert (steps.finished == NEVER).all()
    assert not steps.errors.any()
    assert not steps.timeouts.any()


def test_loop_steps_of_every_request(vm: Machine) -> None:
    # GIVEN 256 direct I/Os of a loop device on a file
    case = vm.case("loop_steps")
    if vm.branch in NO_FILE_IO:
        # THEN a kernel without these tracepoints has no steps, and all requests all the same
        assert len(recorded_path(case.log.path).steps) == 0
        assert len(case.log.requests) >= 256
        return
    # WHEN the steps of its requests are read
    requests, steps = found_in(case, "loop")
    # THEN for each the worker began the file's I/O, which ended, and then it completed
    times = (requests.issue, steps.begun, steps.answered, requests.complete)
    assert all((time != NEVER).all() for time in times)
    assert (np.diff(np.stack(times), axis=0) >= 0).all()


def test_failed_dispatches_are_counted(vm: Machine) -> None:
    # GIVEN a SCSI host that refused commands WHEN the steps of its requests are read
    requests, steps = found_in(vm.case("scsi_busy"), "scsi")
    # THEN each refused one was requeued for it, and all ended well
    assert steps.errors.any()
    assert (steps.errors <= requests.requeues).all()
    assert not steps.timeouts.any()
    assert (steps.answered >= steps.begun).all()
    # AND what went at once has no errors
    assert not steps.errors[requests.requeues == 0].any()


def test_time_outs_are_counted(vm: Machine) -> None:
    # GIVEN a SCSI host that did not answer some commands WHEN the steps of its requests are read
    requests, steps = found_in(vm.case("scsi_late"), "scsi")
    late = steps.timeouts > 0
    # THEN some timed out, and took more than the two seconds until then
    assert 1 <= int(late.sum()) <= 12
    assert ((requests.complete - requests.issue)[late] > 2_000_000_000).all()
    # AND no other one did
    assert ((requests.complete - requests.issue)[~late] > 0).all()
    assert not steps.errors.any()


@pytest.mark.parametrize("case", ["nvme_steps", "scsi_steps", "ata_steps"])
def test_every_completion_has_one_record(vm: Machine, case: str) -> None:
    # GIVEN these recordings WHEN completions are held against records of the driver
    counts = dict.fromkeys((Kind.C, Kind.DRIVER), 0)
    for events, _ in Trace(vm.case(case).log.path).events():
        for kind in counts:
            counts[kind] += len(events.rows(kind))
    # THEN each has one
    assert counts[Kind.DRIVER] == counts[Kind.C] > 0
