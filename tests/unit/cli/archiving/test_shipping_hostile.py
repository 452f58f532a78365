# SPDX-License-Identifier: Apache-2.0
"""Logs and destinations that others may write to: what root ships, and what it never touches."""

import os
from pathlib import Path

import pytest

from biotrail.cli.archiving import shipping
from biotrail.cli.archiving.watched import FoundLog, writer_of
from biotrail.converters.outputs.otf2.writer import Writer
from biotrail.recorder.output.folders import HeldDirectory
from tests.support.cli_runner import Cli, Done
from tests.support.hostile_places import (
    KINDS,
    OTHER,
    needs_root,
    precious,
    put,
    swapped,
    untouched,
)
from tests.support.shipped_logs import archive_name, write_log

KEPT = ("keep.parquet", "keep.txt", ".staged.parquet.0.part", "staged.parquet", "lock")


class Place:
    """Logs in a directory of a service user, a destination, and a closed directory."""

    def __init__(self, directory: Path, cli: Cli) -> None:
        self.cli = cli
        self.logs, self.to = directory / "logs", directory / "to"
        self.logs.mkdir()
        self.to.mkdir()
        self.closed = precious(directory / "closed", *KEPT)
        if os.geteuid() == 0:
            os.chown(self.logs, OTHER, OTHER)
        write_log(self.logs / "run.biotrail", 1)

    def ship(self, *options: str) -> Done:
        return self.cli("archive", "--watch", self.logs, "--to", self.to, "--once", *options)

    def shipped(self) -> bool:
        return (self.to / archive_name(1, "run")).exists()

    def untouched(self) -> bool:
        return untouched(self.closed, *KEPT)


@pytest.fixture
def place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, Cli(capsys))


@pytest.mark.parametrize("mode", [0o755, 0o777, 0o1777])
def test_logs_of_a_service_user_are_shipped(place: Place, mode: int) -> None:
    # GIVEN a directory of logs of a service user, or one that is open to everybody
    place.logs.chmod(mode)
    # WHEN root ships it THEN the log is shipped and goes
    done = place.ship()
    assert done.status == 0, done.err
    assert place.shipped()
    assert os.listdir(place.logs) == [".shipping"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_staging_directory_that_is_none_is_refused(place: Place, kind: str) -> None:
    # GIVEN `.shipping` that is a link to a closed directory, a FIFO and so on
    put(place.logs / ".shipping", kind, place.closed)
    # WHEN the logs are shipped
    done = place.ship()
    # THEN one message says what it is, and nothing was followed or deleted
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    assert f".shipping is a {kind} where a directory is needed: move it away" in done.err
    assert place.untouched()
    assert (place.logs / "run.biotrail").exists()


@pytest.mark.parametrize("fault", ["owner", "mode"])
def test_a_staging_directory_of_others_is_refused(place: Place, fault: str) -> None:
    # GIVEN `.shipping` of another user, or one that others may write to, with files
    staging = precious(place.logs / ".shipping", *KEPT)
    if fault == "owner":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(staging, OTHER, OTHER)
    else:
        staging.chmod(0o777)
    # WHEN the logs are shipped THEN one message says why not, and nothing is deleted
    done = place.ship()
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    said = {"owner": "belongs to user 65534", "mode": "written to by others (mode 0777)"}[fault]
    assert said in done.err
    assert untouched(staging, *KEPT)


def test_only_what_a_shipper_left_is_cleared(place: Place) -> None:
    # GIVEN a directory of root's own that its owner's neighbour moved to `.shipping`
    staging = precious(place.logs / ".shipping", *KEPT)
    staging.chmod(0o700)
    (staging / "sub").mkdir()
    # WHEN the logs are shipped THEN no file goes but those that a shipper makes
    assert place.ship().status == 0
    assert sorted(os.listdir(staging)) == ["keep.parquet", "keep.txt", "lock", "sub"]


@pytest.mark.parametrize("below", ["events", "events/host=db7", "events/host=db7/date=2001-09-09"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_link_below_the_destination_is_followed(place: Place, below: str, kind: str) -> None:
    # GIVEN a folder of the destination that is a link to a closed directory, or none
    (place.to / below).parent.mkdir(parents=True, exist_ok=True)
    put(place.to / below, kind, place.closed)
    # WHEN a log is shipped THEN one message names the folder, and the log stays
    done = place.ship()
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    assert f"{below} is a {kind} where a directory is needed" in done.err
    assert place.untouched()
    assert (place.logs / "run.biotrail").exists()


def test_hard_links_at_the_destination_keep_their_files(place: Place) -> None:
    # GIVEN a second name of a closed file where the archive goes, and where one was being made
    archive = place.to / archive_name(1, "run")
    archive.parent.mkdir(parents=True)
    archive.hardlink_to(place.closed / "keep.parquet")
    archive.with_name(f".{archive.name}.00.part").hardlink_to(place.closed / "keep.txt")
    # WHEN the log is shipped THEN the files are as they were
    assert place.ship().status == 0
    assert place.untouched()
    assert place.cli("verify", archive).status == 0


@pytest.mark.parametrize("how", ["symbolic link", "hard link", "FIFO"])
def test_a_log_that_is_replaced_between_check_and_use_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # GIVEN a log whose owner replaces it by another one's once it was found
    other = write_log(place.closed.with_name("other.biotrail"), 7, host="secret")
    log = place.logs / "run.biotrail"

    def replaced(directory: HeldDirectory, found: FoundLog) -> Writer:
        answer = writer_of(directory, found)
        log.unlink()
        if how == "hard link":
            log.hardlink_to(other)
        else:
            put(log, how, other)
        return answer

    monkeypatch.setattr(shipping, "writer_of", replaced)
    # WHEN it is shipped THEN nothing was read or deleted
    done = place.ship()
    assert os.path.lexists(log)
    assert other.exists()
    assert list(place.to.rglob("*.parquet")) == []
    assert "secret" not in done.err


@needs_root
def test_a_directory_of_logs_that_is_a_link_of_its_user_is_refused(place: Place) -> None:
    # GIVEN a link to other logs, made by a user who may not read them
    link = place.logs / "more"
    link.symlink_to(place.closed)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    write_log(place.closed / "x.biotrail", 9)
    # WHEN root ships it, or ships into it THEN that is refused
    for arguments in (("--watch", link, "--to", place.to), ("--watch", place.logs, "--to", link)):
        done = place.cli("archive", *arguments, "--once")
        assert (done.status, done.err.count("\n")) == (1, 1), done.err
        assert "more is a link of another user (uid 65534), which root does not follow" in done.err
    assert (place.closed / "x.biotrail").exists()


def test_a_staging_directory_that_is_swapped_meanwhile_leads_nowhere(place: Place) -> None:
    # GIVEN many logs, whose owner swaps `.shipping` with a link to a closed directory meanwhile
    for number in range(2, 9):
        write_log(place.logs / f"run-{number}.biotrail", number)
    with swapped(_made(place.logs / ".shipping"), place.closed):
        # WHEN they are shipped, as often as the link is met
        for _ in range(20):
            place.ship("--keep-logs")
    # THEN nothing of the closed one was touched, and what was shipped is whole
    assert place.untouched()
    assert place.cli("verify", place.to).status == 0


def _made(directory: Path) -> Path:
    directory.mkdir(0o700)
    return directory
