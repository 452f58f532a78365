# SPDX-License-Identifier: Apache-2.0
"""What waits are for, by the stacks of each kernel; commits of the journal with their phases."""

import json

import numpy as np

from biotrail.converters.calls.reason_rules import WAIT_REASON_NAMES, WaitReason
from biotrail.converters.events.tables import NEVER
from biotrail.recorder.probes.maps.path_maps import COMMITS
from tests.support.path_tables import of_process, reasons, recorded_path
from tests.support.wait_loads import FSYNCS, READS
from tests.vm.machine import Machine

NO_MODULE_TYPES = {"5.10"}
"""Kernels that have no types of modules, so no commits."""


def test_each_wait_has_its_reason(vm: Machine) -> None:
    # GIVEN processes that wait for one thing each  WHEN their waits are read
    found = recorded_path(vm.case("waits", lossy=True).log.path)
    syncs = reasons(found, of_process(found, "syncer", "fsync"))
    reads = [reasons(found, of_process(found, who, "pread64")) for who in ("pages", "others")]
    direct = reasons(found, of_process(found, "direct", "preadv", "preadv2"))
    writes = reasons(found, of_process(found, "writer", "write"))
    # THEN each fsync waited for a commit
    assert syncs["journal commit"] >= FSYNCS - 1, syncs
    # AND both readers for pages, direct reads for their bios, the writer as it was throttled
    for one in reads:
        assert one["page read"] >= READS // 2, one
    assert direct["bio"] >= READS // 2, direct
    assert writes["throttled writing"] > 0, writes
    # AND nothing else is what most of these waits were for
    for counts, reason in zip(
        (syncs, *reads, direct, writes),
        ("journal commit", "page read", "page read", "bio", "throttled writing"),
        strict=True,
    ):
        if reason != "journal commit":  # an fsync writes its data, too
            assert counts.most_common(1)[0][0] == reason, counts


def test_no_wait_of_these_loads_is_without_a_reason(vm: Machine) -> None:
    # GIVEN the same recording  WHEN all waits of its processes are read
    found = recorded_path(vm.case("waits", lossy=True).log.path)
    roles = ("syncer", "pages", "others", "direct", "writer")
    tids = np.unique(np.concatenate([found.calls_of_any(one).tid for one in roles]))
    counts = reasons(found, found.waits.take(np.isin(found.waits.tid, tids)))
    # THEN the table knows nearly all of them, and says of which it does not
    named = set(WAIT_REASON_NAMES.values())
    unknown = {why: n for why, n in counts.items() if why not in named}
    assert sum(unknown.values()) <= sum(counts.values()) // 20, unknown


def test_pages_read_by_another_task_are_other_io(vm: Machine) -> None:
    # GIVEN two processes that read the same pages at once, of a disk of 30 ms
    found = recorded_path(vm.case("waits", lossy=True).log.path)
    # WHEN those of their reads that queued no bio are taken
    for who in ("pages", "others"):
        reads = found.calls_of(who, "pread64")
        for_others = reads.take(reads.bios == 0)
        # THEN they waited for the page that the other one read
        waited = for_others.take(for_others.other_io > 0)
        keys = set(waited.entry.tolist())
        mine = found.waits.take(np.isin(found.waits.entry, list(keys)))
        assert (mine.reason == WaitReason.PAGE_READ).all()
    both = [found.calls_of(who, "pread64") for who in ("pages", "others")]
    assert sum(int(((reads.bios == 0) & (reads.other_io > 0)).sum()) for reads in both) > 0


def test_commits_are_recorded_with_who_waits_or_named_as_missing(vm: Machine) -> None:
    # GIVEN the same recording
    case = vm.case("waits", lossy=True)
    found = recorded_path(case.log.path)
    missing = {one["part"]: one["reason"] for one in case.log.reader.header["path"]["missing"]}
    said = json.loads((case.directory / "doctor.json").read_text(encoding="utf-8"))
    checks = {check["name"]: check for check in said["checks"]}
    commits = found.commits
    # WHEN the kernel has no types of modules THEN header and doctor say so
    if vm.branch in NO_MODULE_TYPES:
        assert "module" in missing[COMMITS]
        assert checks[f"path {COMMITS}"]["detail"] == missing[COMMITS]
        assert len(commits) == 0
        return
    # ELSE each commit has its phases in order, and the fsyncs name theirs
    assert COMMITS not in missing
    whole = commits.take(commits.started != NEVER)
    assert len(whole) >= FSYNCS - 1
    for first, second in (
        ("started", "locking"),
        ("locking", "flushing"),
        ("flushing", "logging"),
        ("logging", "end"),
    ):
        assert (getattr(whole, first) <= getattr(whole, second)).all()
    waits = of_process(found, "syncer", "fsync")
    waits = waits.take(waits.reason == WaitReason.JOURNAL_COMMIT)
    named = waits.take(waits.commit != NEVER)
    assert len(named) >= FSYNCS - 2
    assert set(named.commit.tolist()) <= set(commits.transaction.tolist())
    assert len(set(named.commit_dev.tolist())) == 1
