# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch DIR --to DIR`: which logs are shipped, and when a log goes."""

import fcntl
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from biotrail.cli.archive import ArchiveOptions
from biotrail.cli.archiving import destination, shipping
from biotrail.cli.archiving.destination import credentials
from biotrail.cli.archiving.shipping import FoundLog, is_written
from biotrail.cli.options.opening import USUAL
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.schema.errors import OutputError
from tests.support.cli_runner import Cli, Done
from tests.support.hostile_places import KINDS, OTHER, needs_root, precious, put, swapped, untouched
from tests.support.log_samples import PERIOD, START, clock
from tests.support.record_command import wait_until
from tests.support.shipped_logs import EVENTS, archive_name, begin_log, damage, write_log


class Place:
    """A directory of logs, a destination, and the command between them."""

    def __init__(self, directory: Path, cli: Cli) -> None:
        self.cli = cli
        self.logs, self.to = directory / "logs", directory / "to"
        self.logs.mkdir()
        self.to.mkdir()

    def log(self, number: int, *, end: bool = True) -> Path:
        return write_log(self.logs / f"run-{number:06d}.biotrail", number, end=end)

    def archive(self, number: int) -> Path:
        return self.to / archive_name(number, f"run-{number:06d}")

    def ship(self, *options: str) -> Done:
        return self.cli("archive", "--watch", self.logs, "--to", self.to, "--once", *options)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.logs.glob("*.biotrail"))


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, Cli(capsys))


def test_finished_logs_are_archived_and_go(place: Place) -> None:
    # GIVEN two finished logs
    for number in (1, 2):
        place.log(number)
    # WHEN they are shipped
    done = place.ship()
    # THEN each has its archive, by host, day, name and id; the logs are gone, and nothing is left
    assert done.status == 0, done.err
    assert [line.rpartition("; ")[2] for line in done.err.splitlines()[:2]] == ["log deleted"] * 2
    assert done.err.splitlines()[2] == "biotrail: 2 logs shipped"
    assert place.left() == []
    assert sorted(place.to.rglob("*.parquet")) == [place.archive(1), place.archive(2)]
    assert [path.name for path in (place.logs / shipping_folder()).iterdir()] == ["lock"]
    verified = place.cli("verify", place.to)
    assert verified.status == 0
    assert verified.out.count(f"whole: archive of {EVENTS} events") == 2
    # AND archive and folders are for their owner alone
    archive = place.archive(1)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in archive.parents[:3]} == {0o700}


def shipping_folder() -> str:
    return shipping.STAGING


def test_a_log_that_is_being_written_is_left_until_its_writer_is_gone(place: Place) -> None:
    # GIVEN a log that a recorder has open
    path = place.logs / "run-000001.biotrail"
    with path.open("wb") as stream:
        writer = begin_log(stream, 1)
        # WHEN the directory is shipped
        done = place.ship()
        # THEN it is left alone
        assert done.status == 0
        assert "0 logs shipped, 1 still being written" in done.err
        assert place.left() == [path.name]
        writer.close({"clocks": clock(START + 4 * PERIOD)})
    # AND WHEN the recorder has closed it, it is shipped
    assert place.ship().status == 0
    assert place.left() == []


def test_a_killed_recorders_log_is_shipped_as_far_as_it_goes(place: Place) -> None:
    # GIVEN a log without an end that nobody writes to
    place.log(1, end=False)
    # WHEN the directory is shipped
    done = place.ship()
    # THEN its archive has all that was written, says that it was interrupted, and the log is gone
    assert done.status == 0
    assert "its recorder was interrupted" in done.err
    assert place.left() == []
    assert "interrupted: whole up to there" in place.cli("verify", place.archive(1)).out


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


