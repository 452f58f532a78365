# SPDX-License-Identifier: Apache-2.0
"""The experiment on real processes: they stand when the log says so, and go on whatever happens."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.host.cgroups import unified
from biotrail.recorder.pausing import stops
from tests.support.devices import MakeLoop
from tests.support.record_command import (
    SECONDS,
    biotrail,
    busy,
    read,
    recorder,
    remove_cgroup,
    started,
    stop,
    wait_until,
)

pytestmark = [
    pytest.mark.usefixtures("needs_bpf"),
    pytest.mark.xdist_group("pausing"),
    pytest.mark.long,
]

SETTLES_NS = 50_000_000
"""What may still end, or be queued by a kernel worker, when all of a suspect stands."""
_WORKS = "import time\nwhile True: time.sleep(0.001)"


@contextmanager
def worker() -> Iterator[subprocess.Popen[Any]]:
    """A process that goes on until the block ends."""
    with started([sys.executable, "-S", "-c", _WORKS]) as process:
        yield process


@contextmanager
def group_of(root: Path, *pids: int, name: str = "") -> Iterator[Path]:
    """A cgroup with these processes in it."""
    place = root / f"biotrail-test-{os.getpid()}{name}"
    place.mkdir()
    try:
        for pid in pids:
            (place / "cgroup.procs").write_text(str(pid))
        yield place
    finally:
        for pid in (place / "cgroup.procs").read_text().split():
            with suppress(OSError):
                (root / "cgroup.procs").write_text(pid)
        remove_cgroup(place)


def version_2() -> Path:
    found = unified()
    if found is None:
        pytest.skip("needs cgroup v2")
    return Path(found.point)


def stands(pid: int) -> bool:
    return stops.stat_of(pid)[0] in "Tt"


def listed(suspect: int | str) -> dict[str, Any]:
    """The list's entry of a process, or of a cgroup by its name; empty: it has none."""
    for path in Path(stops.DIRECTORY).glob("*.json"):
        with suppress(OSError, ValueError):  # it is taken off the list, or being written
            entry: dict[str, Any] = json.loads(path.read_text())
            if suspect in (entry.get("pid"), Path(entry.get("directory", "")).name):
                return entry
    return {}


def not_listed(suspect: int) -> bool:
    return not listed(suspect)


def guard_of(suspect: int) -> int:
    """The process that has the suspect stand now."""
    return int(listed(suspect)["guard"])


def goes_on(pid: int) -> None:
    wait_until(lambda: not stands(pid), "it stands still")
    time.sleep(0.2)
    assert not stands(pid)


@pytest.mark.parametrize("how", ["process", "cgroup"])
def test_the_suspect_stands_when_the_log_says_so(
    how: str, tmp_path: Path, make_loop: MakeLoop
) -> None:
    # GIVEN a program that reads all the time
    loop, path = make_loop(), tmp_path / "x"
    with busy(loop.path) as reader:
        wait_until(lambda: int(stops.stat_of(reader.pid)[11]) > 5, "fio does not read")
        # WHEN it is stopped eight times, by its number or by its cgroup
        if how == "process":
            words = ("record", "-d", loop.name, "-o", path, "--pause", f"{reader.pid}=8x500ms")
            said = biotrail(*words).stderr
        else:
            with group_of(version_2(), reader.pid) as group:
                name = f"/{group.name}=8x500ms"
                said = biotrail("record", "-d", loop.name, "-o", path, "--pause", name).stderr
    # THEN it reads nothing in the periods of the log, and something between them
    log = read(path)
    periods = [(p["from"], p["to"]) for p in log.context.paused]
    # On a busy machine it may not stand within a second: then that is said, and a period less.
    assert len(periods) + said.count("a period less") == 8
    assert periods
    assert {p["times"] for p in log.context.paused} == {8}
    queue = np.sort(log.bios.queue)
    last = int(queue[0])
    for begin, end in periods:
        assert 200_000_000 < end - begin < 1_000_000_000
        assert np.count_nonzero((queue > begin + SETTLES_NS) & (queue < end)) == 0
        assert np.count_nonzero((queue > last) & (queue < begin)) > 0
        last = end
    assert queue[-1] > last
    # AND nothing is left in the list
    assert not listed(reader.pid if how == "process" else group.name)


