# SPDX-License-Identifier: Apache-2.0
"""Followed objects in other kernels: their functions are those that the kernel's own tracer saw."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import pytest

from biotrail.converters.events.site_tables import Hits
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import no_sites
from biotrail.recorder.schema.records import HIT_BORN, HIT_ENDED, Role
from tests.support.life_comparison import Difference, compare
from tests.support.traced_calls import Passing, passings
from tests.vm.guest_objects import MERGED, WAKEUPS
from tests.vm.machine import Case, Machine

REACH = 250_000_000
"""ns between two recorders of one call. Both run in it, one after the other, but a virtual CPU may
have to wait in between, on a busy machine for long."""
WAYS = {
    "5.10": {"fentry", "typed"},
    "6.1": {"fentry"},
    "6.12": {"session", "multi"},
    "7.2": {"session", "multi"},
}
"""How functions may be attached, by kernel: the best that each has."""
DISKS = ("virtio", "nvme0", "scsi0")


@dataclass
class Recorded:
    """A case's hits, and the calls that the kernel's own tracer has."""

    case: Case

    @cached_property
    def trace(self) -> Trace:
        return Trace(self.case.directory / "log.biotrail")

    @cached_property
    def hits(self) -> Hits:
        windows = [w.sites.hits for w in self.trace.lifecycles() if w.sites is not None]
        found = Hits.concatenate([no_sites().hits, *windows])
        return found.take(np.argsort(found.time, kind="stable"))

    @property
    def facts(self) -> dict:
        return self.trace.reader.header["sites"]["follow"]

    @cached_property
    def truth(self) -> list[Passing]:
        text = (self.case.directory / "trace.txt").read_text(encoding="utf-8")
        return passings(text.splitlines())

    @property
    def lost(self) -> int:
        """Hits that the log says are missing."""
        assert len(self.hits) >= 0  # read whole
        return sum(int(loss["count"]) for loss in self.trace.reader.losses)

    def lives(self) -> Iterator[Hits]:
        for life in np.unique(self.hits.life):
            yield self.hits.take(self.hits.life == life)

    def whole_lives(self) -> list[Hits]:
        """Return the lives whose birth and death were recorded."""
        wanted = HIT_BORN | HIT_ENDED
        return [h for h in self.lives() if np.bitwise_or.reduce(h.flags) & wanted == wanted]

    def functions(self, hits: Hits) -> list[Passing]:
        """Return the functions' hits as the tracer's are."""
        sites = self.facts["sites"]
        columns = (hits.time, hits.cpu, hits.tid, hits.site, hits.role, hits.object)
        return [
            Passing(time, cpu, tid, sites[site]["name"], role == Role.RETURN, pointer)
            for time, cpu, tid, site, role, pointer in zip(
                *(column.tolist() for column in columns), strict=True
            )
            if role != Role.EVENT
        ]

    def names(self, hits: Hits) -> list[str]:
        """Return the sites of entries and tracepoints, in order of time."""
        sites = self.facts["sites"]
        return [sites[site]["name"] for site in hits.site[hits.role != Role.RETURN].tolist()]

    def of_sector(self, sector: int) -> Hits:
        (life,) = [hits for hits in self.lives() if (hits.detail == sector).any()]
        return life

    def stacks(self, hits: Hits) -> set[str]:
        """Return the functions on the stacks of these hits."""
        known = self.trace.context.site_stacks
        ids = set(hits.stack[hits.stack >= 0].tolist())
        return {str(frame[0]) for number in ids for frame in known[number]}


def recorded(vm: Machine, name: str) -> Recorded:
    found = Recorded(vm.case(name))
    assert len(found.hits) > 0
    return found


def difference(found: Recorded, by: str) -> Difference:
    """Hold the life of the request that read a disk's block against the tracer's calls."""
    life = found.of_sector(found.case.told["sectors"][by])
    attached = {site["name"] for site in found.facts["sites"]}
    unseen = set(found.case.told["traced"]) - attached
    # NVMe frees requests in batches without a function that takes one.
    died = bool((life.flags & HIT_ENDED).any())
    assert died or by.startswith("nvme")
    return compare(found.truth, found.functions(life), REACH, unseen=unseen, died=died)


def test_functions_are_attached_by_the_kernels_best_way(vm: Machine) -> None:
    # GIVEN a recording of requests WHEN its header is read
    facts = recorded(vm, "follow_request").facts
    # THEN the way is the best that this kernel has
    assert facts["way"] in WAYS.get(vm.kernel, {"session", "multi", "fentry"})


@pytest.mark.parametrize("by", DISKS)
def test_a_read_passes_what_the_kernels_tracer_saw(vm: Machine, by: str) -> None:
    # GIVEN one direct read, whose request's functions were traced by kprobes meanwhile
    found = recorded(vm, "follow_request")
    # WHEN the request's life is held against them
    result = difference(found, by)
    print(result)
    # THEN every function is there, in its order, with its times, and no other one
    assert not result, str(result)
    assert result.entries >= (10 if found.facts["way"] != "typed" else 0)


def test_all_that_the_tracer_saw_was_attached(vm: Machine) -> None:
    # GIVEN the functions that the tracer saw called with a request
    found = recorded(vm, "follow_request")
    called = {passing.name for passing in found.truth if passing.pointer}
    # WHEN they are held against the sites THEN each is one, where functions are attached
    attached = {site["name"] for site in found.facts["sites"]}
    if found.facts["way"] == "typed":
        pytest.skip("virtual machine: this kernel's functions cannot be attached")
    assert called <= attached


def test_a_command_of_sg_io_is_followed_to_its_release(vm: Machine) -> None:
    # GIVEN SCSI commands by SG_IO
    found = recorded(vm, "follow_passthrough")
    # WHEN the lives are read THEN each command's is whole, and begins in its ioctl
    mine = [h for h in found.whole_lives() if any("ioctl" in f for f in found.stacks(h))]
    assert len(mine) >= 8
    for hits in mine:
        assert "blk_mq_free_request" in found.names(hits) or "block_rq_complete" in found.names(
            hits
        )


def test_a_requeued_request_is_one_life(vm: Machine) -> None:
    # GIVEN 64 reads by requests that the host refused now and then
    found = recorded(vm, "follow_requeued")
    # WHEN the lives are read THEN those requeued are whole, and were started again
    requeued = [h for h in found.whole_lives() if any("requeue" in n for n in found.names(h))]
    assert requeued
    for hits in requeued:
        assert found.names(hits).count("blk_mq_start_request") >= 1
    # AND so are all others, but where the kernel did not run a program, as the log says
    assert len(found.whole_lives()) + found.lost >= 64


def test_a_merged_request_ends_by_its_merge(vm: Machine) -> None:
    # GIVEN batches of three writes that become one request each
    found = recorded(vm, "follow_merged")
    # WHEN the lives are read
    merged = [h for h in found.whole_lives() if any("merge" in n for n in found.names(h))]
    never_issued = [h for h in merged if "blk_mq_start_request" not in found.names(h)]
    # THEN of each batch one was merged away: freed without having been issued
    assert len(never_issued) + found.lost >= len(MERGED)
    assert never_issued


def test_a_packet_goes_from_sendmsg_to_recvmsg(vm: Machine) -> None:
    # GIVEN messages over TCP on loopback
    found = recorded(vm, "follow_sk_buff")
    # WHEN the lives are read THEN some go from a sender's call to a receiver's, in one life
    passed = [found.stacks(h) | set(found.names(h)) for h in found.lives()]
    whole = [
        names
        for names in passed
        if any(n.startswith("tcp_sendmsg") for n in names)
        and any(n.startswith("tcp_recvmsg") for n in names)
    ]
    assert len(whole) >= 20


def runs_after_wakeups(names: list[str]) -> int:
    """How often a thread ran after a wake-up, before the next one."""
    steps = [n for n in names if n in ("sched_wakeup", "sched_switch(next)")]
    return list(pairwise(steps)).count(("sched_wakeup", "sched_switch(next)"))


def test_a_thread_goes_from_its_wakeup_to_its_run(vm: Machine) -> None:
    # GIVEN two threads that wake each other by turns
    found = recorded(vm, "follow_task")
    # WHEN the lives are read THEN some thread ran after nearly each of its wake-ups; some find it
    # running still
    most = max(runs_after_wakeups(found.names(hits)) for hits in found.lives())
    assert most >= 0.9 * WAKEUPS


def test_a_page_goes_from_its_fault_to_its_writeback(vm: Machine) -> None:
    # GIVEN pages of a file that were written through a mapping
    found = recorded(vm, "follow_folio")
    # WHEN the lives are read THEN some were mapped by a fault, and written back
    passed = [found.stacks(h) | set(found.names(h)) for h in found.lives()]
    whole = [
        names
        for names in passed
        if any("fault" in n for n in names) and any("end_writeback" in n for n in names)
    ]
    assert whole


def test_nothing_is_left_of_a_killed_recording(vm: Machine) -> None:
    # GIVEN a recording that was killed WHEN the kernel's programs and probes are looked at
    told = vm.case("follow_killed").told
    # THEN it had programs, and has none
    assert told["during"] > told["before"]
    assert told["after"] == told["before"]
    assert told["probes"] == []


def test_many_functions_attach_at_once(vm: Machine) -> None:
    # GIVEN every function of a packet, attached at once and detached
    told = vm.case("follow_attach").told
    # WHEN the kernel's part of it was timed (docs/kernels.md has figures: emulated, on a busy
    # machine, no limit would hold) THEN all were, in each way that takes many
    print(told["seconds_of"])
    for number, attach, detach in told["seconds_of"].values():
        assert number >= 1400
        assert attach > 0
        assert detach > 0
