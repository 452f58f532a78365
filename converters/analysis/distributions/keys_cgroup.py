# SPDX-License-Identifier: Apache-2.0
"""Keys that group I/O by the cgroup that is charged for it, and by what that cgroup is."""

from collections.abc import Mapping

import numpy as np

from biotrail.converters.analysis.distributions.samples import Samples
from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import I64, Lifecycles
from biotrail.recorder.schema.cgroup_names import CgroupName

Name = Mapping[str, str | int | None]


class ByCgroup:
    """Key: the cgroup that is charged for the I/O."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._known: dict[int, int] = {}
        self._ids: list[int] = []

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key."""
        ids, _, place = distinct_values(window.bios.cgroup)
        new = [self._code(one) for one in ids.view(np.uint64).tolist()]
        return np.array(new, dtype=np.int64)[place]

    def _code(self, one: int) -> int:
        """Return the code of a cgroup id; a new id gets the next code."""
        code = self._known.setdefault(one, len(self._ids))
        if code == len(self._ids):
            self._ids.append(one)
        return code

    def name(self, code: int) -> Name:
        """See Key. cgroup: path, None if not in the log. cgroup_id: 0 if not known.

        Beside them what it is: the fields of CgroupName, and its kind as `cgroup_kind`.
        """
        one, names = self._ids[code], self._context.cgroup_names
        path = self._context.cgroups.get(one)
        kind = "not known" if path is None else names.name(one).kind
        fields = names.name(one).fields()
        return {"cgroup": path, "cgroup_id": one, **fields, "cgroup_kind": kind}


class _ByIdentity(ByCgroup):
    """Key: what the cgroup is: all cgroups with the same name are one group.

    Codes are of cgroups, as a path, or a container's name, may become known after the first I/O.
    `canonical` maps them to the first code of the same group. `cgroup_kind` in a name says whether
    the cgroup has such a name ("none": it has none; "not known": its path is not known).
    """

    fields: tuple[str, ...]
    """Fields of CgroupName that are the group's name."""
    kind: str

    def __init__(self, context: Context) -> None:
        """Start without cgroups. context: the log's, whose names grow while it is read."""
        super().__init__(context)
        self._first: list[int] = []
        """First code of each code's group, by what was known then: see `_known_at`."""
        self._known_at = (-1, -1)

    def codes(self, window: Lifecycles, samples: Samples) -> I64:
        """See Key. Of cgroups that are known to be the same group it is the first one's code."""
        found, place = np.unique(super().codes(window, samples), return_inverse=True)
        firsts = np.array([self.canonical(code) for code in found.tolist()], dtype=np.int64)
        return firsts[place]

    def canonical(self, code: int) -> int:
        """Return the first code of the group of the cgroup with `code`, by what is known now."""
        known = self._context.cgroup_names.changes, len(self._ids)
        if known != self._known_at:
            first: dict[tuple[str | int | None, ...], int] = {}
            self._first = [
                first.setdefault(tuple(self.name(one).values()), one)
                for one in range(len(self._ids))
            ]
            self._known_at = known
        return self._first[code]

    def name(self, code: int) -> Name:
        """See Key. The fields are `fields`, and `cgroup_kind`."""
        one, names = self._ids[code], self._context.cgroup_names
        named = names.name(one)
        found = {field: getattr(named, field) for field in self.fields}
        kind = self._kind(named) if names.knows(one) else "not known"
        return {**found, "cgroup_kind": kind}

    def _kind(self, named: CgroupName) -> str:
        """Return `kind` if the cgroup has such a name, else "none"."""
        return self.kind if any(getattr(named, field) for field in self.fields) else "none"


class ByUnit(_ByIdentity):
    """Key: the unit of systemd, and the slice that it is in."""

    fields = ("unit", "slice")
    kind = "unit"

    def _kind(self, named: CgroupName) -> str:
        """Return "unit", "slice" (a slice itself, without a unit) or "none"."""
        return "unit" if named.unit else "slice" if named.slice else "none"


class ByContainer(_ByIdentity):
    """Key: the innermost container or guest; its monitor is a group of its own."""

    fields = ("container", "container_id", "runtime", "pod", "pod_uid", "namespace")
    kind = "container"

    def _kind(self, named: CgroupName) -> str:
        """Return "container", "monitor", "pod" (a pod itself, without a container) or "none"."""
        return named.kind if named.kind in ("container", "monitor", "pod") else "none"


class ByPod(_ByIdentity):
    """Key: the pod, of Kubernetes or Podman."""

    fields = ("pod", "namespace", "pod_uid")
    kind = "pod"


class ByNamespace(_ByIdentity):
    """Key: the Kubernetes namespace of the pod."""

    fields = ("namespace",)
    kind = "namespace"

    def _kind(self, named: CgroupName) -> str:
        """Return "namespace", "not known" (of a pod whose namespace is not known) or "none"."""
        if named.namespace is None:
            return "none" if named.qos is None else "not known"
        return "namespace"
