# SPDX-License-Identifier: Apache-2.0
"""`biotrail archive --watch DIR --to DIR`: which logs are shipped, and when a log goes."""

import fcntl
import os
from pathlib import Path

import pytest

from biotrail.cli.archiving import destination, shipping
from biotrail.recorder.schema.errors import OutputError
from tests.support.cli_runner import Cli, Done
from tests.support.log_samples import PERIOD, START, clock
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


def shipping_folder() -> str:
    from biotrail.cli.archiving.watched import STAGING

    return STAGING


def test_archives_are_private(place: Place) -> None:
    # GIVEN a log
    place.log(1)
    # WHEN it is shipped
    place.ship()
    # THEN the archive and its folders are for their owner alone
    archive = place.archive(1)
    assert archive.stat().st_mode & 0o777 == 0o600
    assert {folder.stat().st_mode & 0o777 for folder in archive.parents[:3]} == {0o700}


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


def test_a_damaged_log_is_shipped_and_kept(place: Place) -> None:
    # GIVEN a log with a damaged chunk
    damage(place.log(1))
    # WHEN the directory is shipped
    done = place.ship()
    # THEN what can be read is in the archive, the damage is named, and the log stays
    assert done.status == 0
    assert "8 events in" in done.err
    assert "log kept (damaged: chunk at offset" in done.err
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


def test_a_log_that_is_cut_within_a_chunk_is_shipped_and_kept(place: Place) -> None:
    # GIVEN a log that ends within its last chunk
    path = place.log(1, end=False)
    os.truncate(path, path.stat().st_size - 40)
    # WHEN the directory is shipped
    done = place.ship()
    # THEN what was left out of the archive is named, and still in the log
    assert done.status == 0
    assert "8 events in" in done.err
    assert "log kept (damaged: the last" in done.err
    assert place.left() == [path.name]


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


def test_a_destination_that_is_not_mounted_is_not_made(place: Place) -> None:
    # GIVEN a destination that is not there
    place.to.rmdir()
    place.log(1)
    # WHEN a log is shipped
    done = place.ship()
    # THEN that is an error
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "is no directory: make or mount it, or give another" in done.err
    assert place.left() == ["run-000001.biotrail"]


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give LOGs, or --watch DIR --to DESTINATION"),
        (["--watch", "DIR"], "--watch needs --to"),
        (["--to", "x", "a.biotrail"], "need --watch DIR"),
        (["--once", "a.biotrail"], "need --watch DIR"),
        (["--watch", "DIR", "--to", "x", "a.biotrail"], "--watch takes no LOG"),
        (["--watch", "DIR", "--to", "x", "-o", "y"], "--watch takes no LOG"),
    ],
)
def test_wrong_usage(place: Place, arguments: list[str], said: str) -> None:
    # GIVEN options that do not go together; WHEN they are given
    done = place.cli("archive", *[str(place.logs) if a == "DIR" else a for a in arguments])
    # THEN that is wrong usage
    assert done.status == 2
    assert said in done.err


def test_a_directory_of_logs_that_is_not_there(place: Place) -> None:
    # GIVEN no directory of logs
    place.logs.rmdir()
    # WHEN it is shipped
    done = place.ship()
    # THEN one line says so
    assert (done.status, done.err.count("\n")) == (1, 1)
    assert "logs: cannot be read: No such file or directory; give the directory" in done.err


def test_an_error_of_the_output_is_one_of_the_destination() -> None:
    # GIVEN a path that is no directory; WHEN it is a destination; THEN it is an error of output
    with pytest.raises(OutputError):
        destination.destination("/nowhere/at/all")
