# SPDX-License-Identifier: Apache-2.0
"""A light recording beside one of all steps: the same requests, times between those of the steps.

Both read one clock in the same tracepoint, the light recorder's program after the other one's, and
the kernel takes a request's times between two of its tracepoints; so no tolerance is needed, but
for the clock that stands still under a plug (docs/recording.md).
"""

import numpy as np
import pytest
from numpy.typing import NDArray

from biotrail.converters.events.tables import NEVER, Certainty, RequestKind, Requests
from biotrail.converters.lifecycles.windows import FAR
from tests.support.devices import read_fio_report
from tests.vm.guest_light import LOADS
from tests.vm.machine import OP_MASK, READ, WRITE, Case, Log, Machine

PLUGGED = "batches"

PLUG_NS = 1_000_000_000
"""How long a task of the load may have been running with one plug, in an emulated machine."""


def case_of(vm: Machine) -> Case:
    """Skips where the kernel has not run all programs, of either recorder."""
    case = vm.case("light_beside", lossy=True)
    if case.log.lost() or light_of(case).lost():
        pytest.skip("virtual machine: the kernel skipped events meanwhile, as the log tells")
    return case


def light_of(case: Case) -> Log:
    return case.logs[f"{case.directory.name}/light.biotrail"]


def name_of(case: Case, which: str) -> str:
    return str(case.told["devices"][list(LOADS).index(which)])


def with_data(log: Log, name: str) -> Requests:
    requests = log.requests_of(name)
    bios = requests.bios + requests.others
    chosen = (requests.kind != RequestKind.PASSTHROUGH) & (requests.bytes > 0) & (bios > 0)
    requests = requests.take(chosen)
    keys = (requests.complete, requests.opf & OP_MASK, requests.bytes, requests.sector)
    return requests.take(np.lexsort(keys))


def queued(log: Log, requests: Requests) -> NDArray[np.int64]:
    """Return per request (n,) when its first bio was queued, ns; FAR: none is known."""
    first = dict.fromkeys(requests.number.tolist(), FAR)
    times = dict(zip(log.bios.number.tolist(), log.bios.queue.tolist(), strict=True))
    for bio, request in zip(log.edges.bio.tolist(), log.edges.request.tolist(), strict=True):
        if request in first:
            first[request] = min(first[request], times[bio])
    return np.array(list(first.values()), np.int64)


@pytest.mark.parametrize("which", LOADS)
def test_light_counts_and_bytes_equal_fios(vm: Machine, which: str) -> None:
    # GIVEN a light log of a load
    case = case_of(vm)
    requests = with_data(light_of(case), name_of(case, which))
    (job,) = read_fio_report(case.directory / f"{which}.json")["jobs"]
    # WHEN the requests' bios are counted by operation  THEN they are fio's, to the byte
    for op, words in ((READ, "read"), (WRITE, "write")):
        mine = requests.take((requests.opf & OP_MASK) == op)
        counted = int((mine.bios + mine.others).sum()), int(mine.done_bytes.sum())
        assert counted == (job[words]["total_ios"], job[words]["io_bytes"])
    # AND each has ended well, and is known exactly
    assert (requests.status == 0).all()
    assert (requests.certainty == Certainty.EXACT).all()
    assert light_of(case).reader.problems == []


@pytest.mark.parametrize("which", LOADS)
def test_light_has_the_requests_of_all_steps(vm: Machine, which: str) -> None:
    # GIVEN one load in both logs
    case = case_of(vm)
    name = name_of(case, which)
    steps, light = (with_data(log, name) for log in (case.log, light_of(case)))
    # THEN each request is in both, with its place, operation, tag, hardware queue and bios
    assert len(steps) > 100
    for column in ("sector", "bytes", "opf", "tag", "hctx", "status", "kind"):
        assert np.array_equal(getattr(light, column), getattr(steps, column)), column
    assert np.array_equal(light.bios + light.others, steps.bios + steps.others)
    # AND there are as many flushes in one as in the other
    flushes = [
        int((log.requests_of(name).kind == RequestKind.FLUSH).sum())
        for log in (case.log, light_of(case))
    ]
    assert flushes[0] == flushes[1]
    assert (flushes[0] > 0) == (which == "synced")


@pytest.mark.parametrize("which", LOADS)
def test_lights_times_lie_between_those_of_the_steps(vm: Machine, which: str) -> None:
    # GIVEN the same requests
    case = case_of(vm)
    name = name_of(case, which)
    steps, light = (with_data(log, name) for log in (case.log, light_of(case)))
    first = queued(case.log, steps)
    assert (first < FAR).all()
    # THEN the kernel's start of each is between the queueing of its first bio, or its task's plug,
    # and its issue
    assert (light.start <= steps.issue).all()
    assert (light.start >= first - (PLUG_NS if which == PLUGGED else 0)).all()
    # AND its issue, if the kernel keeps it, between start and completion
    assert (light.issue != NEVER).all() == case.told["issue_times"][list(LOADS).index(which)]
    if (light.issue != NEVER).all():
        assert (light.issue >= light.start).all()
        assert (light.issue <= steps.complete).all()
    # AND the completion is that of the event, seen by the program that runs second
    assert (light.complete > steps.complete).all()
