# SPDX-License-Identifier: Apache-2.0
r"""What a cgroup is, by its path: a unit of systemd, a container, a pod, a guest.

The forms are those in which these programs name their cgroups, alike in v1 and v2:

| who | cgroupfs | systemd |
|---|---|---|
| systemd (systemd/src/basic/cgroup-util.c) | | `/A.slice/A-B.slice/UNIT`, `_UNIT`; \
`…/user@UID.service/…/UNIT` |
| Docker (moby/daemon/oci_linux.go, WithCgroups) | `/docker/ID` | `/system.slice/docker-ID.scope` |
| Podman (libpod/container_internal_linux.go, pod_internal.go) | `/libpod_parent/libpod-ID`, \
`/libpod_parent/POD/libpod-ID` | `/machine.slice/libpod-ID.scope`, \
`…/machine-libpod_pod_POD.slice/…`; `libpod-payload-ID` (split) |
| containerd, nerdctl (pkg/cmd/container) | `/NAMESPACE/ID` | `/system.slice/nerdctl-ID.scope` |
| kubelet (pkg/kubelet/cm: cgroup_manager_linux.go, pod_container_manager_linux.go) | \
`/kubepods/QOS/podUID/…` | `/kubepods.slice/kubepods-QOS.slice/kubepods-QOS-podU_I_D.slice/…` |
| containerd's CRI (internal/cri/util), CRI-O (internal/config/cgmgr) | `…/ID`, `…/crio-ID` | \
`…/cri-containerd-ID.scope`, `…/crio-ID.scope`; unresolved `…:cri-containerd:ID` |
| LXC (src/lxc/cgroups/cgfsng.c), LXD, Incus, Proxmox | `/lxc.payload.NAME`, `/lxc/NAME` | |
| libvirt (src/util/vircgroup.c, virsystemd.c) | `/machine/qemu-1-NAME.libvirt-qemu`, \
`/libvirt/qemu/NAME` | `/machine.slice/machine-qemu\x2d1\x2dNAME.scope` |
| systemd-nspawn; Proxmox' QEMU | | `machine-NAME.scope`, `systemd-nspawn@NAME.service`; \
`/qemu.slice/VMID.scope` |
"""

import re
from dataclasses import dataclass
from functools import lru_cache

_ID = r"[0-9a-f]{64}"
_UID = r"[0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32}"
"""Of a pod; without hyphens that of a static pod, which is a hash."""
_RUNTIMES = {
    "docker": "docker",
    "libpod": "podman",
    "libpod-payload": "podman",
    "libpod-conmon": "podman",
    "nerdctl": "containerd",
    "cri-containerd": "containerd",
    "crio": "cri-o",
    "crio-conmon": "cri-o",
}
"""Prefix of a container's cgroup → who runs it."""
_PREFIXED = re.compile(rf"({'|'.join(_RUNTIMES)})-({_ID})(?:\.scope)?")
_UNRESOLVED = re.compile(rf"([^:]+\.slice):({'|'.join(_RUNTIMES)}):({_ID})")
"""What a manager of cgroupfs makes of a path that was meant for systemd: SLICE:PREFIX:ID."""
_BARE = re.compile(_ID)
_POD_SLICE = re.compile(rf"(?:.+-)?kubepods(?:-(besteffort|burstable))?-pod({_UID})\.slice")
_POD = re.compile(rf"pod({_UID})")
_PODMAN_POD = re.compile(rf"(?:.+-)?libpod_pod_({_ID})\.slice")
_LXC = re.compile(r"lxc\.(payload|monitor)\.(.+)")
_LIBVIRT = re.compile(r"(?:(qemu|lxc)-\d+-)?(.+)\.libvirt-(qemu|lxc)")
_MACHINE = re.compile(r"machine-(.+)\.scope")
_NSPAWN = re.compile(r"systemd-nspawn@(.+)\.service")
_DOMAIN = re.compile(r"(qemu|lxc)-(?:\d+-)?(.+)")
_ESCAPED = re.compile(r"\\x([0-9a-f]{2})")
_UNIT = r"_?[^/]+\.(?:service|scope|socket|mount|swap)"
_SLICES = r"(?:[^/:]*\.slice/)*"
_SYSTEMD = re.compile(rf"({_SLICES})(?:_?user@\d+\.service/{_SLICES}({_UNIT})/|({_UNIT})/)?")
_CONTAINERD_NAMESPACES = ("default", "k8s.io", "moby")
"""Of containerd, as it and its clients call theirs."""
ROOT_SLICE = "-.slice"
_SUFFIXED = re.compile(
    r".+\.(?:service|socket|device|mount|automount|swap|target|path|timer|slice|scope)"
)


def unit_name(name: str) -> str:
    """Return a unit's whole name: without a suffix of systemd's it is a service, as elsewhere."""
    return name if _SUFFIXED.fullmatch(name) else f"{name}.service"


def and_above(path: str) -> list[str]:
    """Return a cgroup's path and those of the cgroups above it, without the root's, from below."""
    parts = [part for part in path.split("/") if part]
    return ["/" + "/".join(parts[:end]) for end in range(len(parts), 0, -1)]


