# SPDX-License-Identifier: Apache-2.0
"""The recorder's directory: held by its descriptor, whoever puts another one in its place."""

import os
import signal
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError, ProbeError
from biotrail.recorder.session.session import record
from tests.support.chunks_by_hand import clock, queue, rotating
from tests.support.fake_probes import FakeProbes, options

PRECIOUS = b"precious"


def swap(directory: Path, elsewhere: Path) -> Path:
    """Move the directory away and put a link to `elsewhere` in its place; where it is now."""
    moved = directory.with_name("moved")
    directory.rename(moved)
    directory.symlink_to(elsewhere)
    return moved


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """A directory that others may move, beside one that is closed to them."""
    (tmp_path / "ours").mkdir()
    (tmp_path / "closed").mkdir()
    return tmp_path / "ours"


def test_rotation_stays_in_its_directory(ours: Path, tmp_path: Path) -> None:
    # GIVEN a rotating log of which two files are kept
    log = rotating(ours, max_files=2)
    # WHEN its directory is moved and a link to another one stands in its place
    moved = swap(ours, tmp_path / "closed")
    for number in range(3):
        log.rotate()
        log.write_chunk([Segment(0, 0, 48 * number, queue(2000 + number))], clock(3000 + number))
    log.close({"reason": "test", "stopped": clock(4000)})
    # THEN new files are made, and old ones deleted, where the first one was
    assert os.listdir(tmp_path / "closed") == []
    assert len(os.listdir(moved)) == 2
    # AND the paths that are told lead there
    assert [os.path.dirname(path) for path in log.files] == [str(moved)] * 2
    assert all(not LogReader(path).interrupted for path in log.files)


def test_old_files_are_not_deleted_elsewhere(ours: Path, tmp_path: Path) -> None:
    # GIVEN a file of the series, of which a hard link lies in another directory
    series = Series(str(ours / "x"), 1)
    with series.create() as stream:
        series.publish(stream)
    (first,) = series.files
    theirs = tmp_path / "closed" / os.path.basename(first)
    theirs.hardlink_to(first)
    # WHEN the directory is swapped for that one, and the next file is made
    swap(ours, tmp_path / "closed")
    with series.create() as stream:
        series.publish(stream)
    series.delete_old()
    # THEN the file of the other directory is untouched, and ours was deleted
    assert theirs.exists()
    assert (len(series.files), series.deleted, series.taken_away) == (1, 1, 0)


def test_dumps_stay_in_their_directory(ours: Path, tmp_path: Path) -> None:
    # GIVEN a flight recorder whose directory is swapped while it records
    probes = FakeProbes()

    def at_drain() -> None:
        if probes.given == 3:
            swap(ours, tmp_path / "closed")
        elif probes.given == 6:
            os.kill(os.getpid(), signal.SIGINT)

    probes.at_drain = at_drain
    # WHEN it ends
    summary = record(options(ours / "x", keep=Limit(seconds=60)), probes=probes)
    # THEN the dump lies where the directory is now
    assert os.listdir(tmp_path / "closed") == []
    assert [os.path.dirname(path) for path in summary.files] == [str(tmp_path / "moved")]


def test_a_log_that_cannot_begin_is_removed_where_it_was_made(ours: Path, tmp_path: Path) -> None:
    # GIVEN probes that fail once the directory was swapped for one with a file of the same name
    probes = FakeProbes()
    (tmp_path / "closed" / "log").write_bytes(PRECIOUS)

    def refuse() -> None:
        swap(ours, tmp_path / "closed")
        raise ProbeError("not here")

    probes.attach = refuse  # type: ignore[method-assign]
    # WHEN a recording is asked for
    with pytest.raises(ProbeError, match="not here"):
        record(options(ours / "log", duration=1), probes=probes)
    # THEN its own file is gone, and the other one is not
    assert os.listdir(tmp_path / "moved") == []
    assert (tmp_path / "closed" / "log").read_bytes() == PRECIOUS


