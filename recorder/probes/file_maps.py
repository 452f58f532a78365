# SPDX-License-Identifier: Apache-2.0
"""What bpf/files.h needs of the kernel, and the table that it keeps."""

from typing import NamedTuple

from biotrail.recorder.log.file_names import SLOT_BITS
from biotrail.recorder.probes.btf import KernelBtf
from biotrail.recorder.probes.libbpf import BpfObject
from biotrail.recorder.symbols.kallsyms import address_of

_SLOT_BYTES = 24
"""`struct bt_file_slot`."""
_END_OF_DIRECT = "iomap_dio_bio_end_io"
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


class Files(NamedTuple):
    """What of files is recorded."""

    recorded: bool = False
    iomap_end_io: int = 0
    """Address of the function that ends bios of iomap's direct I/O; 0: its files are not known."""
    lacking: str = ""
    """Why they are not recorded though asked for."""


NO_FILES = Files()


def files_of(btf: KernelBtf) -> Files:
    """What can be recorded on this kernel."""
    missing = [f"{name}.{member}" for name, member in _MEMBERS if not btf.has_member(name, member)]
    if missing:
        lacking = f"files are not recorded: this kernel has no {' and no '.join(missing)}"
        return Files(lacking=lacking)
    known = btf.has_member("iomap_dio", "iocb") and btf.has_member("kiocb", "ki_filp")
    return Files(True, address_of(_END_OF_DIRECT) if known else 0)


def set_size(bpf: BpfObject, files: Files) -> None:
    """Before the object is loaded; without files, the table has one place."""
    bpf.set_map_size("bt_file_slots", _SLOT_BYTES, 1 << SLOT_BITS if files.recorded else 1)
