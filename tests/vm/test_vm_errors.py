# SPDX-License-Identifier: Apache-2.0
"""Injected errors, retries, timeouts, a busy host, a full ring: accounted for, none left open."""

import numpy as np
import pytest

from biotrail.converters.events.tables import Certainty
from biotrail.recorder.schema.records import Kind
from tests.vm.machine import Machine

REQUEUED = ("retried", "host_busy", "ring_full")


def test_a_thousand_errors(vm: Machine) -> None:
    # GIVEN 1,000 reads of two blocks by turns, each completed with nothing, then with an error
    case = vm.case("medium_errors")
    bios = case.log.bios_of(case.top)
    # THEN each ended with the medium's error, and none of its bytes counts as read
    assert np.unique(bios.sector, return_counts=True)[1].tolist() == [500, 500]
    assert len(np.unique(bios.status)) == 1
    assert (bios.status != 0).all()
    assert int(bios.done_bytes.sum()) == 0
    # AND nothing is open
    assert case.log.unfinished() == 0
    assert case.log.certainties() == {"EXACT"}


@pytest.mark.parametrize("name", REQUEUED)
def test_requeues_seen_and_lost_are_all(vm: Machine, name: str) -> None:
    # GIVEN commands that are refused, or fail and are sent again
    case = vm.case(name, lossy=True)
    log = case.log
    # THEN what was seen, with what the log tells as lost, is what the kernel's own tracer counted
    seen = log.seen()["R", log.dev(case.top)]
    assert seen + log.lost(Kind.R) == case.told["requeues"] > 0


@pytest.mark.parametrize("name", REQUEUED)
def test_requeues_are_those_of_the_kernels_own_tracer(vm: Machine, name: str) -> None:
    # GIVEN the same, with nothing lost
    case = vm.case(name)
    log = case.log
    bios, requests = log.bios_of(case.top), log.requests_of(case.top)
    # THEN every requeue is with a request
    assert int(requests.requeues.sum()) == case.told["requeues"] > 0
    # AND every bio has its end, as fio says
    assert len(bios) == case.job["read"]["total_ios"]
    assert int((bios.status != 0).sum()) == case.failed
    assert log.unfinished() == 0
    # AND is sure; where the kernel does not count what it skips, what a host gave back before its
    # issue looks like a lost issue
    told = log.reader.header["counts_skips"]
    early = (requests.requeues > 0) & (name == "host_busy") & (not told)
    assert set(requests.certainty[~early].tolist()) == {Certainty.EXACT}
    assert set(requests.certainty[early].tolist()) <= {Certainty.EXACT, Certainty.LOST}


def test_ten_thousand_requeues(vm: Machine) -> None:
    # GIVEN every third command failing  THEN there were as many requeues as were to be proven
    assert vm.case("retried", lossy=True).told["requeues"] >= 10_000


def test_commands_that_time_out_are_sent_again(vm: Machine) -> None:
    # GIVEN a hundred reads, of which some are not answered until they are aborted
    case = vm.case("timed_out")
    log, limit = case.log, case.told["timeout_ns"]
    bios, requests = log.bios_of(case.top), log.requests_of(case.top)
    # THEN all that fio did has ended well, and nothing is open
    assert len(bios) == case.job["read"]["total_ios"] == 100
    assert case.failed == int((bios.status != 0).sum()) == log.unfinished() == 0
    assert log.certainties() == {"EXACT"}
    # AND what was sent again is what the kernel's own tracer saw, and took the time and more
    late = bios.complete - bios.queue >= limit
    assert np.array_equal(bios.requeues > 0, late)
    assert int(bios.requeues.sum()) == int(requests.requeues.sum()) == case.told["requeues"] >= 4
    # AND this time lies between the first issue and the end
    assert (bios.complete[late] - bios.issue[late] >= limit).all()
