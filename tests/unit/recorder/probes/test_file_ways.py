# SPDX-License-Identifier: Apache-2.0
"""By what a bio's file is known on a kernel, and what the programs are told."""

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
    ways_of,
)
from biotrail.recorder.schema import shared
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
