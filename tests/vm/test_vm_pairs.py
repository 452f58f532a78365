# SPDX-License-Identifier: Apache-2.0
"""Pairs of events in other kernels: as many as there were, as long as they were.

The kernel's own tracer has the same events, in whole microseconds, a moment earlier: it was there
first.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

from biotrail.converters.events.site_tables import Pairs
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import no_sites
from tests.support.traced_calls import (
    Passing,
    Span,
    fields,
    median_duration,
    misplaced,
    passings,
    spans,
    unmatched,
)
from tests.vm.machine import Case, Machine

MILLISECOND = 1_000_000
REACH = 250 * MILLISECOND
"""Between two recorders of one event of which several may go on at once. Both run in it, one after
the other, but a virtual CPU may have to wait in between, on a busy machine for long."""
SHARE = 0.1
"""Of a fault's duration."""
DELAYS = {1: MILLISECOND, 2: 5 * MILLISECOND}
"""By process address space, ns: what smmu_fake.c does."""
COMMANDS = ("pairs_nvme", "pairs_nvme_declared", "pairs_scsi", "pairs_block")


@dataclass
class Recorded:
    """A case's pairs, and the events that the kernel's own tracer has."""

    case: Case

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.case.directory / "log.biotrail")

    @cached_property
    def pairs(self) -> Pairs:
        windows = [w.sites.pairs for w in self.trace.lifecycles() if w.sites is not None]
        return Pairs.concatenate([no_sites().pairs, *windows])

    @cached_property
    def events(self) -> list[Passing]:
        text = (self.case.directory / "trace.txt").read_text(encoding="utf-8")
        return passings(text.splitlines())

    @property
    def lost(self) -> int:
        """Pairs that the log says are missing."""
        assert len(self.pairs) >= 0  # read whole
        return sum(int(loss["count"]) for loss in self.trace.reader.losses)

    def spans(self, begin: str, end: str, *keys: str) -> dict[tuple[int, ...], list[Span]]:
        """Return the spans that the kernel's tracer has of two events."""
        return spans(self.events, begin, end, keys)


def recorded(vm: Machine, name: str) -> Recorded:
    found = Recorded(vm.case(name))
    assert len(found.pairs) > 0
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_each_io_is_one_pair(vm: Machine, name: str) -> None:
    # GIVEN fio's direct I/Os on one disk, while pairs of its driver's events were recorded
    found = recorded(vm, name)
    # WHEN the pairs are counted, with those that the log says are lost
    ios = found.case.job["read"]["total_ios"] + found.case.job["write"]["total_ios"]
    # THEN there are as many as fio did I/Os
    assert ios == 256
    assert len(found.pairs) + found.lost == ios
    assert (found.pairs.latency > 0).all()
    # AND one at a time leaves no room for losses, but for a program that runs as a second one
    assert found.lost <= ios // 20


def test_nvme_pairs_are_the_kernels_own(vm: Machine) -> None:
    # GIVEN the same events in the kernel's own trace
    found = recorded(vm, "pairs_nvme")
    pairs = found.pairs
    for queue in np.unique(pairs.key0).tolist():
        mine = [e for e in found.events if fields(e)["qid"] == str(queue)]
        # WHEN they are held against the pairs of each queue
        rows = pairs.key0 == queue
        for name, times in (("setup_cmd", pairs.began), ("complete_rq", pairs.ended)):
            truth = [event.time for event in mine if event.name == f"nvme_{name}"]
            # THEN each began and ended when the trace says, or a moment later
            assert not misplaced(times[rows].tolist(), truth)


def test_softirqs_are_the_kernels_own(vm: Machine) -> None:
    # GIVEN softirqs by number and CPU, in the recording and in the kernel's own trace
    found = recorded(vm, "pairs_softirq")
    truth = found.spans("softirq_entry", "softirq_exit", "vec", "cpu")
    pairs = found.pairs
    keys = set(zip(pairs.key0.tolist(), pairs.key1.tolist(), strict=True))
    # WHEN they are held against each other
    alone = 0
    for key in keys:
        mine = (pairs.key0 == key[0]) & (pairs.key1 == key[1])
        alone += len(misplaced(pairs.ended[mine].tolist(), (end for _, end in truth[key])))
    # THEN each that was recorded is in the trace
    assert alone == 0
    # AND all that the trace has of this time were recorded, or are lost
    first, last = int(pairs.began.min()), int(pairs.ended.max())
    whole = [s for key in truth for s in truth[key] if first <= s[0] and s[1] <= last]
    assert len(pairs) + found.lost >= len(whole)
    # AND block I/O was among them
    assert 4 in pairs.key0.tolist()


def test_work_items_are_the_kernels_own(vm: Machine) -> None:
    # GIVEN work items by their address, which the kernel's trace does not tell
    found = recorded(vm, "pairs_workqueue")
    ends = [e.time for e in found.events if e.name == "workqueue_execute_end"]
    # WHEN their ends are held against each other THEN each has one in the trace
    assert not unmatched(found.pairs.ended.tolist(), ends, REACH)
    # AND they ended by a worker
    assert all(comm.startswith(b"kworker") for comm in np.unique(found.pairs.comm).tolist())


def test_delays_of_page_faults_by_address_space(vm: Machine) -> None:
    # GIVEN I/O page faults that took 1 ms in one address space, 5 ms in another
    found = recorded(vm, "smmu")
    truth = found.spans("io_fault_entry", "io_fault_exit", "pasid")
    pairs = found.pairs
    # WHEN they are looked at by address space
    assert set(pairs.key0.tolist()) == set(DELAYS)
    for pasid, delay in DELAYS.items():
        mine = pairs.latency[pairs.key0 == pasid]
        # THEN each fault is a pair, none quicker than its delay
        assert len(mine) == found.case.told["faults"] == len(truth[pasid,])
        assert (mine >= delay - MILLISECOND // 1000).all()
        # AND the median is the delay; on a busy machine, that which the kernel's trace has
        took = max(delay, median_duration(truth[pasid,]))
        assert abs(float(np.median(mine)) - took) <= SHARE * took
