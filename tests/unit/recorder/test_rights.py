# SPDX-License-Identifier: Apache-2.0
"""Capabilities and priorities: which the recorder keeps, and what is said of those it lacks."""

import json
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from biotrail.cli import info, record
from biotrail.recorder.filters.filters import Filters, check_tasks
from biotrail.recorder.log import LogReader
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.probes import capability
from biotrail.recorder.probes.kernel import run_stats, tracefs
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.rights import capabilities, helpers, priority, rights
from biotrail.recorder.rights.priority import FILLED, LONG_NS, RealtimeBoost
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.session import session
from biotrail.recorder.session.session import RecordOptions
from biotrail.recorder.session.session import record as record_session
from tests.support.fake_probes import FakeProbes, options
from tests.support.paths import ROOT

# Capabilities: which are kept for which settings, and what is told of those that are not there.

ROTATED: dict[str, Any] = {"rotate": Limit(bytes=1 << 20)}
KEPT: dict[str, Any] = {"keep": Limit(seconds=30)}
FILES = {"CAP_CHOWN", "CAP_DAC_OVERRIDE"}


@pytest.fixture
def under_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_UID", "1000")
    monkeypatch.setenv("SUDO_GID", "1000")
    monkeypatch.setattr(os, "geteuid", lambda: 0)


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [
        ({}, set()),
        ({"command": ["make"]}, {"CAP_KILL"}),
        (ROTATED, FILES),
        (KEPT, FILES),
        ({**KEPT, "command": ["make"]}, FILES | {"CAP_KILL"}),
        ({"stacks": Stacks.KERNEL}, {"CAP_SYSLOG"}),
        (
            {"stacks": Stacks.USER},
            {"CAP_SYSLOG", "CAP_SYS_PTRACE", "CAP_CHECKPOINT_RESTORE", "CAP_DAC_READ_SEARCH"},
        ),
    ],
)
def test_what_is_kept_under_sudo(
    under_sudo: None, tmp_path: Path, chosen: dict[str, Any], expected: set[str]
) -> None:
    # GIVEN settings of a recording under sudo
    some = options(tmp_path / "x", **chosen)
    # WHEN it is asked what they go on needing
    # THEN rights for files are among it where files are to come, and to end a command
    names, ((_, programs),) = session.needed(some, FakeProbes())
    assert names == expected
    # AND reading the programs' accounts is tried, making files is not: that right is kept anyway
    assert programs in {"CAP_BPF", "CAP_SYS_ADMIN"}