def test_a_freezer_of_version_1_that_holds_exactly_these(tmp_path: Path) -> None:
    # GIVEN a freezer cgroup of the first version with one process
    root = Path("/sys/fs/cgroup/freezer")
    if not (root / "cgroup.procs").exists():
        pytest.skip("needs the freezer of cgroup v1")
    with worker() as one, worker() as other, group_of(root, one.pid) as group:
        # WHEN the group is stopped while recording
        options = ("--pause", f"/{group.name}=8x500ms", "-o", tmp_path / "x")
        with recorder(*options) as process:
            # THEN it is frozen, and goes on with the recorder's end
            wait_until(lambda: "FROZEN" in (group / "freezer.state").read_text(), "not frozen")
            assert process.poll() is None
            status, _ = stop(process, signal.SIGINT)
        assert status == 0
        assert (group / "freezer.state").read_text().strip() == "THAWED"
        # AND where it holds others than the group that is named, that is refused
        (group / "cgroup.procs").write_text(str(other.pid))
        with group_of(Path("/sys/fs/cgroup/blkio"), one.pid, name="-io") as named:
            name = f"/{named.name}=8x1s"
            said = biotrail("record", "--pause", name, "--dry-run", status=1).stderr
        assert "holds other processes, too" in said


def test_it_goes_on_when_the_recorder_is_killed(tmp_path: Path) -> None:
    # GIVEN recorders that stop a process each again and again
    draw = random.Random(0)
    with ExitStack() as stack:
        suspects = [stack.enter_context(worker()) for _ in range(5)]
        recording = []
        for number, suspect in enumerate(suspects):
            options = ("--pause", f"{suspect.pid}=100x500ms", "-o", tmp_path / f"{number}")
            recording.append(stack.enter_context(recorder(*options)))
        for process in recording:
            # WHEN each is killed at whatever moment
            time.sleep(draw.uniform(0, 0.5))
            process.kill()
            process.wait(SECONDS)
        # THEN the processes go on, and are stopped no more
        for suspect in suspects:
            goes_on(suspect.pid)
            wait_until(partial(not_listed, suspect.pid), "it is still listed")
        time.sleep(0.8)
        assert not any(stands(suspect.pid) for suspect in suspects)


def test_it_goes_on_when_the_recorders_cgroup_is_killed(tmp_path: Path) -> None:
    # GIVEN a recorder in a cgroup of its own, as a service, while its suspect stands
    root = version_2()
    with worker() as suspect:
        options = ("--pause", f"{suspect.pid}=100x4s", "-o", tmp_path / "x")
        with recorder(*options) as process, group_of(root, process.pid) as group:
            wait_until(lambda: stands(suspect.pid), "it does not stand")
            if not (group / "cgroup.kill").exists():
                pytest.skip("needs cgroup.kill")
            # WHEN all that is in the cgroup is killed
            (group / "cgroup.kill").write_text("1")
            process.wait(SECONDS)
        # THEN the process goes on
        goes_on(suspect.pid)


def test_the_recorder_takes_a_killed_guards_place(tmp_path: Path) -> None:
    # GIVEN a recorder whose suspect stands
    with worker() as suspect:
        options = ("--pause", f"{suspect.pid}=100x4s", "-o", tmp_path / "x", "--duration", "60s")
        with recorder(*options) as process:
            wait_until(lambda: stands(suspect.pid), "it does not stand")
            # WHEN its guard is killed
            os.kill(guard_of(suspect.pid), signal.SIGKILL)
            # THEN the process goes on, and the recorder says so
            goes_on(suspect.pid)
            status, said = stop(process, signal.SIGINT)
    assert status == 0
    assert "the guard has ended" in said
    biotrail("record", "--resume")


