# SPDX-License-Identifier: Apache-2.0
"""Queues the notes of a recording's surroundings: devices, cgroups and mounts that appear."""

from biotrail.recorder.notes.cgroups import CgroupLook
from biotrail.recorder.notes.cpus import CpuWatch
from biotrail.recorder.notes.files import FileWatch
from biotrail.recorder.notes.hotplug import DeviceWatch
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.schema.payloads import Device


class ChangeNotes:
    """Looks for changes when they are due; the writer thread does the looking."""

    def __init__(
        self,
        devices: list[Device],
        seen: dict[str, str],
        files: FileWatch,
        writer: WriterThread,
        cgroups: CgroupLook,
        cpus: CpuWatch | None = None,
    ) -> None:
        """Queue notes of all cgroups and, if files are recorded, of all mounts; wait for room.

        `devices`: the header's; `seen`: `hotplug.fingerprint` before these were looked up.
        """
        self._writer = writer
        self._devices = DeviceWatch(devices, seen)
        self._cgroups = cgroups
        self._files = files
        self._cpus = cpus
        for job in self._cgroup_jobs(always=True):
            writer.submit(job)
        for job in files.jobs(writer):
            writer.submit(job)

    def look(self, now_ns: int) -> None:
        """Queue a job for each kind (devices, cgroups, mounts) whose look is due at `now_ns`.

        The job is skipped until the next call if the writer's queue is full.
        """
        if self._devices.due(now_ns):
            self._writer.offer(self._writer.note("devices", self._devices.changes))
        if self._cgroups.watch.due(now_ns) or self._cgroups.containers.due():
            for job in self._cgroup_jobs(always=False):
                self._writer.offer(job)
        self._files.look(self._writer, now_ns)
        if self._cpus is not None and self._cpus.due(now_ns):
            self._writer.offer(self._writer.note("cpus", self._cpus.changes))

    def jobs(self) -> list[Job]:
        """Return the jobs that look for changes of every kind and write the notes, due or not."""
        return [
            self._writer.note("devices", self._devices.changes),
            lambda _log: self._cgroups.last(),
            *self._cgroup_jobs(always=False),
            *self._files.jobs(self._writer),
            *([self._writer.note("cpus", self._cpus.changes)] if self._cpus is not None else []),
        ]

    def _cgroup_jobs(self, *, always: bool) -> list[Job]:
        """Return the jobs that note new cgroups, then names of their containers and pods."""
        watch, containers = self._cgroups.watch, self._cgroups.containers
        return [
            self._writer.note("cgroups", lambda: watch.changes(always=always)),
            self._writer.note("containers", containers.changes),
        ]
