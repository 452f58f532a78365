# SPDX-License-Identifier: Apache-2.0
"""Fills the section .data.own of bpf/own.h: the files that the recorder writes."""

import threading
from collections import deque
from collections.abc import Collection
from typing import Any

from biotrail.recorder.host.own_io import OwnFile
from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.schema import shared
from biotrail.recorder.schema.limits import OWN_FILES


class OwnFiles:
    """The newest files that the recorder writes, as the programs see them."""

    def __init__(self, bpf: BpfObject) -> None:
        self._bpf = bpf
        self._newest: deque[OwnFile] = deque(maxlen=OWN_FILES)
        self._lock = threading.Lock()

    def add(self, file: OwnFile) -> None:
        with self._lock:
            # A file without generation is dropped when the next comes: its inode number may have
            # been freed and reused by another process's file.
            sure = [known for known in self._newest if known.generation is not None]
            self._newest = deque([*sure, file], OWN_FILES)
            self._bpf.update_section(".data.own", section(self._newest))


def section(files: Collection[OwnFile]) -> Any:
    """Return the content of .data.own for at most OWN_FILES `files`, the newest (last) first.

    The programs compare from the start, and the newest is written most.
    """
    content = (shared.OWN_FILE.ctype * OWN_FILES)()
    for place, file in enumerate(reversed([*files])):
        known = file.generation is not None
        content[place] = (file.inode, file.dev, file.generation or 0, known)
    return content
