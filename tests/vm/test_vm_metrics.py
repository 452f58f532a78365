# SPDX-License-Identifier: Apache-2.0
"""What `biotrail metrics` adds up in each kernel: fio's counts, and what a log of the run has."""

import pytest
from prometheus_client.samples import Sample

from biotrail.cli.measuring.flight_logs import bucket_of
from biotrail.converters.events.tables import RequestKind, Requests
from tests.support.devices import read_fio_report
from tests.support.metrics_scrapes import LATENCY, counts, parse, value
from tests.vm.guest_metrics import LOADS
from tests.vm.machine import OP_MASK, READ, WRITE, Case, Machine


def served(case: Case) -> list[Sample]:
    return parse((case.directory / "metrics.txt").read_text())


def skipped(found: list[Sample]) -> int:
    """Completions that the kernel ran no program for, and that it counted."""
    return int(value(found, "biotrail_lost_events_total"))


def with_data(case: Case) -> Requests:
    requests = case.log.requests_of(case.told["devices"][0])
    return requests.take((requests.kind != RequestKind.PASSTHROUGH) & (requests.bytes > 0))


def test_sums_have_what_fio_did(vm: Machine) -> None:
    # GIVEN figures of known loads
    case = vm.case("metrics", lossy=True)
    found = served(case)
    jobs = [read_fio_report(case.directory / f"{load}.json")["jobs"][0] for load in LOADS]
    # WHEN they are compared with fio THEN all I/Os and bytes are there, but what was skipped
    for op in ("read", "write"):
        done = sum(job[op]["total_ios"] for job in jobs)
        size = sum(job[op]["io_bytes"] for job in jobs)
        ios = value(found, "biotrail_ios_total", operation=op)
        assert done - skipped(found) <= ios <= done
        assert skipped(found) or value(found, "biotrail_io_bytes_total", operation=op) == size
        assert value(found, f"{LATENCY}_count", operation=op) == ios
    assert value(found, "biotrail_ios_total", operation="flush") > 0
    assert value(found, "biotrail_io_errors_total") == 0
    # AND the command ended well, without a word
    assert (case.told["status"], case.told["said"]) == (0, "")


def test_sums_have_the_times_of_a_light_log(vm: Machine) -> None:
    # GIVEN the same run, recorded as light by another program at the same tracepoint
    case = vm.case("metrics", lossy=True)
    found = served(case)
    if skipped(found) or case.log.lost():
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    requests = with_data(case)
    for op, name in ((READ, "read"), (WRITE, "write")):
        mine = requests.take((requests.opf & OP_MASK) == op)
        # WHEN latencies are put into buckets THEN most are in the same one: clocks are read apart
        ours = counts(found, LATENCY, operation=name)
        theirs = [0] * len(ours)
        for ns in (mine.complete - mine.start).tolist():
            theirs[bucket_of(ns)] += 1
        assert sum(ours) == sum(theirs) == len(mine)
        moved = sum(abs(a - b) for a, b in zip(ours, theirs, strict=True))
        assert moved <= len(mine) / 2
