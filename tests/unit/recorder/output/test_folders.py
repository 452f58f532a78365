# SPDX-License-Identifier: Apache-2.0
"""Directories of other users: root is led nowhere, and honest ones work as ever."""

import errno
import os
import signal
import stat
from pathlib import Path

import pytest

from biotrail.recorder.log import LogReader, Segment
from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import HeldDirectory, explain
from biotrail.recorder.output.series import Series
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.schema.errors import OutputError, ProbeError
from biotrail.recorder.session.session import record
from tests.support.chunks_by_hand import clock, queue, rotating
from tests.support.fake_probes import FakeProbes, options
from tests.support.hostile_places import (
    KINDS,
    OTHER,
    mode_of,
    needs_root,
    precious,
    put,
    swapped,
    untouched,
)

ROUNDS = 300


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    """A directory of another user, beside a closed one with two files."""
    precious(tmp_path / "closed", "keep.txt", "x.json")
    (tmp_path / "theirs").mkdir()
    if os.geteuid() == 0:
        os.chown(tmp_path / "theirs", OTHER, OTHER)
    return tmp_path / "theirs"


def closed(theirs: Path) -> bool:
    return untouched(theirs.with_name("closed"), "keep.txt", "x.json")


@needs_root
def test_root_follows_nobody_elses_links(theirs: Path) -> None:
    # GIVEN a directory of another user, who made it a link, on the way or at its end
    (theirs / "logs").symlink_to(theirs.with_name("closed"))
    os.chown(theirs / "logs", OTHER, OTHER, follow_symlinks=False)
    # WHEN root writes there in any way
    target = theirs / "logs" / "x.json"
    ways = (
        lambda: output.replacing(target, force=True).__enter__(),
        lambda: output.replacing_directory(target, force=True, marker="*").__enter__(),
        lambda: output.adding_to_directory(target, force=True, marker="*").__enter__(),
        lambda: output.make_directory(target / "more"),
        lambda: HeldDirectory(str(theirs / "logs")),
        lambda: output.NewFile(str(target), force=True),
    )
    # THEN it is refused, with the link and what to do
    for way in ways:
        with pytest.raises(OutputError, match=r"logs is a link of another user \(uid 65534\)"):
            way()
    assert closed(theirs)


@needs_root
@pytest.mark.parametrize("owner", [0, 1234])
def test_links_of_ones_own_are_followed(
    theirs: Path, monkeypatch: pytest.MonkeyPatch, owner: int
) -> None:
    # GIVEN a link of root's, or of the user who called sudo, by way of a relative one
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    (theirs / "one").symlink_to("../theirs/./two")
    (theirs / "two").symlink_to(theirs.with_name("closed"))
    for name in ("one", "two"):
        os.chown(theirs / name, owner, owner, follow_symlinks=False)
    # WHEN a file is written by it THEN it is there
    with output.replacing(theirs / "one" / "new") as stream:
        stream.write(b"x")
    assert (theirs.with_name("closed") / "new").read_bytes() == b"x"


@needs_root
def test_a_loop_of_links_ends(theirs: Path) -> None:
    # GIVEN links that lead to each other WHEN one is opened THEN that is an error
    (theirs / "one").symlink_to("two")
    (theirs / "two").symlink_to("one")
    with pytest.raises(OutputError, match="symbolic links"):
        output.NewFile(theirs / "one" / "x")


def test_paths_by_descriptor_are_followed(theirs: Path) -> None:
    # GIVEN an open directory that was moved since WHEN a file is written by its descriptor
    fd = os.open(theirs, os.O_RDONLY)
    try:
        moved = theirs.rename(theirs.with_name("moved"))
        for directory in (f"/proc/self/fd/{fd}", f"/dev/fd/{fd}"):
            with output.replacing(f"{directory}/x", force=True) as stream:
                stream.write(b"x")
    finally:
        os.close(fd)
    # THEN it is there
    assert os.listdir(moved) == ["x"]