def test_a_directory_whose_parent_cannot_be_opened_leaves_no_descriptor(
    ours: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a directory of which only itself can be opened
    opened, real = list[int](), folders.open_named

    def refuse(path: str) -> int:
        if opened:
            raise PermissionError(13, "Permission denied")
        opened.append(real(path))
        return opened[-1]

    monkeypatch.setattr(folders, "open_named", refuse)
    # WHEN it is to be held
    with pytest.raises(OutputError, match="ours"):
        HeldDirectory(str(ours))
    # THEN its descriptor is closed
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_directory_that_is_made_again_is_taken_up_unless_it_is_a_link(
    ours: Path, tmp_path: Path
) -> None:
    # GIVEN a held directory that was deleted
    held = HeldDirectory(str(ours))
    ours.rmdir()
    # WHEN a link stands in its place THEN it is not followed
    ours.symlink_to(tmp_path / "closed")
    with pytest.raises(OutputError, match=r"ours/log: its directory does not exist"):
        output.create_at(held.fd, "log", shown=str(ours / "log"))
    # WHEN a directory of the same owner stands there THEN files are made in it
    ours.unlink()
    ours.mkdir()
    output.create_at(held.fd, "log", shown=str(ours / "log")).close()
    assert os.listdir(ours) == ["log"]
    assert os.listdir(tmp_path / "closed") == []
    # AND a directory of somebody else is not taken up
    if os.geteuid() == 0:
        (ours / "log").unlink()
        ours.rmdir()
        ours.mkdir()
        os.chown(ours, 4321, 4321)
        with pytest.raises(OutputError, match="its directory does not exist"):
            output.create_at(held.fd, "log", shown=str(ours / "log"))
    held.close()


def test_a_removed_directory_is_said_and_no_file_is_kept(ours: Path) -> None:
    # GIVEN a rotating recording whose directory is removed
    probes = FakeProbes()

    def remove() -> None:
        if probes.given == 3:
            for name in os.listdir(ours):
                (ours / name).unlink()
            ours.rmdir()

    probes.at_drain = remove
    # WHEN the next file is to be made
    summary = record(options(ours / "x", duration=60, rotate=Limit(seconds=60)), probes=probes)
    # THEN it stops, and says that there is no file and why, by the name that the file would have
    assert (summary.files, summary.files_gone) == ([], 1)
    assert isinstance(summary.error, OutputError)
    assert "its directory does not exist" in str(summary.error)
    assert str(ours / "x-") in str(summary.error)
    assert ".part" not in str(summary.error)


@pytest.mark.parametrize("replacing", [True, False])
def test_errors_name_the_file_that_was_asked_for(tmp_path: Path, replacing: bool) -> None:
    # GIVEN a directory that does not exist
    path = tmp_path / "no" / "trace"
    # WHEN a file is to be made in it, at once or under a hidden name first
    with pytest.raises(OutputError, match=r"no/trace\S*: its directory") as caught:
        if replacing:
            with output.replacing(path):
                pass
        else:
            Series(str(path), None).create()
    # THEN the message knows nothing of hidden names
    assert ".part" not in str(caught.value)


@pytest.mark.parametrize(
    ("uid", "gid"),
    [
        ("99999999999", "1"),
        ("1", "99999999999"),
        ("9" * 5000, "1"),
        (str((1 << 32) - 1), "1"),
        ("-5", "1"),
        ("1", "-1"),
        ("1.5", "1"),
        ("٣", "1"),
        (" 7", "1"),
        ("", "1"),
        ("root", "1"),
    ],
)
def test_a_nonsense_sudo_environment_leaves_the_file_to_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: str, gid: str
) -> None:
    # GIVEN variables that hold no ids of a user
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_GID", gid)
    # WHEN a file is made THEN it is there, and its maker's
    with output.replacing(tmp_path / "log"):
        pass
    assert (tmp_path / "log").stat().st_uid == os.geteuid()


def test_a_file_that_cannot_be_given_away_is_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a user namespace that does not know the user who called sudo
    def refuse(_fd: int, _uid: int, _gid: int) -> None:
        raise OSError(22, "Invalid argument")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "fchown", refuse)
    monkeypatch.setenv("SUDO_UID", "70000")
    monkeypatch.setenv("SUDO_GID", "70001")
    # WHEN a file is to be made THEN one message says so, and nothing is left
    with pytest.raises(OutputError, match=r"log to the user who called sudo .*70000.*unset"):
        output.NewFile(tmp_path / "log")
    assert os.listdir(tmp_path) == []
