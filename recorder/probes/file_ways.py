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
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.host.device_mounts import Mount, mount_id, parse_mount, read_lines
from biotrail.recorder.host.own_io import read_generation
from biotrail.recorder.log.names import FILE_SLOT_BITS
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.schema import shared, syscalls
from biotrail.recorder.schema.device_numbers import kernel_dev
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
    """By what files are known beside the page cache (names_of)."""


NO_FILES = Files()


def files_of(btf: KernelBtf) -> Files:
    missing = [f"{name}.{member}" for name, member in _MEMBERS if not btf.has_member(name, member)]
    if missing:
        lacking = f"files are not recorded: this kernel has no {' and no '.join(missing)}"
        return Files(lacking=lacking)
    has_iomap = btf.has_member("iomap_dio", "iocb") and btf.has_member("kiocb", "ki_filp")
    return Files(True, address_of(_END_OF_DIRECT) if has_iomap else 0)


_END_FUNCTIONS = {
    "device_ends": ("blkdev_bio_end_io", "blkdev_bio_end_io_async"),
    "dio_ends": ("dio_bio_end_io", "dio_bio_end_aio"),
    "btrfs_ends": ("btrfs_simple_end_io", "btrfs_orig_write_end_io"),
}
"""Functions that end bios of direct I/O on block devices, of fs/direct-io.c, and of btrfs, by their
member of `struct bt_file_ways`."""
_BTRFS_COPY_END = "btrfs_clone_write_end_io"
"""That of copies that btrfs makes for several devices."""
_BTRFS = "btrfs"
_SINCE_6_4 = "bpf_dynptr_slice"
"""A function that kernels have since the version in which the first function of several has an
exception table ("bpf: ensure main program has an extable")."""
_NOT_DATA = ("META", "SWAP")
_DIRECTORIES = 8192
"""Directories whose answer to --dir the programs remember."""


def ways_of(btf: KernelBtf, enums: KernelEnums) -> Any:
    """Return by what this kernel lets programs know files beside the page cache: shared.FILE_WAYS.

    A way is left out where its functions or struct members are missing, or the kernel hides
    addresses (then only the running call is left, from Linux 5.15). Of a way's several functions
    those that are there are taken. Those of btrfs are there if it is mounted, or its module loaded,
    by now. `btrfs`: subvolumes are told apart.
    """
    ways = shared.FILE_WAYS.ctype()

    def offsets(found: dict[str, int | None]) -> bool:
        """Set members, if all of them are known; return whether they are."""
        if None in found.values():
            return False
        for name, at in found.items():
            setattr(ways, name, at)
        return True

    functions = [name for names in _END_FUNCTIONS.values() for name in names]
    addresses = addresses_of((*functions, _BTRFS_COPY_END))
    known = {"device_ends": True}
    known["dio_ends"] = offsets({"dio_inode": btf.offset("dio", "inode")})
    with KernelBtf(_BTRFS) as types:
        ways.btrfs = offsets(
            {
                "btrfs_vfs_inode": types.offset("btrfs_inode", "vfs_inode"),
                "btrfs_root": types.offset("btrfs_inode", "root"),
                "btrfs_root_id": types.offset("btrfs_root", "root_key"),  # objectid is its first
                "btrfs_root_dev": types.offset("btrfs_root", "anon_dev"),
            }
        )
        in_own = types.pointed("btrfs_bio", "inode") == "btrfs_inode"
        # Not before 6.2.
        known["btrfs_ends"] = ways.btrfs and offsets(
            {
                "btrfs_bio": types.offset("btrfs_bio", "bio"),
                "btrfs_bio_inode": types.offset("btrfs_bio", "inode"),
                "btrfs_bio_vfs": types.offset("btrfs_inode", "vfs_inode") if in_own else 0,
            }
        )
        if known["btrfs_ends"] and offsets(
            {
                "btrfs_stripe_context": types.offset("btrfs_io_stripe", "bioc"),
                "btrfs_context_bio": types.offset("btrfs_io_context", "orig_bio"),
            }
        ):
            ways.btrfs_copy_end = addresses.get(_BTRFS_COPY_END, 0)
    for member, names in _END_FUNCTIONS.items():
        found = [addresses[name] for name in names if known[member] and name in addresses]
        for place, address in enumerate(found):
            getattr(ways, member)[place] = address
    bits = enums.get("flag_bits", {})
    ways.not_data = sum(1 << bits[name] for name in _NOT_DATA if name in bits)
    if "BPF_FUNC_task_pt_regs" in (btf.enum("bpf_func_id") or {}):
        machine = platform.machine()
        ways.direct_flag = os.O_DIRECT
        calls = syscalls.READS_OF_FD | syscalls.WRITES_OF_FD
        syscalls.set_bits(ways.calls, calls, machine)
        syscalls.set_bits(ways.writes, syscalls.WRITES_OF_FD, machine)
    return ways


