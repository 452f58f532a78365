# SPDX-License-Identifier: Apache-2.0
"""Directories of other users: root is led nowhere, and honest ones work as ever."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import HeldDirectory
from biotrail.recorder.schema.errors import OutputError
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


def test_a_directory_of_our_own_is_private(theirs: Path) -> None:
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
    os.close(at)


@needs_root
def test_a_directory_of_our_own_is_ours(theirs: Path) -> None:
    # GIVEN a directory of another user of that name WHEN it is opened THEN it is refused
    (theirs / "work").mkdir(0o700)
    os.chown(theirs / "work", OTHER, OTHER)
    at = folders.open_named(str(theirs))
    with pytest.raises(OutputError, match="work belongs to user 65534, and this is user 0: move"):
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
def test_directories_of_the_user_of_sudo_are_given_when_all_is_done(
    theirs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN root under sudo, with a directory of that user that holds a file of root's
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "1234")
    mine = precious(theirs / "mine", "keep")
    # WHEN a path of directories is made beside it, and it is named itself
    output.make_directory(theirs / "a" / "b")
    output.make_directory(mine)
    # THEN the new ones are the user's and private, and what was there is as it was
    for made in (theirs / "a", theirs / "a" / "b"):
        assert (made.stat().st_uid, mode_of(made)) == (1234, 0o700)
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
