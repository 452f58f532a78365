# SPDX-License-Identifier: Apache-2.0
"""Names of containers and pods by the files that the kubelet and the runtimes keep, laid out."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.host.container_state import present, resolve

A, B, C = "a1" * 32, "b2" * 32, "c3" * 32
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
SECRET = "hunter2"


def put(path: Path, value: Any) -> None:
    """Write JSON to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(value if isinstance(value, str) else json.dumps(value))


def kubelet(root: Path, name: str = "nginx", *, directory: bool = True) -> None:
    """A pod's directory of logs, and the link to a container's log in it."""
    log = root / f"var/log/pods/shop_web-0_{UID}/{name}/0.log"
    if directory:
        put(log, SECRET)
    link = root / f"var/log/containers/web-0_shop_{name}-{A}.log"
    link.parent.mkdir(parents=True)
    link.symlink_to(f"/var/log/pods/shop_web-0_{UID}/{name}/0.log")


def docker(root: Path, name: str = "/web", place: str = "var/lib/docker") -> None:
    put(
        root / place / "containers" / A / "config.v2.json",
        {"ID": A, "Name": name, "Config": {"Env": [f"PASSWORD={SECRET}"]}},
    )


def storage(root: Path, names: list[str], file: str = "overlay-containers/containers.json") -> None:
    entry = {"id": A, "names": names, "layer": "x", "metadata": SECRET}
    put(root / "var/lib/containers/storage" / file, [{"id": B}, entry, 7])


def bundle(root: Path, notes: Any, place: str = "run/containerd", of: str = "k8s.io") -> None:
    path = root / place / "io.containerd.runtime.v2.task" / of / A / "config.json"
    put(path, {"process": {"env": [SECRET]}, "annotations": notes})


CRI = {
    f"io.kubernetes.cri.{key}": value
    for key, value in {
        "container-type": "container",
        "container-name": "nginx",
        "sandbox-name": "web-0",
        "sandbox-namespace": "shop",
        "sandbox-uid": UID,
    }.items()
}
POD = {UID: {"name": "web-0", "namespace": "shop"}}
IN_POD = {"name": "nginx", "pod": UID}
PODMAN = {"name": "db", "runtime": "podman"}
CONTAINERD = {"runtime": "containerd"}


@pytest.mark.parametrize(
    ("lay", "container", "pods"),
    [
        (kubelet, IN_POD, POD),
        (lambda root: kubelet(root, directory=False), IN_POD, POD),
        (docker, {"name": "web", "runtime": "docker"}, {}),
        (
            lambda root: docker(root, f"/k8s_nginx_web-0_shop_{UID}_0"),
            *({**IN_POD, "runtime": "docker"}, POD),
        ),
        (lambda root: storage(root, ["db"]), PODMAN, {}),
        (
            lambda root: storage(root, ["db"], "vfs-containers/volatile-containers.json"),
            *(PODMAN, {}),
        ),
        (
            lambda root: storage(root, [f"k8s_POD_web-0_shop_{UID}_0"]),
            *({"name": "POD", "pod": UID, "runtime": "cri-o"}, POD),
        ),
        (lambda root: bundle(root, CRI), {**IN_POD, **CONTAINERD}, POD),
        (lambda root: bundle(root, CRI, "run/k3s/containerd"), {**IN_POD, **CONTAINERD}, POD),
        (
            lambda root: bundle(root, {**CRI, "io.kubernetes.cri.container-type": "sandbox"}),
            *({"name": "POD", "pod": UID, **CONTAINERD}, POD),
        ),
        (
            lambda root: bundle(root, {"nerdctl/name": "cache"}, of="default"),
            *({"name": "cache", **CONTAINERD}, {}),
        ),
    ],
)
def test_a_container_has_the_name_that_its_program_wrote(
    lay: Any, container: dict[str, str], pods: Any, tmp_path: Path
) -> None:
    # GIVEN the files of one program
    assert not present(str(tmp_path))
    lay(tmp_path)
    # WHEN a container is looked up
    found = resolve([A, C], [], str(tmp_path))
    # THEN it has its name, and nothing else of the files is passed on
    assert found == {"containers": {A: container}, "pods": pods}
    assert SECRET not in json.dumps(found)


def test_pods_without_containers_have_names(tmp_path: Path) -> None:
    # GIVEN a pod's directory / WHEN the pod is looked up by its uid / THEN it has its name
    kubelet(tmp_path)
    assert present(str(tmp_path))
    assert resolve([], [UID, "other"], str(tmp_path)) == {"containers": {}, "pods": POD}


def test_docker_data_may_lie_elsewhere_and_names_may_be_hostile(tmp_path: Path) -> None:
    # GIVEN Docker with its data elsewhere / WHEN looked up / THEN it is read there
    put(tmp_path / "etc/docker/daemon.json", {"data-root": "/srv/docker"})
    docker(tmp_path, place="srv/docker")
    assert resolve([A], [], str(tmp_path))["containers"][A]["name"] == "web"
    # GIVEN a name that no encoding has / WHEN looked up / THEN it can be encoded
    file = tmp_path / f"srv/docker/containers/{A}/config.v2.json"
    put(file, '{"Name": "/\\ud800\\u001b[2J"}')
    name = resolve([A], [], str(tmp_path))["containers"][A]["name"]
    assert name == "\ufffd\ufffd\ufffd\x1b[2J"


@pytest.mark.parametrize(
    "text",
    [
        *("", "{", "[]", "7", '"x"', "null", '{"Name": 7}', '{"Name": ""}', "[" * 100_000, "\xff"),
        json.dumps({"Name": "/" + "x" * 9999}),
        json.dumps({"Name": {"a": 1}}),
        json.dumps([{"id": ["a"], "names": ["web"]}, {"id": {}, "names": ["web"]}]),
    ],
)
def test_files_that_are_not_what_they_should_be_tell_nothing(text: str, tmp_path: Path) -> None:
    # GIVEN files with anything in them
    nothing: dict[str, Any] = {"containers": {}, "pods": {}}
    put(tmp_path / f"var/lib/docker/containers/{A}/config.v2.json", text)
    put(tmp_path / "var/lib/containers/storage/overlay-containers/containers.json", text)
    put(tmp_path / f"run/containerd/io.containerd.runtime.v2.task/x/{A}/config.json", text)
    # WHEN containers are looked up / THEN there are no names, and no error
    assert resolve([A], [], str(tmp_path)) == nothing


def test_links_pipes_and_paths_that_are_no_ids_are_not_read(tmp_path: Path) -> None:
    # GIVEN a container, then a link, and then a pipe, where its file should be
    docker(tmp_path)
    # WHEN a path is given as id THEN it is not read
    assert resolve([f"../containers/{A}"], [], str(tmp_path))["containers"] == {}
    path = tmp_path / "var/lib/docker/containers" / A / "config.v2.json"
    path.rename(tmp_path / "moved")
    path.symlink_to(tmp_path / "moved")
    # WHEN looked up / THEN the link is not followed, and nobody waits for the pipe
    assert resolve([A], [], str(tmp_path))["containers"] == {}
    path.unlink()
    os.mkfifo(path)
    assert resolve([A], [], str(tmp_path))["containers"] == {}
