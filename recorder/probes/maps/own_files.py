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
        """Begin without files. `bpf` is loaded by the time of the first `add`."""
        self._bpf = bpf
        self._newest: deque[OwnFile] = deque(maxlen=OWN_FILES)
        self._lock = threading.Lock()

    def add(self, file: OwnFile) -> None:
        """Add a file to those that the programs know as the recorder's. Any thread may call.

        Beyond OWN_FILES the oldest is dropped. Raises RefusedError.
        """
        with self._lock:
            # A file without generation is dropped when the next comes: its inode number may have
            # been freed and reused by another process's file.
            sure = [known for known in self._newest if known.generation is not None]
            self._newest = deque([*sure, file], OWN_FILES)
            self._bpf.update_section(".data.own", section(self._newest))


def section(files: Collection[OwnFile]) -> Any:
    """Return the content of .data.own for at most OWN_FILES `files` (oldest first), reversed.

    So the newest comes first: the programs compare from the start, and it is written most. A
    generation that is not known is 0, and a member says so. Slots without a file are 0.
    """
    content = (shared.OWN_FILE.ctype * OWN_FILES)()
    for place, file in enumerate(reversed([*files])):
        known = file.generation is not None
        content[place] = (file.inode, file.dev, file.generation or 0, known)
    return content
