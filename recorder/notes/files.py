# SPDX-License-Identifier: Apache-2.0
"""Recording files: whether the backend can, and where file systems are mounted.

The kernel tells a file's path within its file system; the mount point goes before it. What is
mounted where is told in notes, in the mount namespace of the recorder.
"""

import time
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from biotrail.recorder.host.device_mounts import parse_mount
from biotrail.recorder.notes.hotplug import Periodic
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.file_maps import Files
from biotrail.recorder.schema.errors import ProbeError

PERIOD_NS = 500_000_000
MOUNTS_PER_DEVICE = 64


@runtime_checkable
class TellsFiles(Protocol):
    """A backend that records whose pages bios carry."""

    @property
    def files(self) -> Files:
        """What of them is recorded; once open."""


class FileWatch:
    """What a session does for files, where they are wanted and the backend tells them."""

    def __init__(self, wanted: bool, probes: object) -> None:
        """`probes`: open. Raises ProbeError: no such backend."""
        self.lacking = ""
        """Why they are not recorded though wanted."""
        self.facts: dict[str, Any] = {}
        """What the header says of them: `direct`, whether those of iomap's direct I/O too."""
        self._mounts: MountWatch | None = None
        if not wanted:
            return
        if not isinstance(probes, TellsFiles):
            raise ProbeError("this backend records no files: use --backend core, or no --files")
        self.lacking = probes.files.lacking
        if probes.files.recorded:
            self._mounts = MountWatch()
            self.facts = {"files": {"direct": probes.files.iomap_end_io != 0}}

    def jobs(self, writer: WriterThread) -> list[Job]:
        """What writes where file systems are mounted, if that is news."""
        return [] if self._mounts is None else [writer.note("mounts", self._mounts.changes)]

    def look(self, writer: WriterThread, now_ns: int) -> None:
        """Have it written when it is time to look again."""
        if self._mounts is not None and self._mounts.due(now_ns):
            for job in self.jobs(writer):
                writer.offer(job)


class MountWatch(Periodic):
    """Tells where file systems are mounted that were not told before."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        super().__init__(PERIOD_NS)
        self._proc = proc
        self._text = ""
        self._known: dict[str, list[list[str]]] = {}

    def changes(self) -> dict[str, Any] | None:
        """A `mounts` note {s_dev: [[root, mount point], …]} of what is new; None: nothing is."""
        began = time.monotonic_ns()
        text = _read(self._proc / "self" / "mountinfo")
        if text == self._text:
            self.looked(began)
            return None
        self._text = text
        now = self._mounts(text)
        fresh = {dev: pairs for dev, pairs in now.items() if self._known.get(dev) != pairs}
        self._known = now
        self.looked(began)
        return fresh or None

    def _mounts(self, text: str) -> dict[str, list[list[str]]]:
        lines = _read(self._proc / "filesystems").splitlines()
        without_device = {line.split()[-1] for line in lines if line.startswith("nodev")}
        found: dict[str, list[list[str]]] = {}
        for line in text.splitlines():
            mount = parse_mount(line)
            if mount is None or mount.fstype in without_device:
                continue
            pairs = found.setdefault(str(mount.st_dev), [])
            known = {root for root, _ in pairs}
            if mount.root == "/" and "/" not in known:
                pairs[:] = [["/", mount.point]]  # all of it: what shows a part adds nothing
            elif not known & {"/", mount.root} and len(pairs) < MOUNTS_PER_DEVICE:
                pairs.append([mount.root, mount.point])
        return found


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