@pytest.mark.parametrize(
    ("harm", "end", "said"),
    [(damage, True, "damaged: chunk at offset"), (cut, False, "damaged: the last")],
)
def test_a_damaged_log_is_shipped_and_kept(
    place: Place, harm: Callable[[Path], None], end: bool, said: str
) -> None:
    # GIVEN a log with a damaged chunk, or one that ends within its last chunk
    harm(place.log(1, end=end))
    # WHEN the directory is shipped
    done = place.ship()
    # THEN what can be read is in the archive, the damage is named, and the log stays
    assert done.status == 0
    assert "8 events in" in done.err
    assert f"log kept ({said}" in done.err
    assert place.left() == ["run-000001.biotrail"]
    # AND it is not written again the next time
    before = place.archive(1).stat()
    again = place.ship()
    assert "0 logs shipped, 1 kept" in again.err
    assert place.archive(1).stat() == before
    # AND WHEN it shall go, it goes
    assert "log deleted" in place.ship("--take-damaged").err
    assert place.left() == []
    assert place.archive(1).stat() == before


def test_logs_may_be_kept(place: Place) -> None:
    # GIVEN a log
    place.log(1)
    # WHEN it is shipped twice with --keep-logs
    first = place.ship("--keep-logs")
    before = place.archive(1).stat()
    second = place.ship("--keep-logs")
    # THEN it stays, and is archived once
    assert "log kept (--keep-logs)" in first.err
    assert (first.status, second.status) == (0, 0)
    assert place.left() == ["run-000001.biotrail"]
    assert place.archive(1).stat() == before


