# SPDX-License-Identifier: Apache-2.0
"""Which files of bios are recorded on this kernel, and how programs know a bio's file.

By its first page (bpf/files.h). Beside the page cache (`struct bt_file_ways`: bpf/direct.h,
bpf/file_filter.h) by the functions that end bios of direct I/O and of btrfs, and by the running
system call. Structs of btrfs are in the BTF of its module, which the programs' own relocations do
not need then: the recorder looks up the offsets.
"""

import ctypes
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.wanted_files import Wanted, wanted_files
from biotrail.recorder.log.names import FILE_SLOT_BITS
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.schema import shared, syscalls
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import KernelEnums
from biotrail.recorder.symbols.kallsyms import address_of, addresses_of

_END_OF_DIRECT = "iomap_dio_bio_end_io"
"""bi_end_io of a bio of iomap's direct I/O, by which bpf/files.h knows such a bio."""
_MEMBERS = (
    ("page", "flags"),
    ("page", "mapping"),
    ("address_space", "host"),
    ("inode", "i_mode"),
    ("inode", "i_sb"),
    ("inode", "i_dentry"),
    ("dentry", "d_parent"),
    ("dentry", "d_name"),
)
"""(struct, member) that the programs follow from a bio's page to its file's path."""


class Files(NamedTuple):
    """Which file facts are recorded."""

    recorded: bool = False
    """Whether bios are recorded with their file, by way of their first page."""
    iomap_end_io: int = 0
    """Address of iomap_dio_bio_end_io; 0: files of iomap's direct I/O are not recorded."""
    lacking: str = ""
    """Message saying why files are not recorded though asked for; else ""."""
    ways: tuple[str, ...] = ()
    """By what files are known beside the page cache (Ways.names)."""


NO_FILES = Files()


def files_of(btf: KernelBtf) -> Files:
    """Return which file facts can be recorded on this kernel.

    `iomap_end_io` stays 0 where iomap's structs are not in BTF, or the kernel hides its symbols.
    """
    missing = [f"{name}.{member}" for name, member in _MEMBERS if not btf.has_member(name, member)]
    if missing:
        lacking = f"files are not recorded: this kernel has no {' and no '.join(missing)}"
        return Files(lacking=lacking)
    has_iomap = btf.has_member("iomap_dio", "iocb") and btf.has_member("kiocb", "ki_filp")
    return Files(True, address_of(_END_OF_DIRECT) if has_iomap else 0)


_DEVICE_ENDS = ("blkdev_bio_end_io", "blkdev_bio_end_io_async")
_DIO_ENDS = ("dio_bio_end_io", "dio_bio_end_aio")
_BTRFS_ENDS = ("btrfs_simple_end_io", "btrfs_orig_write_end_io")
_BTRFS_COPY_END = "btrfs_clone_write_end_io"
_BTRFS = "btrfs"
_SINCE_6_4 = "bpf_dynptr_slice"
"""A function that kernels have since the version in which the first function of several has an
exception table ("bpf: ensure main program has an extable")."""
_NOT_DATA = ("META", "SWAP")
_DIRECTORIES = 8192
"""Directories whose answer to --dir the programs remember."""


@dataclass(frozen=True)
class Ways:
    """What this kernel lets programs know of files beside the page cache.

    device_ends, dio_ends, btrfs_ends: addresses of the functions that end bios of direct I/O on
    block devices, of fs/direct-io.c, and of btrfs. btrfs_copy_end: likewise, of copies that btrfs
    makes for several devices. offsets: members of `struct bt_file_ways` by name, bytes. by_call:
    whether the running call's file can be known. not_data: request flags of bios that carry no
    file's data, as a mask. subvolumes: whether btrfs's subvolumes are told apart.
    """

    device_ends: tuple[int, ...] = ()
    dio_ends: tuple[int, ...] = ()
    btrfs_ends: tuple[int, ...] = ()
    btrfs_copy_end: int = 0
    offsets: tuple[tuple[str, int], ...] = ()
    by_call: bool = False
    not_data: int = 0
    subvolumes: bool = False

    def names(self, iomap: int) -> tuple[str, ...]:
        """Return the ways that there are, in the order in which they are tried.

        `iomap`: address of the function that ends bios of iomap's direct I/O; 0: not known.
        """
        known = {
            "iomap": iomap,
            "device": self.device_ends,
            "dio": self.dio_ends,
            "btrfs": self.btrfs_ends,
            "call": self.by_call,
        }
        return tuple(name for name, way in known.items() if way)


NO_WAYS = Ways()


def ways_of(btf: KernelBtf, enums: KernelEnums) -> Ways:
    """Return by which ways this kernel lets programs know files.

    A way is left out where its functions or struct members are missing, or the kernel hides
    addresses (then only the running call is left, from Linux 5.15). Of a way's several functions
    those that are there are taken. Those of btrfs are there if it is mounted, or its module loaded,
    by now.
    """
    found = addresses_of((*_DEVICE_ENDS, *_DIO_ENDS, *_BTRFS_ENDS, _BTRFS_COPY_END))
    with KernelBtf(_BTRFS) as types:
        subvolumes = _subvolume_offsets(types)
        bios = _bio_offsets(types) if subvolumes else {}
        copies = _copy_offsets(types) if bios else {}
    dio = _known(dio_inode=btf.offset("dio", "inode"))
    bits = enums.get("flag_bits", {})
    return Ways(
        device_ends=_all(found, _DEVICE_ENDS),
        dio_ends=_all(found, _DIO_ENDS) if dio else (),
        btrfs_ends=_all(found, _BTRFS_ENDS) if bios else (),
        btrfs_copy_end=found.get(_BTRFS_COPY_END, 0) if copies else 0,
        offsets=tuple((dio | subvolumes | bios | copies).items()),
        by_call="BPF_FUNC_task_pt_regs" in (btf.enum("bpf_func_id") or {}),
        not_data=sum(1 << bits[name] for name in _NOT_DATA if name in bits),
        subvolumes=bool(subvolumes),
    )