def test_what_nobody_can_undo_any_more_is_undone_by_resume(tmp_path: Path) -> None:
    # GIVEN a process that stands, and neither recorder nor guard any more
    with worker() as suspect:
        options = ("--pause", f"{suspect.pid}=100x4s", "-o", tmp_path / "x")
        with recorder(*options) as process:
            wait_until(lambda: stands(suspect.pid), "it does not stand")
            guard = guard_of(suspect.pid)
            process.send_signal(signal.SIGSTOP)
            os.kill(guard, signal.SIGKILL)
            process.kill()
            process.wait(SECONDS)
        assert stands(suspect.pid)
        entry = listed(suspect.pid)
        assert (entry["kind"], entry["pid"]) == ("process", suspect.pid)
        # WHEN the list is undone
        said = biotrail("record", "--resume").stderr
        # THEN it goes on
        goes_on(suspect.pid)
        assert f"({suspect.pid}): goes on" in said
        assert not listed(suspect.pid)


def test_what_others_have_stopped_stays_so(tmp_path: Path) -> None:
    # GIVEN a process that somebody else stops while the recorder lets it run
    with worker() as suspect:
        options = ("--pause", f"{suspect.pid}=100x500ms", "-o", tmp_path / "x")
        with recorder(*options) as process:
            wait_until(lambda: stands(suspect.pid), "it does not stand")
            goes_on(suspect.pid)
            suspect.send_signal(signal.SIGSTOP)
            # WHEN the recorder's next periods come, and it ends
            time.sleep(2)
            status, said = stop(process, signal.SIGINT)
        # THEN it stands still, and the recorder has said why it has a period less
        assert status == 0
        assert stands(suspect.pid)
        assert "others have stopped it" in said


def test_who_must_not_be_stopped_is_refused(tmp_path: Path) -> None:
    # GIVEN the first process, a kernel thread, whoever started this, one that serves, one traced
    cases = {"1": "first process", "2": "kernel thread", f"{os.getpid()}": "the recorder"}
    with started(["sleep", "100"], pass_fds=(fd := os.open("/dev/loop-control", os.O_RDWR),)) as p:
        os.close(fd)
        cases[str(p.pid)] = "/dev/loop-control"
        with worker() as victim:
            # WHEN they are to be stopped
            for name, why in cases.items():
                said = biotrail("record", "--pause", f"{name}=8x1s", "--dry-run", status=1).stderr
                # THEN each is refused, with the reason
                assert "is not stopped: " in said
                assert why in said
            # AND so is the victim that the recording is about
            pid = str(victim.pid)
            said = biotrail(
                "record", "--pid", pid, "--pause", f"{pid}=8x1s", "-o", tmp_path / "x", status=1
            ).stderr
            assert "the victim" in said
            # WHEN it is another than the victim THEN a dry run says what would be stopped
            said = biotrail("record", "--pause", f"{pid}=8x1s", "--dry-run").stderr
            assert f"({pid}) 8 times for about 1 s each" in said
    assert not (tmp_path / "x").exists()


def test_a_unit_is_found_by_its_name() -> None:
    # GIVEN a cgroup as a unit has, with a process in one below it
    root = version_2()
    with worker() as suspect, group_of(root, name=".slice") as slice_:
        unit = slice_ / "biotrail-test-x.service"
        unit.mkdir()
        try:
            with group_of(unit, suspect.pid):
                # WHEN it is named as a unit
                said = biotrail("record", "--pause", "biotrail-test-x=8x1s", "--dry-run").stderr
        finally:
            (root / "cgroup.procs").write_text(str(suspect.pid))
            remove_cgroup(unit)
    # THEN it is the unit's cgroup that would be stopped
    assert f"/{slice_.name}/{unit.name} 8 times" in said
    assert f"({suspect.pid})" in said
