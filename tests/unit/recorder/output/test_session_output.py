# SPDX-License-Identifier: Apache-2.0
"""Outputs are private, and never replace anything by surprise."""

import errno
import os
import stat
from pathlib import Path

import pytest

from biotrail.recorder.output import folders, output
from biotrail.recorder.output.folders import explain
from biotrail.recorder.schema.errors import OutputError


def test_a_new_file_is_private_whatever_the_umask(tmp_path: Path) -> None:
    # GIVEN a umask that takes even the owner's rights
    old = os.umask(0o777)
    try:
        # WHEN a file is created
        made = output.NewFile(tmp_path / "log")
        made.stream.write(b"x")
        made.publish()
        made.close()
    finally:
        os.umask(old)
    # THEN its owner alone may read and write it
    assert stat.S_IMODE((tmp_path / "log").stat().st_mode) == 0o600
    assert (tmp_path / "log").read_bytes() == b"x"


def test_an_existing_file_is_kept_without_force(tmp_path: Path) -> None:
    # GIVEN a file that is there
    path = tmp_path / "log"
    path.write_bytes(b"old")
    # WHEN it is to be created THEN the error names it and the remedy, and it is as it was
    with pytest.raises(OutputError, match=r"log already exists.*--force"):
        output.NewFile(path)
    assert path.read_bytes() == b"old"


def test_force_replaces_the_name_and_not_the_file(tmp_path: Path) -> None:
    # GIVEN a file that someone reads
    path = tmp_path / "log"
    path.write_bytes(b"old")
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
def test_a_discarded_file_leaves_nothing(tmp_path: Path, force: bool) -> None:
    # GIVEN a new file, without a name and with it
    for published in (False, True):
        made = output.NewFile(tmp_path / "log", force=force)
        if published:
            made.publish()
        # WHEN it is discarded THEN the directory is as it was
        made.discard()
        made.close()
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


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    # GIVEN no directory WHEN a file is to be created in it THEN the error says so
    with pytest.raises(OutputError, match=r"no/log.*directory does not exist"):
        output.NewFile(tmp_path / "no" / "log")


@pytest.mark.parametrize("url", ["s3://bucket/log", Path("s3://bucket/log")])
def test_a_url_is_named_as_one(url: str | Path) -> None:
    # GIVEN a URL, also one taken for a path  WHEN it is written to
    with pytest.raises(OutputError) as failed:
        output.NewFile(url)
    # THEN the message says that it is none of this machine's files
    assert "it is a URL" in str(failed.value)
    assert "--to URL" in str(failed.value)


def test_sudo_gives_the_file_to_its_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN root under sudo
    if os.geteuid() != 0:
        pytest.skip("needs root")
    monkeypatch.setenv("SUDO_UID", "1234")
    monkeypatch.setenv("SUDO_GID", "2345")
    # WHEN a file and a directory are written
    with output.replacing(tmp_path / "log"):
        pass
    with output.replacing_directory(tmp_path / "archive", marker="a.otf2") as directory:
        (directory / "a.otf2").write_bytes(b"x")
    # THEN they belong to the user who called sudo
    for path in (tmp_path / "log", tmp_path / "archive", tmp_path / "archive" / "a.otf2"):
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)


@pytest.mark.parametrize(("uid", "gid"), [("x", "1"), ("", ""), ("-1", "1")])
def test_a_strange_sudo_environment_is_ignored(
    monkeypatch: pytest.MonkeyPatch, uid: str, gid: str
) -> None:
    # GIVEN variables that are no ids WHEN the owner is asked for THEN there is none
    monkeypatch.setenv("SUDO_UID", uid)
    monkeypatch.setenv("SUDO_GID", gid)
    assert folders.owner() is None


def test_a_replacing_file_appears_when_all_went_well(tmp_path: Path) -> None:
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


def test_a_failed_file_leaves_nothing(tmp_path: Path) -> None:
    # GIVEN a file being written over another one
    path = tmp_path / "trace"
    path.write_bytes(b"old")
    # WHEN writing fails
    with pytest.raises(ValueError, match="bad"), output.replacing(path, force=True) as stream:
        stream.write(b"half")
        raise ValueError("bad")
    # THEN the old one is untouched and nothing lies about
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["trace"]


def test_a_file_that_came_in_between_is_kept(tmp_path: Path) -> None:
    # GIVEN a file being written WHEN another program takes its name
    path = tmp_path / "trace"
    with (
        pytest.raises(OutputError, match="already exists"),
        output.replacing(path) as stream,
    ):
        stream.write(b"mine")
        path.write_bytes(b"theirs")
    # THEN theirs stays
    assert path.read_bytes() == b"theirs"
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
