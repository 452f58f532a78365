# SPDX-License-Identifier: Apache-2.0
"""Finds out whether bpf/files.h can work on this kernel, and sizes its table of files."""

from typing import NamedTuple

from biotrail.recorder.log.file_names import SLOT_BITS
from biotrail.recorder.probes.kernel.btf import KernelBtf
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.symbols.kallsyms import address_of

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
    """By what files are known beside the page cache (file_ways.Ways.names)."""


NO_FILES = Files()


def files_of(btf: KernelBtf) -> Files:
    """Return which file facts can be recorded on this kernel.

    Where a struct member that the programs follow is missing, `recorded` is False and `lacking`
    says so, for the user. `iomap_end_io` stays 0 where iomap's structs are not in BTF, or where the
    kernel hides its symbols: files of direct I/O are then not recorded.
    """
    missing = [f"{name}.{member}" for name, member in _MEMBERS if not btf.has_member(name, member)]
    if missing:
        lacking = f"files are not recorded: this kernel has no {' and no '.join(missing)}"
        return Files(lacking=lacking)
    has_iomap = btf.has_member("iomap_dio", "iocb") and btf.has_member("kiocb", "ki_filp")
    return Files(True, address_of(_END_OF_DIRECT) if has_iomap else 0)


def set_size(bpf: BpfObject, files: Files) -> None:
    """Set the size of bt_file_slots before `bpf` is loaded: one slot if files are not recorded."""
    bpf.set_map_entries("bt_file_slots", 1 << SLOT_BITS if files.recorded else 1)