@pytest.mark.parametrize("way", ["named", "sticky", "open to all"])
def test_honest_directories_work(theirs: Path, way: str) -> None:
    # GIVEN a directory of a service user, as it is, sticky as /tmp, or open to everybody
    theirs.chmod({"named": 0o755, "sticky": 0o1777, "open to all": 0o777}[way])
    # WHEN files and directories are written there THEN they are
    made = output.NewFile(theirs / "log")
    made.publish()
    made.close()
    with output.replacing(theirs / "page") as stream:
        stream.write(b"x")
    with output.replacing_directory(theirs / "otf2", marker="a") as part:
        (part / "a").write_bytes(b"x")
    with output.adding_to_directory(theirs / "set", marker="*") as part:
        (part / "a").write_bytes(b"x")
    assert sorted(os.listdir(theirs)) == ["log", "otf2", "page", "set"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_directory_is_named(theirs: Path, kind: str) -> None:
    # GIVEN what is no directory where one is needed
    put(theirs / "events", kind, theirs.with_name("closed"))
    (theirs / "host=a").mkdir()
    # WHEN files are added below it THEN the message says what it is, and nothing was followed
    with (
        pytest.raises(OutputError, match=rf"theirs/events is a {kind} where a directory"),
        output.adding_to_directory(theirs, force=True, marker="host=*") as part,
    ):
        (part / "events").mkdir()
        (part / "events" / "x.json").write_bytes(b"new")
    # AND the same for a directory of our own
    at = folders.open_named(str(theirs))
    with pytest.raises(OutputError, match=f"is a {kind} where a directory is needed"):
        folders.open_own(at, "events", "events")
    os.close(at)
    assert closed(theirs)
    assert sorted(os.listdir(theirs)) == ["events", "host=a"]


def test_a_directory_of_our_own_is_private_and_ours(theirs: Path) -> None:
    # GIVEN a directory to work in WHEN it is made THEN it is private, and may be used again
    at = folders.open_named(str(theirs))
    for _ in range(2):
        os.close(folders.open_own(at, "work", "work"))
    assert mode_of(theirs / "work") == 0o700
    # WHEN others may write to it THEN it is refused
    for mode in (0o770, 0o707, 0o1777):
        (theirs / "work").chmod(mode)
        with pytest.raises(OutputError, match=f"written to by others \\(mode {mode:04o}\\)"):
            folders.open_own(at, "work", "work")
    # WHEN it is another user's THEN it is refused
    if os.geteuid() == 0:
        (theirs / "work").chmod(0o700)
        os.chown(theirs / "work", OTHER, OTHER)
        with pytest.raises(OutputError, match="belongs to user 65534, and this is user 0: move"):
            folders.open_own(at, "work", "work")
    os.close(at)


def test_only_regular_files_are_read(theirs: Path) -> None:
    # GIVEN links, FIFOs and the like, and a file with a second name
    for number, kind in enumerate(KINDS):
        put(theirs / str(number), kind, theirs.with_name("closed") / "keep.txt")
    (theirs / "hard").hardlink_to(theirs / "2")
    at = folders.open_named(str(theirs))
    # WHEN they are opened THEN only regular files are, and no FIFO is waited for
    for name in ("0", "1", "3"):
        with pytest.raises(OSError, match=r"\w"):
            folders.open_regular(at, name, "shown")
    for name in ("2", "hard"):
        with folders.open_regular(at, name, "shown") as stream:
            assert (stream.read(), stream.name) == (b"x", "shown")
    os.close(at)


@pytest.mark.parametrize("what", ["file", "directory", "dataset"])
def test_a_directory_that_is_swapped_meanwhile_leads_nowhere(theirs: Path, what: str) -> None:
    # GIVEN a directory that its owner swaps with a link to a closed one, again and again
    inner = theirs / "logs"
    (inner / "set" / "host=a").mkdir(parents=True)
    (inner / "set" / "host=a" / "x.json").write_bytes(b"old")
    elsewhere = theirs.with_name("closed")
    (elsewhere / "set").mkdir()
    (elsewhere / "set" / "host=a").mkdir()
    (elsewhere / "set" / "host=a" / "keep").write_bytes(b"precious")
    at = folders.open_named(str(inner))
    # WHEN files are written by the directory that was opened before
    place = Path(folders.path_in(at))
    with swapped(inner, elsewhere):
        for number in range(ROUNDS):
            if what == "file":
                with output.replacing(place / "x.json", force=True) as stream:
                    stream.write(b"new")
            elif what == "directory":
                with output.replacing_directory(place / "set", force=True, marker="*") as part:
                    (part / "a").write_bytes(b"new")
            else:
                with output.adding_to_directory(place / "set", force=True, marker="*") as part:
                    (part / "host=a").mkdir()
                    (part / "host=a" / f"{number % 2}.json").write_bytes(b"new")
    os.close(at)
    # THEN nothing of the closed one was touched
    assert sorted(os.listdir(elsewhere)) == ["keep.txt", "set", "x.json"]
    assert (elsewhere / "x.json").read_bytes() == b"precious"
    assert os.listdir(elsewhere / "set" / "host=a") == ["keep"]


@needs_root
def test_a_path_through_a_swapped_directory_is_followed_or_refused(theirs: Path) -> None:
    # GIVEN a directory that another user swaps with a link of his
    inner, elsewhere = theirs / "logs", theirs.with_name("closed")
    inner.mkdir()
    made = refused = 0
    with swapped(inner, elsewhere, owner=OTHER):
        # WHEN root writes by its path
        for _ in range(ROUNDS):
            try:
                with output.replacing(inner / "x.json", force=True) as stream:
                    stream.write(b"new")
                made += 1
            except OutputError:
                refused += 1
    # THEN it is written into the directory or refused, and never where the link leads
    assert made + refused == ROUNDS
    assert closed(theirs)


@needs_root
def test_sudo_gives_what_is_made_to_its_caller(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN root under sudo, with a directory of that user that holds a file of root's
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    mine = precious(theirs / "mine", "keep")
    # WHEN a file, an archive and a path of directories are made, and that directory is named
    with output.replacing(theirs / "log"):
        pass
    with output.replacing_directory(theirs / "archive", marker="a.otf2") as directory:
        (directory / "a.otf2").write_bytes(b"x")
    output.make_directory(theirs / "a" / "b")
    output.make_directory(mine)
    # THEN the new ones belong to the user who called sudo, directories are private, and what was
    # there is as it was
    for made in (theirs / name for name in ("log", "archive", "archive/a.otf2", "a", "a/b")):
        assert (made.stat().st_uid, made.stat().st_gid) == (1234, 2345)
    assert [mode_of(made) for made in (theirs / "a", theirs / "a" / "b")] == [0o700] * 2
    assert (mine.stat().st_uid, (mine / "keep").stat().st_uid) == (0, 0)


def test_a_new_file_is_deleted_where_it_is(theirs: Path) -> None:
    # GIVEN a new file, whose directory was swapped for a link to one with a file of its name
    (theirs / "logs").mkdir()
    made = output.NewFile(str(theirs / "logs" / "x.json"))
    moved = (theirs / "logs").rename(theirs / "moved")
    (theirs / "logs").symlink_to(theirs.with_name("closed"))
    # WHEN it is to go THEN it does, and the other one stays
    made.discard()
    made.close()
    assert os.listdir(moved) == []
    assert closed(theirs)


# The recorder's directory: held by its descriptor, whoever puts another one in its place.

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
    assert [os.path.dirname(path) for path in log.series.files] == [str(moved)] * 2
    assert all(not LogReader(path).interrupted for path in log.series.files)


def test_old_files_are_not_deleted_elsewhere(ours: Path, tmp_path: Path) -> None:
    # GIVEN a file of the series, of which a hard link lies in another directory
    series = Series(str(ours / "x"), 1)
    with (new := series.create()).stream:
        series.publish(new)
    (first,) = series.files
    theirs = tmp_path / "closed" / os.path.basename(first)
    theirs.hardlink_to(first)
    # WHEN the directory is swapped for that one, and the next file is made
    swap(ours, tmp_path / "closed")
    with (new := series.create()).stream:
        series.publish(new)
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
    # WHEN it ends THEN the dump lies where the directory is now
    summary = record(options(ours / "x", keep=Limit(seconds=60)), probes=probes)
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
    with pytest.raises(OutputError, match=r"no/trace\S*: its directory does not exist") as caught:
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
        *((uid, "1") for uid in ("99999999999", "9" * 5000, str((1 << 32) - 1), "-5", "1.5")),
        *((uid, "1") for uid in ("٣", " 7", "", "root")),
        *(("1", "99999999999"), ("1", "-1"), ("", "")),
    ],
)
def test_a_nonsense_sudo_environment_leaves_the_file_to_the_recorder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: str, gid: str
) -> None:
    # GIVEN variables that hold no ids of a user
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_GID", gid)
    # WHEN a file is made THEN it is there, and its maker's: there is no owner to give it to
    assert folders.owner() is None
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