def _all(found: dict[str, int], names: tuple[str, ...]) -> tuple[int, ...]:
    return tuple(found[name] for name in names if name in found)


def _known(**offsets: int | None) -> dict[str, int]:
    known = {name: at for name, at in offsets.items() if at is not None}
    return known if len(known) == len(offsets) else {}


def _subvolume_offsets(btf: KernelBtf) -> dict[str, int]:
    """Return the offsets by which an inode's subvolume is found; {}: not on this kernel."""
    return _known(
        btrfs_vfs_inode=btf.offset("btrfs_inode", "vfs_inode"),
        btrfs_root=btf.offset("btrfs_inode", "root"),
        btrfs_root_id=btf.offset("btrfs_root", "root_key"),  # objectid is its first member
        btrfs_root_dev=btf.offset("btrfs_root", "anon_dev"),
    )


def _bio_offsets(btf: KernelBtf) -> dict[str, int]:
    """Return the offsets by which a bio's inode is found; {}: not on this kernel (before 6.2)."""
    in_own = btf.pointed("btrfs_bio", "inode") == "btrfs_inode"
    return _known(
        btrfs_bio=btf.offset("btrfs_bio", "bio"),
        btrfs_bio_inode=btf.offset("btrfs_bio", "inode"),
        btrfs_bio_vfs=btf.offset("btrfs_inode", "vfs_inode") if in_own else 0,
    )


def _copy_offsets(btf: KernelBtf) -> dict[str, int]:
    """Return the offsets by which a copy's original is found; {}: not on this kernel."""
    return _known(
        btrfs_stripe_context=btf.offset("btrfs_io_stripe", "bioc"),
        btrfs_context_bio=btf.offset("btrfs_io_context", "orig_bio"),
    )


class FileChoice(NamedTuple):
    """What the programs know of files, and which are filtered by.

    files: what is recorded. ways: by which a bio's file is known. wanted: files and directories to
    be filtered by. split: whether a load that faults in the first function of programs that have
    several, as they have where files are recorded or filtered by, crashes this kernel.
    """

    files: Files = NO_FILES
    ways: Ways = NO_WAYS
    wanted: tuple[Wanted, ...] = ()
    split: bool = False

    def prepare(self, bpf: BpfObject) -> None:
        """Set constants and the sizes of the maps, before `bpf` is loaded."""
        bpf.set_map_entries("bt_file_slots", 1 << FILE_SLOT_BITS if self.files.recorded else 1)
        bpf.set_initial_value(".rodata.files", _section(self.ways, self.wanted, self.split))
        size = ctypes.sizeof(shared.GENERATION.ctype)
        bpf.set_map_size("bt_wanted_files", size, max(1, len(self.wanted)))
        directories = any(one.directory for one in self.wanted)
        bpf.set_map_size("bt_directories", 8, _DIRECTORIES if directories else 1)

    def fill(self, bpf: BpfObject) -> None:
        """Put the wanted files and directories into the map of the loaded `bpf`."""
        for one in self.wanted:
            key = shared.WANTED_FILE.ctype(one.inode, one.dev, one.directory)
            known = one.generation is not None
            generation = shared.GENERATION.ctype(one.generation or 0, known)
            bpf.put("bt_wanted_files", key, generation)


NO_CHOICE = FileChoice()


def choose(btf: KernelBtf, enums: KernelEnums, recorded: bool, filters: Filters) -> FileChoice:
    """Return what the programs are to know of files, whether `recorded` or filtered by.

    Raises ProbeError: files are filtered by, and this kernel does not tell files, or one of them
    cannot be known (see `wanted_files`).
    """
    if not recorded and not filters.by_file:
        return NO_CHOICE
    found = files_of(btf)
    if filters.by_file and not found.recorded:
        raise ProbeError(f"--file and --dir cannot be used: {found.lacking}")
    ways = ways_of(btf, enums)
    files = found._replace(
        recorded=found.recorded and recorded,
        lacking=found.lacking if recorded else "",
        ways=ways.names(found.iomap_end_io),
    )
    wanted = tuple(wanted_files(filters, ways.subvolumes))
    return FileChoice(files, ways, wanted, not btf.has_function(_SINCE_6_4))


def _section(ways: Ways, wanted: Sequence[Wanted], split: bool) -> Any:
    made = shared.FILE_WAYS.ctype(
        split=split, not_data=ways.not_data, btrfs_copy_end=ways.btrfs_copy_end
    )
    for name in ("device_ends", "dio_ends", "btrfs_ends"):
        for place, address in enumerate(getattr(ways, name)):
            getattr(made, name)[place] = address
    for name, offset in ways.offsets:
        setattr(made, name, offset)
    made.btrfs = ways.subvolumes
    made.by_file, made.by_dir = bool(wanted), any(one.directory for one in wanted)
    if ways.by_call:
        machine = platform.machine()
        made.direct_flag = os.O_DIRECT
        calls = syscalls.READS_OF_FD | syscalls.WRITES_OF_FD
        syscalls.set_bits(made.calls, syscalls.numbers(calls, machine))
        syscalls.set_bits(made.writes, syscalls.numbers(syscalls.WRITES_OF_FD, machine))
    return made
