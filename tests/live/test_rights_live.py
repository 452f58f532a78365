# SPDX-License-Identifier: Apache-2.0
"""With little rights it records all the same, and with many it keeps what it needs alone."""

import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host.container_state import present
from biotrail.recorder.log import LogReader
from biotrail.recorder.rights import capabilities
from biotrail.text import units
from tests.support.devices import Fio
from tests.support.record_command import (
    ROOT,
    biotrail,
    children,
    environment,
    logs_in,
    read,
    recorder,
    stop,
    wait_until,
)

pytestmark = pytest.mark.usefixtures("needs_bpf")

READS: dict[str, Any] = {"rw": "randread", "bs": "4k", "number_ios": 300, "ioengine": "psync"}
NOBODY = 65534
USER = ROOT.stat().st_uid or NOBODY
"""Who can read this checkout, and is not root."""


HURRY = set() if capabilities.holds("CAP_SYS_RESOURCE") else {"CAP_SYS_NICE"}
"""What root keeps in any case, where it may not raise its limit of real-time priority instead."""


@cache
def as_user(*capabilities: str) -> tuple[str, ...]:
    """Starts a program as an ordinary user with these capabilities alone."""
    if shutil.which("setpriv") is None:
        pytest.skip("needs setpriv")
    caps = ",".join(["-all", *(f"+{name}" for name in capabilities)])
    who = (f"--reuid={USER}", f"--regid={USER}", "--clear-groups")
    by = ("setpriv", *who, f"--inh-caps={caps}", f"--ambient-caps={caps}")
    probe = [*by, sys.executable, "-c", "import biotrail.cli.record"]
    done = subprocess.run(probe, env=environment(), capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        pytest.skip(f"needs a checkout that others can read: {done.stderr[-200:]}")
    return by


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that is that user's alone.

    Not below pytest's own, which other runs of pytest close to others at any time.
    """
    with tempfile.TemporaryDirectory(prefix="biotrail-home-") as directory:
        os.chown(directory, USER, USER)
        yield Path(directory)


def statuses(pid: int) -> list[dict[str, str]]:
    """What /proc says of each thread."""
    texts = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended since
            texts.append((task / "status").read_text())
    return [dict(line.partition(":\t")[::2] for line in text.splitlines()) for text in texts]


def held(pid: int, which: str) -> set[tuple[str, ...]]:
    """Sets of capabilities that the threads of a process have."""
    return {tuple(capabilities.names(int(status[which], 16))) for status in statuses(pid)}


def test_two_capabilities_are_enough(home: Path, loop_device: Any, fio: Fio) -> None:
    # GIVEN an ordinary user with CAP_BPF and CAP_PERFMON, who records with filter and trigger
    by, what = as_user("bpf", "perfmon"), ("-d", loop_device.name, "--comm", "fio", "--op", "read")
    with recorder(*what, "-o", home / "x", by=by) as process:
        # WHEN the device is read
        report = fio(loop_device.path, **READS)
        # THEN meanwhile the recorder has no rights but what reading its maps may need
        (kept,) = held(process.pid, "CapEff")
        assert set(kept) <= {"CAP_BPF"}
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # AND the log holds every read, belongs to the user, and says what is not known
    log = read(home / "x")
    assert len(log.by("fio").sector) == report["jobs"][0]["read"]["total_ios"]
    assert (home / "x").stat().st_uid == USER
    lacks = {lack["needs"] for lack in log.context.header["rights"]["lacking"]}
    assert "CAP_SYS_NICE" in lacks
    if "CAP_SYS_ADMIN" in lacks:
        # Whoever else records may have had the kernel count the runs of all programs meanwhile.
        counted = (log.trace.reader.end or {})["ns_per_event"]
        unknown = "run time of programs: not known, needs CAP_SYS_ADMIN"
        assert ("ns per event" if counted else unknown) in said
        assert "run time of programs: not known" in biotrail("info", home / "x").stdout


def test_a_user_has_dumps_rotation_and_a_command(home: Path, loop_device: Any) -> None:
    # GIVEN an ordinary user with CAP_BPF and CAP_PERFMON
    by = as_user("bpf", "perfmon")
    # WHEN a flight recorder with triggers is sent SIGUSR1
    some = ("--keep", "60s", "--trigger", "slow=1h", "--trigger", "depth=1000")
    with recorder("-d", loop_device.name, *some, "-o", home / "kept", by=by) as process:
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: bool(logs_in(home)), "no dump was written")
        status, said = stop(process, signal.SIGTERM)
    # THEN it dumps then and at the end
    assert status == 0, said
    assert len(logs_in(home)) == 2
    # AND a command's exit status is its own, and it has the rights that biotrail was given
    code = "grep ^CapEff /proc/self/status; exit 7"
    arguments = ("record", "--rotate", "1G", "-o", home / "turned", "--", "sh", "-c", code)
    done = biotrail(*arguments, by=by, status=7)
    assert capabilities.names(int(done.stdout.split()[1], 16)) == ["CAP_PERFMON", "CAP_BPF"]


def test_rights_of_a_user_namespace_are_not_taken_for_the_hosts() -> None:
    # GIVEN root of a user namespace, as in a rootless container, which has all capabilities there
    by = ("unshare", "--user", "--map-root-user")
    if subprocess.run([*by, "true"], capture_output=True).returncode:
        pytest.skip("needs user namespaces")
    # WHEN doctor is asked  THEN it says what these rights are
    said = biotrail("doctor", by=by, status=1).stdout
    assert "has its rights in a user namespace of its own" in said


def test_doctor_says_what_is_off() -> None:
    # GIVEN users without rights, and with two
    # WHEN they ask
    without = biotrail("doctor", by=as_user(), status=1).stdout
    two = biotrail("doctor", by=as_user("bpf", "perfmon")).stdout
    # THEN the first is told what is missing for recording, the second that it can
    assert f"uid {USER} lacks CAP_BPF and CAP_PERFMON" in without
    assert "biotrail can record here (backends: core" in two
    # AND both are told what else is off, and why
    for said in (without, two):
        assert "priority of the recorder: not raised while rings fill" in said
        assert "needs CAP_SYS_NICE" in said
        assert "no  tracefs" not in said or "this user may not look into it" in said


def test_tracefs_that_is_closed_to_the_user_is_an_error_of_one_line(home: Path) -> None:
    # GIVEN an ordinary user
    by = as_user("bpf", "perfmon")
    # WHEN bcc is asked for
    done = biotrail(
        "record", "--backend", "bcc", "-o", home / "x", "--duration", "1s", by=by, status=None
    )
    # THEN it works, or one line says why not
    assert done.returncode == 0 or done.stderr.count("biotrail: error:") == 1
    assert "Traceback" not in done.stderr


def test_root_keeps_nothing_that_a_plain_log_does_not_need(
    tmp_path: Path, loop_device: Any
) -> None:
    # GIVEN a recording by root
    with recorder("-d", loop_device.name, "-o", tmp_path / "x") as process:
        # WHEN it records
        # THEN its threads have no capability but that, and could get none by starting a program
        assert len(statuses(process.pid)) > 1
        for which in ("CapEff", "CapPrm", "CapInh", "CapAmb"):
            kept = HURRY if which in ("CapEff", "CapPrm") else ()
            assert held(process.pid, which) == {tuple(kept)}
        assert {s["NoNewPrivs"] for s in statuses(process.pid)} == {"1"}
        # AND the process that switches run statistics has one, and so has the one that reads names
        # of containers, where there can be any
        rights = {("CAP_SYS_ADMIN",), *([("CAP_DAC_READ_SEARCH",)] if present() else [])}
        beside = children(process.pid)
        assert len(beside) == len(rights)
        wait_until(
            lambda: set().union(*(held(one, "CapPrm") for one in beside)) == rights,
            "they do not give up the others",
        )
        status, said = stop(process, signal.SIGINT)
    assert status == 0, said
    # AND the log's end says so
    end = LogReader(tmp_path / "x").end
    assert end is not None
    assert end["rights_kept"] == [*HURRY]


def test_a_command_has_the_rights_it_would_have_alone(tmp_path: Path) -> None:
    # GIVEN a command that tells its own rights, and the recorder's
    code = "grep -E 'Cap|NoNew' /proc/self/status; grep CapEff /proc/$PPID/status"
    # WHEN root records it
    log = tmp_path / "x"
    alone = subprocess.run(["sh", "-c", code], capture_output=True, text=True, check=True).stdout
    done = biotrail("record", "-o", log, "--", "sh", "-c", code)
    # THEN it has what it has without biotrail
    assert done.stdout.splitlines()[:-1] == alone.splitlines()[:-1]
    # AND the recorder kept the right to end it, whoever it becomes
    end = LogReader(log).end
    assert end is not None
    assert end["rights_kept"] == ["CAP_KILL", *HURRY]


def test_a_command_that_became_another_user_is_ended(tmp_path: Path) -> None:
    # GIVEN root recording a command that runs as another user
    by = as_user()
    with recorder("-o", tmp_path / "x", "--", *by, "sleep", "1000") as process:
        wait_until(lambda: USER in _users(process.pid), "the command does not start")
        # WHEN the recorder is told to end
        status, said = stop(process, signal.SIGTERM)
    # THEN the command was told too
    assert status == 128 + signal.SIGTERM, said


def _users(pid: int) -> set[int]:
    found = set()
    for child in children(pid):
        found |= {int(status["Uid"].split()[0]) for status in statuses(child)}
    return found


@pytest.mark.parametrize("mode", [0o700, 0o1777])
@pytest.mark.parametrize("how", [("--rotate", "300ms"), ("--keep", "60s")])
def test_later_files_belong_to_who_called_sudo(
    home: Path, loop_device: Any, how: tuple[str, ...], mode: int
) -> None:
    # GIVEN a recording under sudo, to a directory that is the user's alone or sticky
    home.chmod(mode)
    sudo = environment(SUDO_UID=str(USER), SUDO_GID=str(USER))
    where = ("-d", loop_device.name, "-o", home / "x", "--max-files", "2")
    with recorder(*how, *where, env=sudo) as process:
        # WHEN more files are made than shall stay
        for number in range(1, 5):
            wait_until(partial(_one_more, process, loop_device.path, home, number), "no new file")
        (kept,) = held(process.pid, "CapEff")
        status, said = stop(process, signal.SIGINT)
    # THEN all went well, the oldest are gone, the others are the user's
    assert status == 0, said
    assert "failed" not in said
    assert len(logs_in(home)) == 2
    assert {path.stat().st_uid for path in home.iterdir()} == {USER}
    assert {path.stat().st_gid for path in home.iterdir()} == {USER}
    # AND no right was kept that this does not need
    sticky = {"CAP_FOWNER"} if mode & 0o1000 else set()
    assert set(kept) == {"CAP_CHOWN", "CAP_DAC_OVERRIDE"} | sticky | HURRY


@pytest.mark.parametrize("owned", ["by root", "by another user"])
def test_making_files_in_a_directory_of_another_user_keeps_one_right(
    home: Path, tmp_path: Path, loop_device: Any, owned: str
) -> None:
    # GIVEN a flight recorder that root starts, not by sudo
    where = home if owned == "by another user" else tmp_path
    some = environment()
    some.pop("SUDO_UID", None)
    with recorder("-d", loop_device.name, "--keep", "9s", "-o", where / "x", env=some) as process:
        # WHEN it records
        (kept,) = held(process.pid, "CapEff")
        status, said = stop(process, signal.SIGINT)
    # THEN it keeps the right that its directory asks for, and its dump is there
    assert status == 0, said
    assert len(logs_in(where)) == 1
    assert set(kept) == HURRY | ({"CAP_DAC_OVERRIDE"} if where == home else set())


def test_a_log_in_a_closed_directory_is_told_with_its_size(home: Path, loop_device: Any) -> None:
    # GIVEN a directory that is closed to root without rights
    sudo = environment(SUDO_UID=str(USER), SUDO_GID=str(USER))
    # WHEN one log is recorded there, for which no right is kept
    log = home / "x"
    short = ("record", "-d", loop_device.name, "--duration", "100ms", "-o", log)
    said = biotrail(*short, env=sudo).stderr
    # THEN it is the user's, and what is said of its size is what the file has
    assert log.stat().st_uid == USER
    assert f"log {units.size(log.stat().st_size)}" in said


def test_hidden_processes_are_told(home: Path) -> None:
    # GIVEN a /proc that hides other users' processes
    hide = 'mount -t proc -o hidepid=2 proc /proc && exec "$@"'
    by = ("unshare", "--mount", "sh", "-c", hide, "sh", *as_user("bpf", "perfmon"))
    # WHEN another user's process is to be recorded, and doctor is asked
    done = biotrail("record", "--pid", "1", "-o", home / "x", by=by, status=1)
    doctor = biotrail("doctor", by=by).stdout
    # THEN both say that it may be there
    assert "/proc hides those here (hidepid=)" in done.stderr
    assert "processes of other users: not visible" in doctor


def _one_more(process: Any, device: str, directory: Path, number: int) -> bool:
    """Reads something and asks for a dump; whether there is a file of that number."""
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    os.preadv(fd, [mmap.mmap(-1, 4096)], 0)
    os.close(fd)
    numbers = [int(path.stem.rpartition("-")[2]) for path in logs_in(directory)]
    if max(numbers, default=0) < number:
        process.send_signal(signal.SIGUSR1)
        return False
    return True


def test_two_recorders_do_not_disturb_each_other(
    tmp_path: Path, loop_device: Any, fio: Fio
) -> None:
    # GIVEN a recorder of everything on a device, and a second one with filters
    def reads(**others: Any) -> int:
        return int(fio(loop_device.path, **READS, **others)["jobs"][0]["read"]["total_ios"])

    device = ("-d", loop_device.name)
    with recorder(*device, "-o", tmp_path / "long") as long:
        before = reads()
        some = ("--op", "read", "--events", "minimal", "--comm", "fio")
        with recorder(*device, *some, "-o", tmp_path / "short") as short:
            # WHEN both record, and the second ends before the first
            both = reads()
            assert stop(short, signal.SIGINT)[0] == 0
        after = reads()
        assert stop(long, signal.SIGINT)[0] == 0
    # THEN each has the reads of its time, all of them, and lost nothing
    for name, number in (("long", before + both + after), ("short", both)):
        log = read(tmp_path / name)
        assert len(log.by("fio").sector) == number
        assert log.trace.reader.losses == []