# Outputs are private, and never replace anything by surprise.


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    # GIVEN a umask that takes even the owner's rights
    old = os.umask(0o777)
    try:
        # WHEN a file is created
        with output.replacing(tmp_path / "log") as stream:
            stream.write(b"x")
    finally:
        os.umask(old)
    # THEN its owner alone may read and write it
    assert mode_of(tmp_path / "log") == 0o600
    assert (tmp_path / "log").read_bytes() == b"x"


def test_an_existing_file_is_replaced_only_by_force(tmp_path: Path) -> None:
    # GIVEN a file that is there
    path = tmp_path / "log"
    path.write_bytes(b"old")
    # WHEN it is to be created THEN the error names it and the remedy, and it is as it was
    with pytest.raises(OutputError, match=r"log already exists.*--force"):
        output.NewFile(path)
    assert path.read_bytes() == b"old"
    # GIVEN somebody who reads it
    with path.open("rb") as reader:
        # WHEN it is to be replaced by force  THEN it has its name until the new file gets it
        made = output.NewFile(path, force=True)
        assert path.read_bytes() == b"old"
        made.publish()
        made.close()
        # AND the reader keeps what it had, and the name leads to the new, empty one
        assert reader.read() == b"old"
    assert path.read_bytes() == b""
    assert os.listdir(tmp_path) == ["log"]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("published", [False, True])
