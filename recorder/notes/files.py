# SPDX-License-Identifier: Apache-2.0
"""Recording files: checks that the backend can, and writes notes of the mount points.

FILE_NAME records hold a file's path within its file system; readers put the mount point before
it. Notes say what is mounted where, in the mount namespace of the recorder.
"""

import time
from pathlib import Path

from biotrail.recorder.host.device_mounts import host_mounts, parse_mount
from biotrail.recorder.notes.hotplug import Periodic
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.probes.backend import Probes
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.payloads import Header, MountsNote

PERIOD_NS = 500_000_000
"""Time between two readings of mountinfo, at least."""
MOUNTS_PER_DEVICE = 64
"""Mounts of parts of one file system (bind mounts, subvolumes) that are recorded."""


class FileWatch:
    """A session's part in recording files: a header entry, and notes of mounts."""

    def __init__(self, wanted: bool, probes: Probes) -> None:
        """Find out what the backend records of files, and set `lacking` and `facts`.

        Raises ProbeError: files are wanted, and the backend records none on any kernel; where only
        this kernel is to blame, `lacking` says so, and recording goes on without.
        """
        self.lacking = ""
        """Message saying why files are not recorded though wanted; else ""."""
        self.facts: Header = {}
        """For the log's header: {"files": {"direct": whether files of iomap's direct I/O are
        recorded, "ways": file_ways.names_of}}, or {} where files are not recorded."""
        self._mounts: MountWatch | None = None
        if not wanted:
            return
        if not probes.capabilities.files:
            raise ProbeError("this backend records no files: use --backend core, or no --files")
        self.lacking = probes.files.lacking
        if probes.files.recorded:
            self._mounts = MountWatch(of_calls="time" in probes.path.parts)
            self.facts = {
                "files": {
                    "direct": probes.files.iomap_end_io != 0,
                    "ways": list(probes.files.ways),
                }
            }

    def jobs(self, writer: WriterThread) -> list[Job]:
        """Return the jobs that note new mounts, if there are any then; [] without files."""
        return [] if self._mounts is None else [writer.note("mounts", self._mounts.changes)]

    def look(self, writer: WriterThread, now_ns: int) -> None:
        """Queue the job for new mounts if a look is due at `now_ns` and the queue has room."""
        if self._mounts is not None and self._mounts.due(now_ns):
            for job in self.jobs(writer):
                writer.offer(job)


class MountWatch(Periodic):
    """Finds mounts that are new or changed since the last look."""

    def __init__(self, proc: Path = Path("/proc"), *, of_calls: bool = False) -> None:
        """Begin without mounts, so that the first `changes` returns all of them.

        of_calls: files of calls are recorded, too, which may be on file systems without a device
        (proc, tmpfs, devpts, nfs).
        """
        super().__init__(PERIOD_NS)
        self._proc, self._of_calls = proc, of_calls
        self._lines: list[str] = []
        self._known: MountsNote = {}

    def changes(self) -> MountsNote | None:
        """Return a `mounts` note of new and changed file systems, and plan the next look.

        None: nothing is new. The first call returns all. One that is gone and comes back is new.
        """
        began = time.monotonic_ns()
        lines = host_mounts(str(self._proc))
        if lines == self._lines:
            self.schedule_next(began)
            return None
        self._lines = lines
        now = self._mounts(lines)
        fresh = {dev: pairs for dev, pairs in now.items() if self._known.get(dev) != pairs}
        self._known = now
        self.schedule_next(began)
        return fresh or None

    def _mounts(self, listed: list[str]) -> MountsNote:
        """Return mounts by lines of mountinfo(5), of all file systems or of those with a device.

        Of each directory in a file system the first mount point; if the whole file system is
        mounted anywhere, its first such mount alone.
        """
        lines = _read(self._proc / "filesystems").splitlines()
        without_device = {line.split()[-1] for line in lines if line.startswith("nodev")}
        left_out = set() if self._of_calls else without_device
        by_device: MountsNote = {}
        for line in listed:
            mount = parse_mount(line)
            if mount is None or mount.fstype in left_out:
                continue
            pairs = by_device.setdefault(str(mount.st_dev), [])
            roots = {root for root, _ in pairs}
            if mount.root == "/" and "/" not in roots:
                pairs[:] = [["/", mount.point]]  # covers every path, so mounts of parts go
            elif not roots & {"/", mount.root} and len(pairs) < MOUNTS_PER_DEVICE:
                pairs.append([mount.root, mount.point])
        return by_device


def _read(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8", "surrogateescape")
    except OSError:
        return ""
