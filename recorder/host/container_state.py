# SPDX-License-Identifier: Apache-2.0
"""Names of containers and pods, from files that the kubelet and the runtimes keep; no daemon.

| who | file, below / |
|---|---|
| kubelet (pkg/kubelet/kuberuntime: BuildPodLogsDirectory, legacyLogSymlink) | \
`var/log/pods/NAMESPACE_POD_UID/`, `var/log/containers/POD_NAMESPACE_CONTAINER-ID.log` |
| Docker (moby/container/container.go) | `var/lib/docker/containers/ID/config.v2.json` |
| Podman, CRI-O (containers/storage/containers.go) | \
`var/lib/containers/storage/DRIVER-containers/containers.json`, `volatile-containers.json` |
| containerd (core/runtime/v2/bundle.go) | \
`run/containerd/io.containerd.runtime.v2.task/NAMESPACE/ID/config.json`, also below `run/k3s` |

These files hold secrets (environments, mounts) beside names; nothing but names leaves this module.
It imports the standard library alone, as a process with little else reads the files.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

_ID = re.compile(r"[0-9a-f]{64}")
_POD_DIRECTORY = re.compile(r"([^_/]+)_([^_/]+)_([^_/]+)")
"""NAMESPACE_POD_UID: none of the three can hold an underscore."""
_LINK = re.compile(r"([^_/]+)_([^_/]+)_([^_/]+)-([0-9a-f]{64})\.log")
_CRI_NAME = re.compile(r"k8s_([^_]+)_([^_]+)_([^_]+)_([^_]+)_\d+")
"""Name that dockershim, cri-dockerd and CRI-O give: k8s_CONTAINER_POD_NAMESPACE_UID_ATTEMPT; the
pod's sandbox is called POD."""
_ROOTS = ("var/lib/docker", "var/lib/containers", "run/containers", "run/containerd")
_KUBELET = ("var/log/pods", "run/k3s")
_BUNDLES = ("run/containerd", "run/k3s/containerd")
_MOST_BYTES = 64 << 20
"""Longest file that is read."""
_MOST_CHARACTERS = 255
_CRI = "io.kubernetes.cri."
"""Prefix of the annotations that containerd's CRI sets."""


def present(root: str = "/") -> bool:
    """Return whether this machine has files of any of these programs."""
    return any(os.path.isdir(os.path.join(root, one)) for one in (*_ROOTS, *_KUBELET))


def resolve(
    containers: Iterable[str], pods: Iterable[str], root: str = "/"
) -> dict[str, dict[str, dict[str, str]]]:
    """Return what is known of containers (by id) and pods (by uid), as a `containers` note has it.

    That is {"containers": {id: {"name", "pod" (uid), "runtime"}}, "pods": {uid: {"name",
    "namespace"}}}; what is not known has no key. A container's pod is among the pods. Files that
    cannot be read, or are not what they should be, tell nothing. root: directory that stands for /.
    """
    look = _Look({one for one in containers if _ID.fullmatch(one)}, set(pods), root)
    look.read_kubelet()
    for read in (look.read_docker, look.read_storage, look.read_bundles):
        if look.wanted - look.containers.keys():
            read()
    return {"containers": look.containers, "pods": look.pods}