def test_a_discarded_file_leaves_nothing(tmp_path: Path, force: bool, published: bool) -> None:
    # GIVEN a new file, without a name or with it  WHEN it is discarded
    made = output.NewFile(tmp_path / "log", force=force)
    if published:
        made.publish()
    made.discard()
    made.close()
    # THEN the directory is as it was
    assert os.listdir(tmp_path) == []


def test_a_name_that_another_file_took_stays_its(tmp_path: Path) -> None:
    # GIVEN a new file whose name another program takes
    made = output.NewFile(tmp_path / "log")
    (tmp_path / "log").write_bytes(b"theirs")
    # WHEN it is to get the name THEN that is refused, also when it goes
    with pytest.raises(OutputError, match=r"log already exists.*--force"):
        made.publish()
    made.discard()
    made.close()
    # AND so it is where the name is taken while it is written
    (tmp_path / "log").unlink()
    with pytest.raises(OutputError, match="already exists"), output.replacing(tmp_path / "log"):
        (tmp_path / "log").write_bytes(b"theirs")
    assert os.listdir(tmp_path) == ["log"]
    assert (tmp_path / "log").read_bytes() == b"theirs"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("kind", ["link", "dangling", "directory", "fifo"])
def test_what_is_no_regular_file_is_never_replaced(tmp_path: Path, kind: str, force: bool) -> None:
    # GIVEN something else of that name
    path, target = tmp_path / "log", tmp_path / "target"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        if kind == "link":
            target.write_bytes(b"precious")
        path.symlink_to(target)
    # WHEN a file is to be created there THEN it is refused, and nothing was followed
    with pytest.raises(OutputError, match="no regular file"):
        output.NewFile(path, force=force)
    assert os.path.lexists(path)
    assert not target.exists() or target.read_bytes() == b"precious"


@pytest.mark.parametrize("url", ["s3://bucket/log", Path("s3://bucket/log")])
def test_a_url_is_named_as_one(url: str | Path) -> None:
    # GIVEN a URL, also one taken for a path  WHEN it is written to
    with pytest.raises(OutputError) as failed:
        output.NewFile(url)
    # THEN the message says that it is none of this machine's files
    assert "it is a URL" in str(failed.value)
    assert "--to URL" in str(failed.value)


def test_a_replacing_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    # GIVEN a file being written
    path = tmp_path / "trace"
    with output.replacing(path) as stream:
        stream.write(b"half")
        # WHEN it is not finished THEN its name is not there
        assert not path.exists()
        stream.write(b" and half")
    # THEN it is whole and alone
    assert path.read_bytes() == b"half and half"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["trace"]
    path.write_bytes(b"old")
    # WHEN writing over another one fails
    with pytest.raises(ValueError, match="bad"), output.replacing(path, force=True) as stream:
        stream.write(b"half")
        raise ValueError("bad")
    # THEN the old one is untouched and nothing lies about
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["trace"]


def test_force_replaces_our_directory_only(tmp_path: Path) -> None:
    # GIVEN an older archive, and a directory with other things
    ours, other = tmp_path / "ours", tmp_path / "other"
    for path, name in ((ours, "traces.otf2"), (other, "thesis.tex")):
        path.mkdir()
        (path / name).write_bytes(b"old")
    # WHEN both are to be replaced by force
    with output.replacing_directory(ours, force=True, marker="traces.otf2") as part:
        (part / "traces.otf2").write_bytes(b"new")
    with (
        pytest.raises(OutputError, match="holds other things"),
        output.replacing_directory(other, force=True, marker="traces.otf2"),
    ):
        pass
    # THEN only the archive was
    assert (ours / "traces.otf2").read_bytes() == b"new"
    assert (other / "thesis.tex").read_bytes() == b"old"
    assert sorted(os.listdir(tmp_path)) == ["other", "ours"]
    assert stat.S_IMODE(ours.stat().st_mode) == 0o700


def test_an_error_of_the_system_says_what_to_do() -> None:
    # GIVEN a full disk WHEN it is explained THEN path and remedy are in the message
    error = explain(OSError(28, "No space left on device"), "/x/log")
    assert "/x/log" in str(error)
    assert "no space left" in str(error)


def test_a_name_that_is_free_again_is_no_success(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN another program's file that has the name at first, and is deleted right after
    def taken(*_arguments: object, **_options: object) -> None:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    monkeypatch.setattr("os.link", taken)
    # WHEN a file is to get this name THEN that fails: it was not given the name
    with (
        pytest.raises(OutputError, match="File exists"),
        output.replacing(tmp_path / "trace") as stream,
    ):
        stream.write(b"x")
