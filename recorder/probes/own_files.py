# SPDX-License-Identifier: Apache-2.0
"""The section .data.own of bpf/own.h: the files that the recorder writes."""

import ctypes
import threading
from collections import deque

from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.probes.libbpf import BpfObject

FILES = 8
"""BT_OWN_FILES of bpf/own.h: the newest; what is written back reaches the disk 30 s late."""


class _File(ctypes.Structure):
    """`struct bt_own_file`."""

    _fields_ = (
        ("inode", ctypes.c_uint64),
        ("dev", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("has_generation", ctypes.c_uint32),
        ("reserved", ctypes.c_uint32),
    )


class Section(ctypes.Structure):
    """.data.own."""

    _fields_ = (("files", _File * FILES),)


class OwnFiles:
    """Tells the programs which files are the recorder's."""

    def __init__(self, bpf: BpfObject) -> None:
        """None yet."""
        self._bpf = bpf
        self._newest: deque[OwnFile] = deque(maxlen=FILES)
        self._lock = threading.Lock()

    def add(self, file: OwnFile) -> None:
        """One more; the oldest beyond FILES is forgotten."""
        with self._lock:
            # Without a generation a number that is used again would be another's file.
            sure = [known for known in self._newest if known.generation is not None]
            self._newest = deque([*sure, file], FILES)
            self._bpf.update_section(".data.own", section(self._newest))


def section(files: "deque[OwnFile]") -> Section:
    """The section's content: the newest file first, for it is looked for most."""
    found = Section()
    for place, file in enumerate(reversed(files)):
        generation = file.generation
        found.files[place] = _File(file.inode, file.dev, generation or 0, generation is not None, 0)
    return found