@dataclass(frozen=True)
class CgroupName:
    """What a cgroup is, with the names that the log has for it. None: it is none, or not known."""

    unit: str | None = None
    """Unit of the host's systemd, or of a user's (in `user@UID.service`)."""
    slice: str | None = None
    """Slice of the host's systemd that the unit is in; a user's units: `user-UID.slice`."""
    runtime: str | None = None
    """Who runs the innermost container or guest: docker, podman, containerd, cri-o, lxc, qemu,
    nspawn. None also for containers of which neither path nor notes say it."""
    container_id: str | None = None
    """The container's id; of LXC, nspawn, and a guest of QEMU its name."""
    monitor: bool = False
    """Whether it is the cgroup of the container's monitor (conmon, lxc), not of its processes."""
    pod_uid: str | None = None
    """A Kubernetes pod's uid, with hyphens; of Podman the pod's id."""
    qos: str | None = None
    """Of a Kubernetes pod: guaranteed, burstable or besteffort."""
    container: str | None = None
    """Name of the container or guest; None also where only its id is known."""
    pod: str | None = None
    """Name of the pod; None also where only its uid is known."""
    namespace: str | None = None
    """Kubernetes namespace of the pod; None also where that is not known."""

    @property
    def has_id(self) -> bool:
        """Whether `container_id` is an id, which a runtime has a name for."""
        return self.container_id is not None and _BARE.fullmatch(self.container_id) is not None

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


@lru_cache(maxsize=1 << 16)
def identity(path: str) -> CgroupName:
    """Return what a cgroup is by its path alone, from its hierarchy's root, as /proc/PID/cgroup.

    Alike for v1 and v2. Of nested containers it is the innermost one, of nested systemds the
    host's: a unit inside of a container is no unit of the host.
    """
    parts = [part for part in path.split("/") if part]
    # By systemd's rule: slices, then the unit; of a user's manager the unit in that.
    found = _SYSTEMD.match("/".join([*parts, ""]))
    slices, own, unit = found.groups() if found else ("", None, None)
    slice_ = slices.split("/")[-2].removeprefix("_") if slices else None
    unit = (own or unit or "").removeprefix("_") or None
    slice_ = slice_ or (ROOT_SLICE if unit else None)
    runtime = container = pod = qos = None
    monitor = False
    for at, part in enumerate(parts):
        parent, above = parts[at - 1] if at else "", parts[:at]
        unresolved = _UNRESOLVED.fullmatch(part)
        in_pod = _pod(unresolved[1], "", []) if unresolved else _pod(part, parent, above)
        if in_pod is not None:
            pod, qos = in_pod
        if in_pod is None or unresolved:
            inner = _container(part, parent, above, container is not None)
            if inner is not None:
                runtime, container, monitor = inner
    return CgroupName(unit, slice_, runtime, container, monitor, pod, qos)


def _unescaped(name: str) -> str:
    r"""Return a unit's name with systemd's `\xHH` as what they stand for; not UTF-8: as it is."""
    if not _ESCAPED.search(name):
        return name
    raw = _ESCAPED.sub(lambda m: chr(int(m[1], 16)), name.encode("utf-8").decode("latin-1"))
    try:
        return raw.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return name


def _pod(part: str, parent: str, above: list[str]) -> tuple[str, str | None] | None:
    """Return (uid, QoS class) of the pod whose component this is; None: it is no pod's."""
    if found := _POD_SLICE.fullmatch(part):
        return found[2].replace("_", "-"), found[1] or "guaranteed"
    if "kubepods" in above and (found := _POD.fullmatch(part)):
        return found[1], parent if parent in ("burstable", "besteffort") else "guaranteed"
    if found := _PODMAN_POD.fullmatch(part):
        return found[1], None
    if parent == "libpod_parent" and _BARE.fullmatch(part):
        return part, None
    return None


def _container(
    part: str, parent: str, above: list[str], nested: bool
) -> tuple[str | None, str, bool] | None:
    """Return (runtime, id or name, whether it is the monitor) of a container or guest; None: none.

    nested: there is one above.
    """
    runtime: str | None = None
    outermost = len(above) == 1 or nested
    if found := _PREFIXED.fullmatch(part):
        return _RUNTIMES[found[1]], found[2], found[1].endswith("-conmon")
    if found := _UNRESOLVED.fullmatch(part):
        return _RUNTIMES[found[2]], found[3], False
    if _BARE.fullmatch(part):
        runtime = "docker" if parent == "docker" else None
        if len(above) == 1 and parent in _CONTAINERD_NAMESPACES:
            runtime = "containerd"
        return runtime, part, False
    if found := _LXC.fullmatch(part):
        return "lxc", found[2], found[1] == "monitor"
    if parent in ("lxc", "lxc.payload", "lxc.monitor") and outermost:
        return "lxc", part, parent == "lxc.monitor"
    if found := _LIBVIRT.fullmatch(part):
        return found[3], found[2], False
    if above[-2:] in (["libvirt", "qemu"], ["libvirt", "lxc"]) and len(above) == 2:
        return parent, part, False
    if parent == "qemu.slice" and part.endswith(".scope"):
        return "qemu", part.removesuffix(".scope"), False
    if found := _MACHINE.fullmatch(part):
        name = _unescaped(found[1])
        domain = _DOMAIN.fullmatch(name)
        return (domain[1], domain[2], False) if domain else ("nspawn", name, False)
    if found := _NSPAWN.fullmatch(part):
        return "nspawn", _unescaped(found[1]), False
    return None