@pytest.mark.parametrize("whole", [True, False])
def test_what_a_killed_shipper_left_is_taken_up(place: Place, whole: bool) -> None:
    # GIVEN a log whose archive is at the destination already, whole or in part, because a shipper
    # was killed; and what it was making
    place.log(1)
    place.ship("--keep-logs")
    archive = place.archive(1)
    right = archive.read_bytes()
    if not whole:
        archive.write_bytes(right[: len(right) // 2])
    left = archive.with_name(f".{archive.name}.0011223344556677.part")
    staged = place.logs / shipping_folder() / "staged.parquet"
    for path in (left, staged):
        path.write_bytes(b"half")
    before = archive.stat()
    # WHEN it is shipped
    done = place.ship()
    # THEN there is one whole archive, a whole one was not written again, and the log is gone
    assert done.status == 0
    assert archive.read_bytes() == right
    assert (archive.stat() == before) is whole
    assert place.left() == []
    assert not staged.exists()
    assert not left.exists()


def test_a_log_stays_while_its_archive_is_not_what_was_written(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a destination that changes a byte of what it stores
    put = destination._Directory.put

    def put_wrong(self: destination._Directory, staged: Path, name: str) -> None:
        put(self, staged, name)
        path = Path(self.shown(name))
        path.write_bytes(path.read_bytes()[:-9] + b"?" + path.read_bytes()[-8:])

    monkeypatch.setattr(destination._Directory, "put", put_wrong)
    place.log(1)
    # WHEN a log is shipped
    done = place.ship()
    # THEN that is an error, and the log stays
    assert done.status == 1
    assert done.err.endswith("is not what was written: its checksum differs\n")
    assert place.left() == ["run-000001.biotrail"]
    # AND WHEN the destination works, it is shipped
    monkeypatch.undo()
    assert place.ship().status == 0
    assert place.cli("verify", place.to).status == 0


def test_a_log_stays_where_its_archive_is_not_whole(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an archive that is damaged while it is made
    write = shipping.write_events

    def write_wrong(*arguments: object) -> int:
        events = write(*arguments)  # type: ignore[arg-type]
        path = Path(str(arguments[1]))
        path.write_bytes(path.read_bytes()[:200] + b"???" + path.read_bytes()[203:])
        return events

    monkeypatch.setattr(shipping, "write_events", write_wrong)
    place.log(1)
    # WHEN the log is shipped
    done = place.ship()
    # THEN nothing is stored, the log stays, and the status says so
    assert done.status == 1
    assert "its archive is not whole" in done.err
    assert place.left() == ["run-000001.biotrail"]
    assert list(place.to.rglob("*.parquet")) == []


def test_another_logs_archive_is_not_replaced(place: Place) -> None:
    # GIVEN an archive of the name that a log's archive will have, of another log
    place.log(1)
    place.ship()
    other = place.archive(2)
    place.archive(1).rename(other)
    before = other.read_bytes()
    place.log(2)
    place.log(3)
    # WHEN both are shipped
    done = place.ship()
    # THEN the first is not, the archive is as it was, and the other log is shipped
    assert done.status == 1
    assert "is the archive of another log" in done.err
    assert "run-000002.biotrail: not shipped: " in done.err
    assert done.err.count("run-000002.biotrail: ") == 1
    assert "1 log shipped, 1 not shipped" in done.err
    assert other.read_bytes() == before
    assert place.left() == ["run-000002.biotrail"]


def test_what_is_no_log_is_said_and_left(place: Place) -> None:
    # GIVEN a file that is no log, a link, a hidden file and an empty one beside a log
    (place.logs / "notes.biotrail").write_text("not a log at all, but long enough to be read" * 9)
    (place.logs / "link.biotrail").symlink_to(place.log(1))
    (place.logs / ".part.biotrail").write_bytes(b"x")
    (place.logs / "empty.biotrail").touch()
    # WHEN the directory is shipped
    done = place.ship()
    # THEN that file alone is an error; the log is shipped
    assert done.status == 1
    assert "notes.biotrail" in done.err
    assert "1 log shipped, 1 not shipped" in done.err
    assert place.left() == [".part.biotrail", "empty.biotrail", "link.biotrail", "notes.biotrail"]


def test_one_shipper_works_in_a_directory(place: Place) -> None:
    # GIVEN a shipper's lock
    place.log(1)
    staging = place.logs / shipping_folder()
    staging.mkdir()
    with (staging / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # WHEN another one begins
        done = place.ship()
    # THEN it ends at once, and nothing was done
    assert done.status == 1
    assert "another `biotrail archive --watch` ships its logs" in done.err
    assert place.left() == ["run-000001.biotrail"]


def test_a_full_destination_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a destination that is full
    place.log(1)
    sync = os.fsync

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    # WHEN a log is shipped
    done = place.ship()
    monkeypatch.setattr(os, "fsync", sync)
    # THEN that is one message, and nothing is half there
    assert done.status == 1
    assert "no space left on the device" in done.err
    assert place.left() == ["run-000001.biotrail"]
    assert [path for path in place.to.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("to", "to: is no directory: make or mount it, or give another"),
        ("logs", "logs: cannot be read: No such file or directory; give the directory"),
    ],
)
def test_a_directory_that_is_not_there_is_not_made(place: Place, gone: str, said: str) -> None:
    # GIVEN no destination (a disk that is not mounted), or no directory of logs
    getattr(place, gone).rmdir()
    # WHEN it is shipped
    done = place.ship()
    # THEN one line says so
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert said in done.err
    assert not getattr(place, gone).exists()


def test_without_leases_a_log_without_an_end_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file system that does not tell who writes, with a whole log and one without end
    fcntl_of = fcntl.fcntl

    def none(fd: int, command: int, argument: int = 0) -> int:
        if command == fcntl.F_SETLEASE:
            raise OSError(22, "Invalid argument")
        return fcntl_of(fd, command, argument)

    monkeypatch.setattr(fcntl, "fcntl", none)
    place.log(1)
    place.log(2, end=False)
    # WHEN the directory is shipped
    done = place.ship()
    # THEN the one that has its end is shipped; of the other it is said why not
    assert done.status == 0
    assert "this file system does not tell whether it is being written" in done.err
    assert place.left() == ["run-000002.biotrail"]


# Whose fault it is that a log is not shipped: its own, or the destination's.

Put = Callable[[destination._Directory, Path, str], None]


class Faulty(Place):
    """Logs with different faults, by name."""

    def log(self, name: str, number: int, host: str = "db7") -> Path:
        return write_log(self.logs / f"{name}.biotrail", number, host=host)

    def left(self) -> list[str]:
        return sorted(path.name.removesuffix(".biotrail") for path in self.logs.glob("*.biotrail"))

    def listed(self) -> str:
        path = self.logs / ".shipping" / "not-shipped"
        return path.read_text() if path.exists() else ""


@pytest.fixture
def faulty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Faulty:
    return Faulty(tmp_path, Cli(capsys))


@pytest.mark.parametrize(
    ("name", "host", "said"),
    [
        ("a", "x" * 300, "File name too long at the destination: host=xxx"),
        ("a" * 240, "db7", "File name too long at the destination: aaa"),
        ("a", "数据库" * 20, "File name too long at the destination: host=%E6"),
    ],
)
def test_a_name_that_is_too_long_is_its_logs_fault(
    faulty: Faulty, name: str, host: str, said: str
) -> None:
    # GIVEN a log whose host or own name has no room at the destination, before and after others
    faulty.log(name, 1, host)
    faulty.log("A", 2)
    faulty.log("z", 3)
    # WHEN they are shipped
    done = faulty.ship()
    # THEN it is told once, in one line, and listed; the others are shipped
    assert done.status == 1
    lines = [line for line in done.err.splitlines() if "not shipped: " in line]
    assert len(lines) == 1
    assert said in lines[0]
    assert "bytes); its host's and its own name make that: give the log a shorter" in lines[0]
    listed = faulty.logs / ".shipping" / "not-shipped"
    assert f"2 logs shipped, 1 not shipped (listed in {listed})" in done.err
    assert (faulty.left(), faulty.listed().count("\n")) == ([name], 1)
    # AND WHEN it got another name, or was taken away, nothing is left to tell
    (faulty.logs / f"{name}.biotrail").unlink()
    assert faulty.ship().status == 0
    assert faulty.listed() == ""


def test_a_log_that_cannot_be_read_is_its_own_fault(
    faulty: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log that may not be opened
    faulty.log("a", 1)
    faulty.log("b", 2)
    real = shipping.folders.open_regular

    def refuse(at: int, name: str, shown: str) -> object:
        if name.startswith("a."):
            raise PermissionError(13, "Permission denied")
        return real(at, name, shown)

    monkeypatch.setattr(shipping.folders, "open_regular", refuse)
    # WHEN the directory is shipped THEN that one stays, and is told
    done = faulty.ship()
    assert done.status == 1
    assert "a.biotrail: cannot be opened: Permission denied; give the shipper's" in done.err
    assert faulty.left() == ["a"]


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Names of logs that the destination refuses, for a reason that tells nothing."""
    refused: set[str] = set()
    real = destination._Directory.put

    def put(self: destination._Directory, staged: Path, name: str) -> None:
        if os.path.basename(name).partition("-")[0] in refused:
            raise OutputError(f"cannot write {self.shown(name)}: Remote I/O error")
        real(self, staged, name)

    monkeypatch.setattr(destination._Directory, "put", put)
    return refused


def test_what_only_one_log_meets_is_its_own_fault(faulty: Faulty, refusing: set[str]) -> None:
    # GIVEN a destination that refuses one log, the first of three
    for number, name in enumerate("abc"):
        faulty.log(name, number)
    refusing.add("a")
    # WHEN they are shipped THEN the others go on, and that one is told once
    done = faulty.ship()
    assert done.status == 1
    assert done.err.count("Remote I/O error") == 1
    assert "a.biotrail: not shipped: cannot write" in done.err
    assert "2 logs shipped, 1 not shipped" in done.err
    assert faulty.left() == ["a"]


def test_what_all_logs_meet_is_the_destinations_fault(faulty: Faulty, refusing: set[str]) -> None:
    # GIVEN a destination that refuses every log
    for number, name in enumerate("abc"):
        faulty.log(name, number)
        refusing.add(name)
    # WHEN they are shipped THEN it is one message, and none is set apart
    done = faulty.ship()
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "Remote I/O error" in done.err
    assert (faulty.left(), faulty.listed()) == (["a", "b", "c"], "")


def test_a_refused_log_is_tried_again_behind_the_others(
    faulty: Faulty,
    refusing: set[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # GIVEN a watcher, and a destination that refuses one of the logs for a while
    monkeypatch.setattr(shipping, "LOOK_SECONDS", 0.01)
    faulty.log("a", 1)
    faulty.log("b", 2)
    refusing.add("a")
    stop = threading.Event()
    logs = HeldDirectory(str(faulty.logs))
    with shipping.locked(logs) as staging:
        to = destination.destination(str(faulty.to))
        shipper = shipping.Shipper(logs, staging, to, ArchiveOptions(reading=USUAL), stop)
        thread = threading.Thread(target=shipper.go_on)
        thread.start()
        try:
            wait_until(lambda: faulty.listed() != "", "the log is set apart")
            assert faulty.left() == ["a"]
            # WHEN more logs come, and it is refused again and again
            faulty.log("c", 3)
            wait_until(lambda: faulty.left() == ["a"], "the third is shipped")
            # AND the destination takes it
            refusing.clear()
            # THEN it is shipped in the end, was told once, and the list is gone
            wait_until(lambda: faulty.left() == [], "all are shipped")
        finally:
            stop.set()
            thread.join()
    said = capsys.readouterr().err
    assert said.count("Remote I/O error; the others go on, it is tried again\n") == 1
    assert said.count("Remote I/O error") == 1
    assert "3 logs shipped\n" in said
    assert faulty.listed() == ""
    assert not shipper.apart
    assert (faulty.to / archive_name(1, "a")).exists()


def test_a_destination_that_fills_up_sets_nothing_apart_for_good(
    faulty: Faulty, refusing: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a destination with room for one log
    for number, name in enumerate("abc"):
        faulty.log(name, number)
    refusing.update("bc")
    # WHEN they are shipped THEN it is the destination's fault
    done = faulty.ship()
    assert done.status == 1
    assert faulty.left() == ["b", "c"]
    # AND WHEN there is room THEN all are shipped
    refusing.clear()
    assert faulty.ship().status == 0
    assert faulty.left() == []


def test_credentials_are_found_as_other_tools_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file of credentials, and another account in the environment
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    shared = tmp_path / "credentials"
    shared.write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B%\n"
        "[ship]\naws_access_key_id=C\naws_secret_access_key=D\naws_session_token=E\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(shared))
    # WHEN they are asked for THEN those of the profile count, and the environment's before them
    assert credentials() == ("A", "B%", "")
    monkeypatch.setenv("AWS_PROFILE", "ship")
    assert credentials() == ("C", "D", "E")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "F")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "G")
    assert credentials() == ("F", "G", "")


# Logs and destinations that others may write to: what root ships, and what it never touches.

KEPT = ("keep.parquet", "keep.txt", ".staged.parquet.0.part", "staged.parquet", "lock")


class Hostile(Place):
    """Logs in a directory of a service user, and a closed directory."""

    def __init__(self, directory: Path, cli: Cli) -> None:
        super().__init__(directory, cli)
        self.closed = precious(directory / "closed", *KEPT)
        if os.geteuid() == 0:
            os.chown(self.logs, OTHER, OTHER)
        write_log(self.logs / "run.biotrail", 1)

    def shipped(self) -> bool:
        return (self.to / archive_name(1, "run")).exists()

    def untouched(self) -> bool:
        return untouched(self.closed, *KEPT)


@pytest.fixture
def hostile(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Hostile:
    return Hostile(tmp_path, Cli(capsys))


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_logs_of_a_service_user_are_shipped(hostile: Hostile, mode: int) -> None:
    # GIVEN a directory of logs of a service user, or one that is open to everybody
    hostile.logs.chmod(mode)
    # WHEN root ships it THEN the log is shipped and goes
    done = hostile.ship()
    assert done.status == 0, done.err
    assert hostile.shipped()
    assert os.listdir(hostile.logs) == [".shipping"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_staging_directory_that_is_none_is_refused(hostile: Hostile, kind: str) -> None:
    # GIVEN `.shipping` that is a link to a closed directory, a FIFO and so on
    put(hostile.logs / ".shipping", kind, hostile.closed)
    # WHEN the logs are shipped
    done = hostile.ship()
    # THEN one message says what it is, and nothing was followed or deleted
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    assert f".shipping is a {kind} where a directory is needed: move it away" in done.err
    assert hostile.untouched()
    assert (hostile.logs / "run.biotrail").exists()


@pytest.mark.parametrize("fault", ["owner", "mode"])
def test_a_staging_directory_of_others_is_refused(hostile: Hostile, fault: str) -> None:
    # GIVEN `.shipping` of another user, or one that others may write to, with files
    staging = precious(hostile.logs / ".shipping", *KEPT)
    if fault == "owner":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(staging, OTHER, OTHER)
    else:
        staging.chmod(0o777)
    # WHEN the logs are shipped THEN one message says why not, and nothing is deleted
    done = hostile.ship()
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    said = {"owner": "belongs to user 65534", "mode": "written to by others (mode 0777)"}[fault]
    assert said in done.err
    assert untouched(staging, *KEPT)


def test_only_what_a_shipper_left_is_cleared(hostile: Hostile) -> None:
    # GIVEN a directory of root's own that its owner's neighbour moved to `.shipping`
    staging = precious(hostile.logs / ".shipping", *KEPT)
    staging.chmod(0o700)
    (staging / "sub").mkdir()
    # WHEN the logs are shipped THEN no file goes but those that a shipper makes
    assert hostile.ship().status == 0
    assert sorted(os.listdir(staging)) == ["keep.parquet", "keep.txt", "lock", "sub"]


@pytest.mark.parametrize("below", ["events", "events/host=db7", "events/host=db7/date=2001-09-09"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_link_below_the_destination_is_followed(hostile: Hostile, below: str, kind: str) -> None:
    # GIVEN a folder of the destination that is a link to a closed directory, or none
    (hostile.to / below).parent.mkdir(parents=True, exist_ok=True)
    put(hostile.to / below, kind, hostile.closed)
    # WHEN a log is shipped THEN one message names the folder, and the log stays
    done = hostile.ship()
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    assert f"{below} is a {kind} where a directory is needed" in done.err
    assert hostile.untouched()
    assert (hostile.logs / "run.biotrail").exists()


def test_hard_links_at_the_destination_keep_their_files(hostile: Hostile) -> None:
    # GIVEN a second name of a closed file where the archive goes, and where one was being made
    archive = hostile.to / archive_name(1, "run")
    archive.parent.mkdir(parents=True)
    archive.hardlink_to(hostile.closed / "keep.parquet")
    archive.with_name(f".{archive.name}.00.part").hardlink_to(hostile.closed / "keep.txt")
    # WHEN the log is shipped THEN the files are as they were
    assert hostile.ship().status == 0
    assert hostile.untouched()
    assert hostile.cli("verify", archive).status == 0


@pytest.mark.parametrize("how", ["symbolic link", "hard link", "FIFO"])
def test_a_log_that_is_replaced_between_check_and_use_is_left(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # GIVEN a log whose owner replaces it by another one's once it was found
    other = write_log(hostile.closed.with_name("other.biotrail"), 7, host="secret")
    log = hostile.logs / "run.biotrail"

    def replaced(directory: HeldDirectory, found: FoundLog) -> bool | None:
        answer = is_written(directory, found)
        log.unlink()
        if how == "hard link":
            log.hardlink_to(other)
        else:
            put(log, how, other)
        return answer

    monkeypatch.setattr(shipping, "is_written", replaced)
    # WHEN it is shipped THEN nothing was read or deleted
    done = hostile.ship()
    assert os.path.lexists(log)
    assert other.exists()
    assert list(hostile.to.rglob("*.parquet")) == []
    assert "secret" not in done.err


@needs_root
def test_a_directory_of_logs_that_is_a_link_of_its_user_is_refused(hostile: Hostile) -> None:
    # GIVEN a link to other logs, made by a user who may not read them
    link = hostile.logs / "more"
    link.symlink_to(hostile.closed)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    write_log(hostile.closed / "x.biotrail", 9)
    # WHEN root ships it, or ships into it THEN that is refused
    for arguments in (
        ("--watch", link, "--to", hostile.to),
        ("--watch", hostile.logs, "--to", link),
    ):
        done = hostile.cli("archive", *arguments, "--once")
        assert (done.status, done.err.count("\n")) == (1, 1), done.err
        assert "more is a link of another user (uid 65534), which root does not follow" in done.err
    assert (hostile.closed / "x.biotrail").exists()


def test_a_staging_directory_that_is_swapped_meanwhile_leads_nowhere(hostile: Hostile) -> None:
    # GIVEN many logs, whose owner swaps `.shipping` with a link to a closed directory meanwhile
    for number in range(2, 9):
        write_log(hostile.logs / f"run-{number}.biotrail", number)
    with swapped(_made(hostile.logs / ".shipping"), hostile.closed):
        # WHEN they are shipped, as often as the link is met
        for _ in range(20):
            hostile.ship("--keep-logs")
    # THEN nothing of the closed one was touched, and what was shipped is whole
    assert hostile.untouched()
    assert hostile.cli("verify", hostile.to).status == 0


def _made(directory: Path) -> Path:
    directory.mkdir(0o700)
    return directory