def names_of(ways: Any, iomap: int) -> tuple[str, ...]:
    """Return the ways that there are, in the order in which they are tried."""
    known = {
        "iomap": iomap,
        "device": ways.device_ends[0],
        "dio": ways.dio_ends[0],
        "btrfs": ways.btrfs_ends[0],
        "call": ways.direct_flag,
    }
    return tuple(name for name, way in known.items() if way)


# The files and directories of --file and --dir, as the kernel side knows them by their inodes


class Wanted(NamedTuple):
    """A file whose bios are recorded, or a directory with all files below it.

    dev: st_dev of stat(), as kernel dev_t; on btrfs that of the subvolume. generation: of the
    inode; None: its file system does not report it, or the file may not be opened for reading.
    """

    inode: int
    dev: int
    directory: bool
    generation: int | None


def wanted_files(filters: Filters, subvolumes: bool, proc: Path = Path("/proc")) -> list[Wanted]:
    """Return what `filters.files` and `filters.dirs` name, each once, in the order given.

    Links are followed. A directory stands for what is mounted below it too, as it is now: mounts
    are returned as directories of their own (or files, where a file is mounted). `subvolumes`:
    whether the kernel side can tell subvolumes of btrfs apart.

    Raises ProbeError, also for a path on a file system without a block device (overlay, tmpfs,
    NFS), unless it is a directory with mounts that have one below.
    """
    kinds = read_lines(str(proc / "filesystems"))
    without_device = {kind.split()[-1] for kind in kinds if kind.startswith("nodev")}
    mounts: dict[str, Mount] = {}
    for line in read_lines(str(proc / "self" / "mountinfo")):
        if (mount := parse_mount(line)) is not None:
            mounts[line.split(" ", 1)[0]] = mount
    given = [("--file", path) for path in filters.files]
    given += [("--dir", path) for path in filters.dirs]
    wanted: dict[Wanted, None] = {}
    for option, path in given:
        first = _look(path, option, option == "--dir", mounts, proc)
        found = [first]
        if option == "--dir":
            above = os.path.realpath(path).rstrip("/") + "/"
            for mount in mounts.values():
                if mount.point.startswith(above) and mount.fstype not in without_device:
                    with suppress(ProbeError):  # hidden by another mount, or gone
                        found.append(_look(mount.point, option, None, mounts, proc))
        found = [one for one in found if one[1] not in without_device]
        if not found:
            raise ProbeError(
                f"{option} {path}: its file system ({first[1]}) has no block device of its own: "
                "name the files or the directory of the file system that does the I/O"
            )
        for one, fstype in found:
            if fstype == "btrfs" and not subvolumes:
                raise ProbeError(
                    f"{option} {path}: it is on btrfs, whose subvolumes this kernel does not let "
                    "programs tell apart (it has no types of the module btrfs: they are there "
                    "since Linux 5.11)"
                )
            wanted[one] = None
    return list(wanted)


