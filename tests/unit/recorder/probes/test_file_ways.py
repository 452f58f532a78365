# SPDX-License-Identifier: Apache-2.0
"""By what a bio's file is known on a kernel, and what the programs are told."""

import os
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes import file_ways
from biotrail.recorder.probes.file_ways import (
    NO_CHOICE,
    FileChoice,
    Wanted,
    choose,
    names_of,
    wanted_files,
    ways_of,
)
from biotrail.recorder.schema import shared
from biotrail.recorder.schema.device_numbers import kernel_dev
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import WAYS

ENUMS = {"op_enum": {}, "flag_bits": {"META": 12, "SWAP": 24, "SYNC": 11}}
OFFSETS = {
    ("btrfs_inode", "vfs_inode"): 392,
    ("btrfs_inode", "root"): 0,
    ("btrfs_root", "root_key"): 503,
    ("btrfs_root", "anon_dev"): 888,
    ("btrfs_bio", "bio"): 192,
    ("btrfs_bio", "inode"): 8,
    ("btrfs_io_stripe", "bioc"): 24,
    ("btrfs_io_context", "orig_bio"): 32,
    ("dio", "inode"): 40,
}
ENDS = {
    "blkdev_bio_end_io": 1,
    "blkdev_bio_end_io_async": 2,
    "dio_bio_end_io": 3,
    "dio_bio_end_aio": 4,
    "btrfs_simple_end_io": 5,
    "btrfs_orig_write_end_io": 6,
    "btrfs_clone_write_end_io": 7,
}


class Kernel:
    """Answers as a kernel's BTF would."""

    def __init__(self, offsets: dict[tuple[str, str], int], regs: bool = True, own: bool = True):
        self._offsets, self._regs, self._own = offsets, regs, own
        self.lacks = ""
        self.mended = False

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def offset(self, name: str, member: str) -> int | None:
        return self._offsets.get((name, member))

    def has_member(self, name: str, member: str) -> bool:
        return name != self.lacks

    def function_id(self, name: str) -> int | None:
        return 1 if self.mended else None

    def pointed(self, name: str, member: str) -> str:
        return "btrfs_inode" if self._own else "inode"

    def enum(self, name: str) -> dict[str, int]:
        return {"BPF_FUNC_task_pt_regs": 175} if self._regs else {}


def ways(
    monkeypatch: pytest.MonkeyPatch, kernel: Kernel, ends: dict[str, int] | None = None
) -> Any:
    found = ENDS if ends is None else ends
    monkeypatch.setattr(file_ways, "KernelBtf", lambda module: kernel)
    monkeypatch.setattr(
        file_ways, "addresses_of", lambda names: {n: found[n] for n in names if n in found}
    )
    return ways_of(kernel, ENUMS)  # type: ignore[arg-type]


def told(choice: FileChoice) -> Any:
    """The section that the programs get."""
    seen: dict[str, Any] = {}

    class Bpf:
        """Keeps what it is told."""

        def set_initial_value(self, name: str, value: Any) -> None:
            seen[name] = value

        def set_map_size(self, name: str, size: int | None, entries: int) -> None:
            seen[name] = entries

        def put(self, name: str, key: Any, value: Any) -> None:
            seen.setdefault("keys", []).append(
                (key.inode, key.dev, key.directory, value.generation, value.known)
            )

    bpf: Any = Bpf()
    choice.prepare(bpf)
    choice.fill(bpf)
    return seen


