# SPDX-License-Identifier: Apache-2.0
"""The names that people use for cgroups: of units, containers, pods and guests, by cgroup id."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from biotrail.recorder.schema.cgroup_paths import and_above, identity, unit_name


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
        self.changes += 1

    def knows(self, cgroup: int) -> bool:
        """Return whether the cgroup's path is known."""
        return cgroup in self._paths

    def name(self, cgroup: int) -> CgroupName:
        """Return what the cgroup with this id is; nothing where its path is not known."""
        path = self._paths.get(cgroup)
        return _NOTHING if path is None else self.of_path(path)

    def of_path(self, path: str) -> CgroupName:
        """Return what the cgroup at a path is, whether it is known by an id or not."""
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


_SHORT_ID = 12
"""Least length of a container's id that is cut, as runtimes show it."""


@dataclass(frozen=True)
class NamedCgroups:
    """Cgroups that are chosen by what they are, as reports name them, and all below."""

    units: tuple[str, ...] = ()
    """Units of systemd, slices among them; without a suffix services."""
    containers: tuple[str, ...] = ()
    """Containers and guests, by name, or by id of at least 12 characters; not their monitors."""
    pods: tuple[str, ...] = ()
    """Pods, as NAMESPACE/NAME, or by uid (of Podman: id)."""

    def __bool__(self) -> bool:
        return bool(self.units or self.containers or self.pods)

    def options(self) -> tuple[str, ...]:
        """Return the names as options, such as `--unit db.service`."""
        kinds = (("unit", self.units), ("container", self.containers), ("pod", self.pods))
        return tuple(f"--{kind} {name}" for kind, names in kinds for name in names)

    def borne_by(self, what: CgroupName) -> tuple[str, ...]:
        """Return those of `options` whose name the cgroup bears itself."""
        unit = what.unit or what.slice
        found = [f"--unit {name}" for name in self.units if unit and unit_name(name) == unit]
        if what.container_id is not None and not what.monitor:
            for name in self.containers:
                cut = len(name) >= _SHORT_ID and what.container_id.startswith(name)
                if cut or name in (what.container, what.container_id):
                    found.append(f"--container {name}")
        if what.pod_uid is not None:
            known = {what.pod_uid, f"{what.namespace}/{what.pod}" if what.pod else what.pod_uid}
            found += [f"--pod {name}" for name in self.pods if name in known]
        return tuple(found)

    def holds(self, path: str, names: CgroupNames) -> bool:
        """Return whether the cgroup at `path`, or one above it, bears one of the names."""
        return any(self.borne_by(names.of_path(one)) for one in and_above(path))

    def may_hold(self, path: str, names: CgroupNames) -> bool:
        """Return whether the cgroup at `path` may be held, but has no name to say so."""
        return any(
            (self.containers and what.container_id is not None and what.container is None)
            or (self.pods and what.pod_uid is not None and what.pod is None)
            for what in map(names.of_path, and_above(path))
        )


NO_NAMED = NamedCgroups()
"""None are chosen."""