class _Look:
    def __init__(self, containers: set[str], pods: set[str], root: str) -> None:
        self.wanted, self._wanted_pods, self._root = containers, pods, root
        self.containers: dict[str, dict[str, str]] = {}
        self.pods: dict[str, dict[str, str]] = {}

    def _add(self, container: str, name: Any, runtime: str | None, pod: str | None = None) -> None:
        """Take a container's name, unless it has one or the name is none."""
        if (text := _text(name)) is None or container in self.containers:
            return
        facts = {"name": text, "runtime": _text(runtime), "pod": _text(pod)}
        self.containers[container] = {k: v for k, v in facts.items() if v is not None}

    def _add_pod(self, uid: Any, name: Any, namespace: Any) -> str | None:
        """Take a pod's name and namespace; return its uid, None for what is none."""
        known = _text(uid), _text(name), _text(namespace)
        if known[0] is None or known[1] is None or known[2] is None:
            return None
        self.pods.setdefault(known[0], {"name": known[1], "namespace": known[2]})
        return known[0]

    def read_kubelet(self) -> None:
        """Take the names of pods' directories and of containers' links, which are not followed."""
        uids: dict[tuple[str, str], list[str]] = {}
        for entry in _names(f"{self._root}/var/log/pods"):
            if found := _POD_DIRECTORY.fullmatch(entry):
                namespace, pod, uid = found.groups()
                uids.setdefault((namespace, pod), []).append(uid)
                if uid in self._wanted_pods:
                    self._add_pod(uid, pod, namespace)
        for entry in _names(f"{self._root}/var/log/containers"):
            found = _LINK.fullmatch(entry)
            if found is None or found[4] not in self.wanted:
                continue
            pod, namespace, container, number = found.groups()
            with suppress(OSError):
                target = os.readlink(f"{self._root}/var/log/containers/{entry}")
                for part in target.split("/"):
                    of_pod = _POD_DIRECTORY.fullmatch(part)
                    if of_pod and of_pod.groups()[:2] == (namespace, pod):
                        uids[namespace, pod] = [of_pod[3]]
            known = uids.get((namespace, pod), [])
            uid = self._add_pod(known[0], pod, namespace) if len(known) == 1 else None
            self._add(number, container, None, uid)

    def _add_named(self, number: str, name: Any, runtime: str, of_kubelet: str) -> None:
        """Take a name; `of_kubelet`: the runtime of one that a CRI made of others."""
        made = _CRI_NAME.fullmatch(name) if isinstance(name, str) else None
        if made is None:
            self._add(number, name, runtime)
            return
        container, pod, namespace, uid = made.groups()
        self._add(number, container, of_kubelet, self._add_pod(uid, pod, namespace))

    def read_docker(self) -> None:
        """Take names from Docker's files: `"Name": "/web"`."""
        given = _field(_json(f"{self._root}/etc/docker/daemon.json"), "data-root")
        place = given.lstrip("/") if isinstance(given, str) else "var/lib/docker"
        for number in self.wanted - self.containers.keys():
            config = _json(f"{self._root}/{place}/containers/{number}/config.v2.json")
            name = _field(config, "Name")
            if isinstance(name, str):
                self._add_named(number, name.removeprefix("/"), "docker", "docker")

    def read_storage(self) -> None:
        """Take names from the lists of containers/storage: `[{"id": …, "names": ["web"]}]`."""
        for where in ("var/lib/containers/storage", "run/containers/storage"):
            place = f"{self._root}/{where}"
            for driver in _names(place):
                if not driver.endswith("-containers"):
                    continue
                for file in ("containers.json", "volatile-containers.json"):
                    found = _json(f"{place}/{driver}/{file}")
                    for one in found if isinstance(found, list) else []:
                        number, names = _field(one, "id"), _field(one, "names")
                        known = number not in self.wanted or number in self.containers
                        if not known and isinstance(names, list) and names:
                            self._add_named(number, names[0], "podman", "cri-o")

    def read_bundles(self) -> None:
        """Take names from the annotations in the configurations that containerd gives to runc."""
        for place in _BUNDLES:
            tasks = f"{self._root}/{place}/io.containerd.runtime.v2.task"
            for namespace in _names(tasks):
                for number in self.wanted - self.containers.keys():
                    config = _json(f"{tasks}/{namespace}/{number}/config.json")
                    notes = _field(config, "annotations")
                    if _field(notes, "nerdctl/name") is not None:
                        self._add(number, _field(notes, "nerdctl/name"), "containerd")
                        continue
                    uid = self._add_pod(
                        _field(notes, f"{_CRI}sandbox-uid"),
                        _field(notes, f"{_CRI}sandbox-name"),
                        _field(notes, f"{_CRI}sandbox-namespace"),
                    )
                    sandbox = _field(notes, f"{_CRI}container-type") == "sandbox"
                    name = "POD" if sandbox else _field(notes, f"{_CRI}container-name")
                    self._add(number, name, "containerd", uid)


def _names(directory: str) -> Iterator[str]:
    with suppress(OSError):
        yield from os.listdir(directory)


def _json(path: str) -> Any:
    """Return the JSON in a regular file, which may be no link; None: there is none to read."""
    with suppress(OSError, ValueError, RecursionError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(path, flags), "rb") as file:
            status = os.fstat(file.fileno())
            if stat.S_ISREG(status.st_mode) and status.st_size <= _MOST_BYTES:
                return json.loads(file.read(_MOST_BYTES))
    return None


def _field(value: Any, key: str) -> Any:
    return value.get(key) if isinstance(value, dict) else None


def _text(value: Any) -> str | None:
    """Return a text that can be encoded, of bounded length; None: it is none, or empty."""
    if not isinstance(value, str) or not 0 < len(value) <= _MOST_CHARACTERS:
        return None
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