def test_a_modern_kernel_has_every_way(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel with all functions and structs WHEN it is asked
    found = ways(monkeypatch, Kernel(OFFSETS))
    # THEN all ways are there, in their order, and each has its words
    assert names_of(found, 1) == tuple(WAYS)
    # AND the programs get the numbers
    section = told(FileChoice(ways=found))[".rodata.files"]
    assert list(section.device_ends) == [1, 2]
    assert list(section.dio_ends) == [3, 4]
    assert list(section.btrfs_ends) == [5, 6]
    assert section.btrfs_copy_end == 7
    assert section.not_data == 1 << 12 | 1 << 24
    assert (section.btrfs, section.btrfs_vfs_inode, section.btrfs_bio_vfs) == (1, 392, 392)
    assert (section.dio_inode, section.btrfs_context_bio) == (40, 32)
    assert section.direct_flag > 0
    assert (section.by_file, section.by_dir) == (0, 0)


def test_hidden_addresses_leave_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel that hides its functions WHEN it is asked THEN the running call is left
    assert names_of(ways(monkeypatch, Kernel(OFFSETS), {}), 0) == ("call",)
    # AND not even that before 5.15
    assert names_of(ways(monkeypatch, Kernel(OFFSETS, regs=False), {}), 0) == ()


def test_btrfs_without_what_leads_to_the_inode(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel whose bios of btrfs have no inode, as before 6.2
    without = {key: at for key, at in OFFSETS.items() if key != ("btrfs_bio", "inode")}
    found = ways(monkeypatch, Kernel(without))
    # WHEN it is asked THEN that way is missing, and subvolumes are told apart all the same
    assert "btrfs" not in names_of(found, 1)
    assert found.btrfs
    assert told(FileChoice(ways=found))[".rodata.files"].btrfs_copy_end == 0
    # AND where they have the other kind of inode, its offset is none
    found = ways(monkeypatch, Kernel(OFFSETS, own=False))
    assert (found.btrfs_bio_vfs, found.btrfs_vfs_inode) == (0, 392)
    # AND without types of the module there is nothing of btrfs
    found = ways(monkeypatch, Kernel({("dio", "inode"): 40}))
    offsets = [member.name for member in shared.FILE_WAYS.members if member.type == "u32"]
    known = {name for name in offsets if getattr(found, name)}
    assert known == {"dio_inode", "direct_flag", "not_data"}
    assert list(found.btrfs_ends) == [0, 0]


def test_nothing_is_told_where_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN neither --files nor a filter by file WHEN it is chosen
    choice = choose(Kernel(OFFSETS), ENUMS, False, Filters())  # type: ignore[arg-type]
    # THEN the programs get zeroes
    assert choice is NO_CHOICE
    seen = told(choice)
    assert not any(bytes(seen.pop(".rodata.files")))
    assert seen == {"bt_file_slots": 1, "bt_wanted_files": 1, "bt_directories": 1}


def test_a_filter_works_without_names(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a filter by a file and a directory, and no --files
    ways(monkeypatch, Kernel(OFFSETS))
    monkeypatch.setattr(file_ways, "address_of", lambda name: 4096)
    wanted = [Wanted(12, 34, False, 5), Wanted(13, 34, True, None)]
    monkeypatch.setattr(file_ways, "wanted_files", lambda filters, subvolumes: wanted)
    filters = Filters(files=("/a",), dirs=("/b",))
    # WHEN it is chosen
    choice = choose(Kernel(OFFSETS), ENUMS, False, filters)  # type: ignore[arg-type]
    # THEN no files are recorded, but found all the same
    assert (choice.files.recorded, choice.files.iomap_end_io) == (False, 4096)
    seen = told(choice)
    section = seen[".rodata.files"]
    assert (section.by_file, section.by_dir, section.split) == (1, 1, 1)
    assert seen["keys"] == [(12, 34, 0, 5, 1), (13, 34, 1, 0, 0)]
    assert (seen["bt_wanted_files"], seen["bt_file_slots"]) == (2, 1)


def test_a_filter_on_a_kernel_without_files_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel whose structs do not lead from a page to its file
    kernel = Kernel(OFFSETS)
    ways(monkeypatch, kernel)
    kernel.lacks = "dentry"
    filters = Filters(files=("/a",))
    # WHEN a file is filtered by THEN that is refused; files that are only recorded are left out
    with pytest.raises(ProbeError, match=r"--file and --dir cannot be used: .*dentry\.d_parent"):
        choose(kernel, ENUMS, False, filters)  # type: ignore[arg-type]
    assert "dentry.d_parent" in choose(kernel, ENUMS, True, Filters()).files.lacking  # type: ignore[arg-type]


def test_old_kernels_must_not_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN kernels that crash at a fault in the first function of several, and those that do not
    monkeypatch.setattr(file_ways, "address_of", lambda name: 0)
    for mended in (False, True):
        kernel = Kernel(OFFSETS)
        kernel.mended = mended
        ways(monkeypatch, kernel)
        # WHEN files are recorded THEN the programs of the first load with care
        choice = choose(kernel, ENUMS, True, Filters())  # type: ignore[arg-type]
        assert told(choice)[".rodata.files"].split == (not mended)


# --file and --dir: from paths to inodes, and what cannot be meant.

KINDS = "nodev\tproc\nnodev\toverlay\n\text4\n\tbtrfs\n"


class Host:
    """A /proc with the mounts that a test wants; files are real."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.proc = root / "proc"
        (self.proc / "self").mkdir(parents=True)
        (self.proc / "filesystems").write_text(KINDS)
        self.lines: list[str] = []
        self.of: dict[str, str] = {}
        patch.setattr(file_ways, "mount_id", self._mount_id)
        patch.setattr(file_ways, "read_generation", lambda fd: 7)

    def mount(self, number: str, point: Path, fstype: str) -> None:
        self.lines.append(f"{number} 1 8:1 / {point} rw - {fstype} /dev/x rw")
        self.of[str(point)] = number
        (self.proc / "self" / "mountinfo").write_text("\n".join(self.lines) + "\n")

    def _mount_id(self, handle: int, proc: str) -> str:
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


def test_files_and_directories_by_their_inodes(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN two files, a link to one of them, and a directory
    one, two, link, place = (tmp_path / name for name in ("one", "two", "link", "place"))
    one.touch()
    two.touch()
    link.symlink_to(one)
    place.mkdir()
    # WHEN they are looked up THEN each is there once, in the order given, files before directories
    found = host.look(files=(two, link, one), dirs=(place,))
    assert found == [identity(two), identity(one), identity(place, directory=True)]
    # GIVEN a file that only others may open
    opened = os.open

    def denied(path: str, flags: int) -> int:
        if not flags & os.O_PATH:
            raise PermissionError
        return opened(path, flags)

    monkeypatch.setattr(file_ways.os, "open", denied)
    # WHEN it is looked up THEN its number alone counts
    assert host.look(files=(one,)) == [identity(one)._replace(generation=None)]


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
    # GIVEN a container's root, with a disk mounted below one directory
    root = tmp_path / "root"
    (root / "disk").mkdir(parents=True)
    (root / "bare").mkdir()
    host.mount("50", root, "overlay")
    host.mount("51", root / "disk", "ext4")
    # WHEN the root is looked up THEN it stands for the disk
    assert host.look(dirs=(root,)) == [identity(root / "disk", directory=True)]
    # AND a directory or a file without any is refused
    (root / "file").touch()
    for given in ({"dirs": (root / "bare",)}, {"files": (root / "file",)}):
        with pytest.raises(ProbeError, match=r"\(overlay\) has no block device of its own"):
            host.look(**given)


def test_what_is_no_file_or_directory_and_subvolumes(host: Host, tmp_path: Path) -> None:
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
    # GIVEN a file on btrfs WHEN the programs cannot tell subvolumes apart THEN it is refused
    file = tmp_path / "place" / "file"
    file.touch()
    host.mount("30", tmp_path / "place", "btrfs")
    with pytest.raises(ProbeError, match="whose subvolumes this kernel does not let"):
        host.look(subvolumes=False, files=(file,))
    # AND else it is one as any other
    assert host.look(files=(file,)) == [identity(file)]