def _look(
    path: str, option: str, directory: bool | None, mounts: Mapping[str, Mount], proc: Path
) -> tuple[Wanted, str]:
    """Return what is at `path`, links followed, and its type of file system ("": not known).

    directory: whether it shall be a directory, else a regular file; None: either.
    """
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError as error:
        pattern = "; it takes a path, no pattern" if set(path) & set("*?[") else ""
        raise ProbeError(f"{option} {path}: {error.strerror}{pattern}") from error
    try:
        status = os.fstat(handle)
        is_directory = stat.S_ISDIR(status.st_mode)
        if directory is False and is_directory:
            raise ProbeError(f"--file {path}: it is a directory: use --dir")
        if directory and not is_directory:
            raise ProbeError(f"--dir {path}: it is not a directory: use --file")
        if stat.S_ISBLK(status.st_mode):
            raise ProbeError(f"{option} {path}: it is a block device: use -d")
        if not is_directory and not stat.S_ISREG(status.st_mode):
            raise ProbeError(f"{option} {path}: it is no regular file, so it has no I/O on a disk")
        mount = mounts.get(mount_id(handle, str(proc)))
    finally:
        os.close(handle)
    generation = None
    with suppress(OSError):  # it may not be opened for reading
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if os.fstat(fd).st_ino == status.st_ino:  # else another inode is at `path` by now
                generation = read_generation(fd)
        finally:
            os.close(fd)
    wanted = Wanted(status.st_ino, kernel_dev(status.st_dev), is_directory, generation)
    return wanted, mount.fstype if mount else ""


class FileChoice(NamedTuple):
    """What the programs know of files (shared.FILE_WAYS), and which are filtered by."""

    files: Files = NO_FILES
    ways: Any = None
    """None: files are neither recorded nor filtered by."""
    wanted: tuple[Wanted, ...] = ()

    def prepare(self, bpf: BpfObject) -> None:
        """Set constants and the sizes of the maps, before `bpf` is loaded."""
        bpf.set_map_size("bt_file_slots", None, 1 << FILE_SLOT_BITS if self.files.recorded else 1)
        ways = shared.FILE_WAYS.ctype() if self.ways is None else self.ways
        bpf.set_initial_value(".rodata.files", ways)
        size = ctypes.sizeof(shared.GENERATION.ctype)
        bpf.set_map_size("bt_wanted_files", size, max(1, len(self.wanted)))
        bpf.set_map_size("bt_directories", 8, _DIRECTORIES if ways.by_dir else 1)

    def fill(self, bpf: BpfObject) -> None:
        """Put the wanted files and directories into the map of the loaded `bpf`."""
        for one in self.wanted:
            key = shared.WANTED_FILE.ctype(one.inode, one.dev, one.directory)
            known = one.generation is not None
            generation = shared.GENERATION.ctype(one.generation or 0, known)
            bpf.put("bt_wanted_files", key, generation)


NO_CHOICE = FileChoice()


def choose(btf: KernelBtf, enums: KernelEnums, recorded: bool, filters: Filters) -> FileChoice:
    """Return what the programs are to know of files. Raises ProbeError: a filter cannot be."""
    by_file = bool(filters.files or filters.dirs)
    if not recorded and not by_file:
        return NO_CHOICE
    found = files_of(btf)
    if by_file and not found.recorded:
        raise ProbeError(f"--file and --dir cannot be used: {found.lacking}")
    ways = ways_of(btf, enums)
    files = found._replace(
        recorded=found.recorded and recorded,
        lacking=found.lacking if recorded else "",
        ways=names_of(ways, found.iomap_end_io),
    )
    wanted = tuple(wanted_files(filters, bool(ways.btrfs)))
    ways.by_file, ways.by_dir = bool(wanted), any(one.directory for one in wanted)
    # A load that faults in the first function of programs that have several crashes such a kernel.
    ways.split = btf.function_id(_SINCE_6_4) is None
    return FileChoice(files, ways, wanted)
