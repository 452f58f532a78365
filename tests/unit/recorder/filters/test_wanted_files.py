# SPDX-License-Identifier: Apache-2.0
"""--file and --dir: from paths to inodes, and what cannot be meant."""

import os
from pathlib import Path

import pytest

from biotrail.recorder.filters import wanted_files as module
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.wanted_files import Wanted, wanted_files
from biotrail.recorder.host.own_io import kernel_dev
from biotrail.recorder.schema.errors import ProbeError

KINDS = "nodev\tproc\nnodev\toverlay\n\text4\n\tbtrfs\n"


class Host:
    """A /proc with the mounts that a test wants; files are real."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "filesystems").write_text(KINDS)
        self.lines: list[str] = []
        self.of: dict[str, str] = {}
        patch.setattr(module, "_mount_id", self._mount_id)
        patch.setattr(module, "read_generation", lambda fd: 7)

    def mount(self, number: str, point: Path, fstype: str) -> None:
        self.lines.append(f"{number} 1 8:1 / {point} rw - {fstype} /dev/x rw")
        self.of[str(point)] = number
        (self.proc / "self" / "mountinfo").write_text("\n".join(self.lines) + "\n")

    def _mount_id(self, handle: int, proc: Path) -> str:
        """The mount with the longest point above the file that is open."""
        path = os.readlink(f"/proc/self/fd/{handle}")
        above = [point for point in self.of if f"{path}/".startswith(f"{point}/")]
        return self.of[max(above, key=len)]

    def look(self, subvolumes: bool = True, **given: tuple[Path, ...]) -> list[Wanted]:
        filters = Filters(**{name: tuple(map(str, paths)) for name, paths in given.items()})
        return wanted_files(filters, subvolumes, self.proc)


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    made = Host(tmp_path, monkeypatch)
    made.mount("20", tmp_path, "ext4")
    return made


def identity(path: Path, directory: bool = False) -> Wanted:
    status = path.stat()
    return Wanted(status.st_ino, kernel_dev(status.st_dev), directory, 7)


def test_files_and_directories_by_their_inodes(host: Host, tmp_path: Path) -> None:
    # GIVEN two files, a link to one of them, and a directory
    one, two, link, place = (tmp_path / name for name in ("one", "two", "link", "place"))
    one.touch()
    two.touch()
    link.symlink_to(one)
    place.mkdir()
    # WHEN they are looked up THEN each is there once, in the order given, files before directories
    found = host.look(files=(two, link, one), dirs=(place,))
    assert found == [identity(two), identity(one), identity(place, directory=True)]


def test_mounts_below_a_directory_count(host: Host, tmp_path: Path) -> None:
    # GIVEN a directory with mounts below, one of which has no device, and one beside it
    points = {"a/disk": "ext4", "a/proc": "proc", "a-not/disk": "ext4"}
    for number, (name, fstype) in enumerate(points.items()):
        (tmp_path / name).mkdir(parents=True)
        host.mount(f"3{number}", tmp_path / name, fstype)
    # AND one that is gone
    host.lines.append(f"40 1 8:1 / {tmp_path / 'a' / 'gone'} rw - ext4 /dev/x rw")
    host.mount("41", tmp_path / "a" / "gone-too", "ext4")
    # WHEN it is looked up THEN it stands for those of them that are on devices
    found = host.look(dirs=(tmp_path / "a",))
    assert found == [identity(tmp_path / name, directory=True) for name in ("a", "a/disk")]


def test_a_directory_without_a_device_but_with_mounts(host: Host, tmp_path: Path) -> None:
    # GIVEN a container's root, with a disk mounted below one directory
    root = tmp_path / "root"
    (root / "disk").mkdir(parents=True)
    (root / "bare").mkdir()
    host.mount("30", root, "overlay")
    host.mount("31", root / "disk", "ext4")
    # WHEN the root is looked up THEN it stands for the disk
    assert host.look(dirs=(root,)) == [identity(root / "disk", directory=True)]
    # AND a directory or a file without any is refused
    (root / "file").touch()
    for given in ({"dirs": (root / "bare",)}, {"files": (root / "file",)}):
        with pytest.raises(ProbeError, match=r"\(overlay\) has no block device of its own"):
            host.look(**given)


def test_what_is_no_file_or_directory(host: Host, tmp_path: Path) -> None:
    # GIVEN a directory, a file, a pipe, and nothing
    (tmp_path / "place").mkdir()
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    wrong = {
        "--file .*place: it is a directory: use --dir": {"files": (tmp_path / "place",)},
        "--dir .*file: it is not a directory: use --file": {"dirs": (tmp_path / "file",)},
        "--file .*pipe: it is no regular file": {"files": (tmp_path / "pipe",)},
        "--file .*none: No such file or directory$": {"files": (tmp_path / "none",)},
        r"--dir .*n\*e: No such file or directory; it takes a path": {"dirs": (tmp_path / "n*e",)},
    }
    # WHEN each is looked up as what it is not THEN the message says what to do
    for message, given in wrong.items():
        with pytest.raises(ProbeError, match=message):
            host.look(**given)


def test_subvolumes_that_cannot_be_told_apart(host: Host, tmp_path: Path) -> None:
    # GIVEN a file on btrfs WHEN the programs cannot tell subvolumes apart THEN it is refused
    (tmp_path / "pool").mkdir()
    (tmp_path / "pool" / "file").touch()
    host.mount("30", tmp_path / "pool", "btrfs")
    given = {"files": (tmp_path / "pool" / "file",)}
    with pytest.raises(ProbeError, match="whose subvolumes this kernel does not let"):
        host.look(subvolumes=False, **given)
    # AND else it is one as any other
    assert host.look(**given) == [identity(tmp_path / "pool" / "file")]


def test_a_file_that_may_not_be_read_has_no_generation(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file that only others may open WHEN it is looked up
    file = tmp_path / "file"
    file.touch()
    opened = os.open

    def denied(path: str, flags: int) -> int:
        if not flags & os.O_PATH:
            raise PermissionError
        return opened(path, flags)

    monkeypatch.setattr(module.os, "open", denied)
    # THEN its number alone counts
    (found,) = host.look(files=(file,))
    assert found == identity(file)._replace(generation=None)
