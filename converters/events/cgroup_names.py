# SPDX-License-Identifier: Apache-2.0
"""The names that people use for cgroups: of units, containers, pods and guests, by cgroup id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.schema.cgroup_paths import identity


@dataclass(frozen=True)
class CgroupName:
    """What a cgroup is, with the names that the log has for it. None: it is none, or not known."""

    unit: str | None = None
    slice: str | None = None
    runtime: str | None = None
    """Who runs the container or guest (schema.cgroup_paths.CgroupIdentity.runtime)."""
    container: str | None = None
    """Name of the container or guest; None also where only its id is known."""
    container_id: str | None = None
    """Its id; of what has no id but a name, that name."""
    monitor: bool = False
    """Whether it is the container's monitor."""
    pod: str | None = None
    """Name of the pod; None also where only its uid is known."""
    pod_uid: str | None = None
    namespace: str | None = None
    """Kubernetes namespace of the pod; None also where that is not known."""
    qos: str | None = None

    @property
    def kind(self) -> str:
        """What it is at the innermost: container, monitor, pod, unit, slice, or none of these."""
        if self.container_id is not None:
            return "monitor" if self.monitor else "container"
        found = (("pod", self.pod_uid), ("unit", self.unit), ("slice", self.slice))
        return next((kind for kind, value in found if value is not None), "none")

    def fields(self) -> dict[str, str | None]:
        """Return the columns of FIELDS, by name."""
        return {name: getattr(self, name) for name in FIELDS}


FIELDS = ("unit", "slice", "runtime", "container", "container_id", "pod", "pod_uid", "namespace")
"""Columns that say what a cgroup is, beside its path."""
_NOTHING = CgroupName()


class CgroupNames:
    """Names by a cgroup's id: from its path, and from notes of containers and pods.

    Both grow while a log is read, so the name of a cgroup may become known after its first I/O.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        """paths: {cgroup id: path}, which is looked at, not copied."""
        self._paths = paths
        self.changes = 0
        """Counts the notes that told of paths or names."""
        self._containers: dict[str, Mapping[str, Any]] = {}
        self._pods: dict[str, Mapping[str, Any]] = {}

    def add(self, note: Mapping[str, Any]) -> None:
        """Add the facts of a `containers` note (docs/log-format.md)."""
        self._containers.update(note.get("containers", {}))
        self._pods.update(note.get("pods", {}))

    def knows(self, cgroup: int) -> bool:
        """Return whether the cgroup's path is known."""
        return cgroup in self._paths

    def name(self, cgroup: int) -> CgroupName:
        """Return what the cgroup with this id is; nothing where its path is not known."""
        path = self._paths.get(cgroup)
        if path is None:
            return _NOTHING
        what = identity(path)
        facts = self._containers.get(what.container or "", {})
        own = None if what.has_id else what.container
        uid = what.pod or facts.get("pod")
        pod = self._pods.get(uid or "", {})
        return CgroupName(
            unit=what.unit,
            slice=what.slice,
            runtime=what.runtime or facts.get("runtime"),
            container=facts.get("name", own),
            container_id=what.container,
            monitor=what.monitor,
            pod=pod.get("name"),
            pod_uid=uid,
            namespace=pod.get("namespace"),
            qos=what.qos,
        )