def test_a_sticky_directory_of_another_needs_one_more(
    under_sudo: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a sticky directory
    tmp_path.chmod(0o777 | stat.S_ISVTX)
    some, owner = options(tmp_path / "x", **KEPT), tmp_path.stat().st_uid
    # WHEN it is somebody else's THEN deleting files there takes a right; else not
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    monkeypatch.setattr("biotrail.recorder.output.folders.owner", lambda: (1000, 1000))
    assert session.needed(some, FakeProbes())[0] == FILES | {"CAP_FOWNER"}
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    assert session.needed(some, FakeProbes())[0] == FILES


def test_without_sudo_making_files_is_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a rotating recording that nobody called by sudo
    monkeypatch.delenv("SUDO_UID", raising=False)
    some = options(tmp_path / "x", **ROTATED)
    # WHEN it is asked what it needs
    names, (*_, (make, needs)) = session.needed(some, FakeProbes())
    # THEN nothing for certain, but what a trial shows; it leaves nothing behind
    assert (names, needs) == (set(), "CAP_DAC_OVERRIDE")
    make()
    assert not any(tmp_path.iterdir())
    missing = options(tmp_path / "not there" / "x", **ROTATED)
    with pytest.raises(OSError):
        session.needed(missing, FakeProbes())[1][-1][0]()


GIVE_UP = """
import json
from biotrail.recorder.rights import capabilities, rights
from biotrail.recorder.schema.errors import ProbeError
def fail(error):
    raise error
trials = [
    (lambda: None, "CAP_CHOWN"),
    (lambda: fail(PermissionError(1, "no")), "CAP_FOWNER"),
    (lambda: fail(ProbeError("no")), "CAP_BPF"),
]
before, _, _ = capabilities.current()
kept = rights.give_up({"CAP_KILL"}, trials)
capabilities.gain_no_more()
facts = dict(line.partition(":\\t")[::2] for line in open("/proc/self/status"))
print(json.dumps([before, kept, facts]))
"""


def test_what_is_given_up_is_gone_for_good() -> None:
    # GIVEN a process that keeps one capability, and tries two things that fail without theirs
    # WHEN it gives up the others
    done = subprocess.run(
        [sys.executable, "-c", GIVE_UP], capture_output=True, text=True, cwd=ROOT, check=True
    )
    before, kept, facts = json.loads(done.stdout)
    # THEN it has those it had of these three, and no way to more
    wanted = capabilities.mask(["CAP_KILL", "CAP_FOWNER", "CAP_BPF"])
    assert capabilities.mask(kept) == before & wanted
    assert int(facts["CapEff"], 16) == int(facts["CapPrm"], 16) == before & wanted
    assert int(facts["CapInh"], 16) == int(facts["CapAmb"], 16) == 0
    assert facts["NoNewPrivs"].strip() == "1"


HURRY = """
import os
from biotrail.recorder.session import session
from biotrail.recorder.rights.priority import RealtimeBoost
from biotrail.recorder.session.session_types import RecordOptions
class Probes:
    site_stacks = False
    def programs(self):
        return []
kept, warning = session.reduce(RecordOptions("t", [], None), Probes())
boost = RealtimeBoost(())
boost.adapt(1.0)
first = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
boost.relax()
second = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK
print(kept, warning, first == os.SCHED_RR, second == os.SCHED_OTHER)
"""


def test_it_can_hurry_without_the_right_that_it_gave_up() -> None:
    # GIVEN root, who may raise its limit of real-time priority
    if os.geteuid() != 0:
        pytest.skip("needs root: the real-time class")
    # WHEN it gives up its rights, hurries and goes back
    done = subprocess.run(
        [sys.executable, "-c", HURRY],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=True,
    )
    # THEN both work, and a right was kept for it only where the limit cannot be raised
    limited = not (capabilities.holds("CAP_SYS_RESOURCE") or priority.permitted())
    kept = ["CAP_SYS_NICE"] if limited else []
    assert done.stdout == f"{kept}  True True\n"


def test_names_and_bits_agree_with_the_kernel(tmp_path: Path) -> None:
    # GIVEN this thread's sets as the kernel's own file tells them
    status = Path("/proc/thread-self/status").read_text().splitlines()
    facts = dict(line.partition(":\t")[::2] for line in status)
    # WHEN they are asked for THEN they are the same, and names go to bits and back
    now = capabilities.current()
    assert now[0] == int(facts["CapEff"], 16)
    assert now[1] == int(facts["CapPrm"], 16)
    assert now[2] == int(facts["CapInh"], 16)
    assert capabilities.names(capabilities.mask(capabilities.NUMBERS)) == list(capabilities.NUMBERS)
    assert capabilities.names(1 << 7) == ["cap_7"]
    # GIVEN threads, of which one has more than was kept, and one that has ended
    for number, (name, bits) in enumerate((("main", 0x20), ("blas", 0x21), ("writer", 0))):
        task = tmp_path / str(number)
        task.mkdir()
        (task / "status").write_text(f"Name:\t{name}\nCapPrm:\t{bits:016x}\n")
    (tmp_path / "gone").mkdir()
    # WHEN they are looked at THEN it is named
    assert rights.threads_with_more(0x20, tmp_path) == ["blas"]


def test_failing_to_give_up_or_to_forbid_more_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a system that refuses
    def refuse(*_arguments: Any) -> list[str]:
        raise PermissionError(1, "capset: Operation not permitted")

    monkeypatch.setattr(rights, "give_up", refuse)
    monkeypatch.setattr(capabilities, "holds", lambda name: False)
    seen: list[str] = []
    # WHEN it records
    some = options(tmp_path / "x", duration=0.05, give_up_rights=True)
    summary = record_session(some, lambda status: seen.append(status.note), FakeProbes())
    # THEN it goes on, and says so; what was kept is not told, for it was everything
    assert summary.error is None
    assert any("could not give up the rights it no longer needs" in note for note in seen)
    end = LogReader(tmp_path / "x").end
    assert end is not None
    assert "rights_kept" not in end

    # GIVEN a system that lets rights be given up, and refuses no_new_privs
    def refuse_more() -> None:
        raise PermissionError(1, "prctl: Operation not permitted")

    monkeypatch.setattr(rights, "give_up", lambda *_: ["CAP_KILL"])
    monkeypatch.setattr(rights, "threads_with_more", lambda _: [])
    monkeypatch.setattr(capabilities, "gain_no_more", refuse_more)
    monkeypatch.setattr(capabilities, "holds", lambda _: False)
    # WHEN rights are given up
    kept, warning = session.reduce(RecordOptions("t", [], None), FakeProbes())
    # THEN those that are kept are known, and the warning is on programs alone
    assert kept == ["CAP_KILL"]
    assert warning == (
        "programs that it starts may gain rights that it gave up "
        "([Errno 1] prctl: Operation not permitted)"
    )


def test_what_does_not_work_is_told_in_log_info_and_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a host that hides other users' processes
    monkeypatch.setattr(rights, "sees_all_processes", lambda: False)
    # WHEN no children are asked for THEN nothing is said of it
    path, seen = tmp_path / "x", list[str]()
    record_session(options(path, duration=0.01), probes=FakeProbes())
    lacks = LogReader(path).header["rights"]["lacking"]
    assert not any("processes" in lack["what"] for lack in lacks)
    # AND a process that is not there may be one that is hidden
    with pytest.raises(ProbeError, match="hides those here"):
        check_tasks(Filters(pids=(1 << 22,)))
    # GIVEN a user who may do nothing
    monkeypatch.setattr(capabilities, "holds", lambda name: False)
    monkeypatch.setattr(rights, "_always_counted", lambda: False)
    monkeypatch.setattr(priority, "permitted", lambda: False)
    # WHEN a process and its children are recorded
    path = tmp_path / "y"
    some = options(path, duration=0.05, filters=Filters(pids=(1,), children=True))
    summary = record_session(some, lambda status: seen.append(status.note), FakeProbes())
    # THEN the log's header says what it lacks, with the right that it takes
    needs = [lack["needs"] for lack in LogReader(path).header["rights"]["lacking"]]
    assert needs == ["CAP_SYS_ADMIN", "CAP_SYS_NICE", "CAP_SYS_PTRACE"]
    # AND so do info, the cost at the end, and for the children a line at the beginning
    info.command.main([str(path)], standalone_mode=False)
    assert "rights        run time of programs: not known, needs" in capsys.readouterr().out
    assert "run time of programs: not known, needs CAP_SYS_ADMIN)" in record._cost(summary)
    assert any("processes of other users: not visible" in note for note in seen)


def test_tracefs_that_is_closed_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a tracefs that this user may not look into
    monkeypatch.setattr(tracefs, "PLACES", (tmp_path,))
    monkeypatch.setattr(os, "access", lambda *_arguments: False)
    # WHEN it is looked for THEN it is said, with the remedy, and nothing is mounted over it
    assert tracefs.mounted() is None
    assert tracefs.absence() == "this user may not look into it"
    assert tracefs.remedy() == "run as root"
    with pytest.raises(ProbeError, match="closed to this user"):
        tracefs.find()


def test_locked_memory_matters_on_old_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a user with a limit
    monkeypatch.setattr(capabilities, "holds", lambda name: False)
    monkeypatch.setattr(capability.resource, "getrlimit", lambda _which: (65536, 8 << 20))
    # WHEN the kernel charges maps against it, or not THEN it is a problem, or not
    old: Any = SimpleNamespace(members={"bpf_map_memory": ["pages", "user"]}.get)
    new: Any = SimpleNamespace(members=lambda _name: None)
    assert "8192 KiB" in str(capability.locked_memory_problem(old))
    assert capability.locked_memory_problem(new) is None
    # AND not for who may go beyond
    monkeypatch.setattr(capabilities, "holds", lambda name: name == "CAP_SYS_RESOURCE")
    assert capability.locked_memory_problem(old) is None


def test_statistics_that_cannot_be_had_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a process for statistics that ends at once
    monkeypatch.setattr(run_stats, "_CHILD", Path("/nonexistent.py"))
    said: list[str] = []
    child = run_stats.StatsChild(said.append)
    child._process.wait()
    # WHEN statistics are switched on and off
    for on in (True, False, True):
        child.switch(on)
    child.close()
    # THEN nothing fails, and it is told once
    assert len(said) == 1
    assert "run time of programs: not known" in said[0]

    # GIVEN root on a host where no process can be started, and nothing is given up
    def refuse(*_arguments: Any, **_options: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(helpers.subprocess, "Popen", refuse)
    monkeypatch.setattr(capabilities, "holds", lambda name: True)
    monkeypatch.setattr(rights, "give_up", lambda *_arguments: [])
    monkeypatch.setattr(priority, "permit", lambda: None)
    seen: list[str] = []
    # WHEN it records
    some = options(tmp_path / "x", duration=0.05, give_up_rights=True)
    summary = record_session(some, lambda status: seen.append(status.note), FakeProbes())
    # THEN it does, and says what will be missing
    assert summary.error is None
    assert any("no process for it" in note for note in seen)


# When the recorder's threads hurry.

TOLD = "import os; print(os.sched_getscheduler(0))"


def test_a_ring_that_fills_makes_it_hurry_until_it_was_emptier_for_long() -> None:
    """GIVEN root WHEN a ring fills and empties THEN the thread is real-time as long as needed."""
    if os.geteuid() != 0:
        pytest.skip("needs root: the real-time class")
    steps = [(0.0, 1), (FILLED, 2), (0.0, 3), (0.9, 4), (0.0, LONG_NS), (0.0, LONG_NS + 5)]

    def work() -> list[object]:
        now = 0
        boost = RealtimeBoost((), lambda: now)
        told = []
        for fill, now in steps:  # noqa: B007
            boost.adapt(fill)
            told.append(policy())
        return [*told, boost.times]

    other, hurried = os.SCHED_OTHER, os.SCHED_RR
    assert in_a_thread(work) == [other, hurried, hurried, hurried, hurried, other, 1]


def in_a_thread(work: Callable[[], list[object]]) -> list[object]:
    """What `work` gives, run in a thread of its own, so that no test changes pytest's."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def policy() -> int:
    return os.sched_getscheduler(threading.get_native_id()) & ~os.SCHED_RESET_ON_FORK


def test_a_command_does_not_inherit_the_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """GIVEN a thread that hurries WHEN it starts a command THEN that is scheduled as usual."""

    def work() -> list[object]:
        boost = RealtimeBoost(())
        boost.adapt(1.0)
        told = subprocess.check_output([sys.executable, "-c", TOLD], text=True).strip()
        boost.relax()
        return [told, policy(), boost.times]

    usual = [str(os.SCHED_OTHER), os.SCHED_OTHER, 1]
    assert in_a_thread(work) == usual

    # AND where the kernel refuses nothing happens, and it is counted
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", refuse)
    assert in_a_thread(work) == usual


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((0, 0), (1, 1)),
        ((0, 7), (1, 7)),
        ((3, 7), (3, 7)),
        ((0, resource.RLIM_INFINITY), (1, resource.RLIM_INFINITY)),
    ],
)
def test_the_limit_is_raised_and_never_lowered(
    before: tuple[int, int], after: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """GIVEN limits (soft, hard) WHEN hurrying is permitted THEN the soft one is, no less else."""
    limits = [before]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    priority.permit()
    assert limits[-1] == after
