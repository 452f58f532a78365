# SPDX-License-Identifier: Apache-2.0
"""What share/kubernetes runs, run by podman with the same rights."""

import os
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogReader
from tests.container.conftest import HERE, Podman
from tests.support.manifests import containers
from tests.support.record_command import started, wait_until

SPECS = {name: (container, pod) for name, container, pod in containers()}


def options(name: str, places: dict[str, Path]) -> list[str]:
    """Podman's options for a container of the manifests. places: instead of its volumes."""
    container, pod = SPECS[name]
    context = container["securityContext"]
    found = ["--cap-drop=all", "--security-opt=no-new-privileges", "--read-only"]
    found += ["--read-only-tmpfs=false", "--security-opt=unmask=/sys/dev/block"]
    # RuntimeDefault lets bpf(2) pass with CAP_BPF; podman's own profile does so in newer versions.
    found.append("--security-opt=seccomp=unconfined")
    if added := context["capabilities"].get("add"):
        found.append(f"--cap-add={','.join(added)}")
    if pod.get("hostPID"):
        found.append("--pid=host")
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    for mount in container.get("volumeMounts", []):
        given: Any = places.get(mount["name"]) or volumes[mount["name"]]["hostPath"]["path"]
        closed = ":ro" if mount.get("readOnly") else ""
        found.append(f"--volume={given}:{mount['mountPath']}{closed}")
    return found


def test_recorded_logs_are_shipped(container: Podman, tmp_path: Path) -> None:
    # GIVEN the node's directories
    names = ("logs", "tmp", "pods", "containers", "archive")
    places = {name: tmp_path / name for name in names}
    for place in places.values():
        place.mkdir(mode=0o700)
    record, ship = "biotrail-record/record", "biotrail-record/ship"
    # WHEN the recorder runs for two seconds beside a load of the host
    load = f"while :; do dd if=/dev/zero of={tmp_path}/load bs=1M count=4 conv=fsync; done"
    with started(["sh", "-c", load], stderr=subprocess.DEVNULL):
        arguments = SPECS[record][0]["args"]
        container(*options(record, places), "--", *arguments, "--duration", "2s")
    # THEN there is a whole log, by this host's name
    (path,) = places["logs"].iterdir()
    assert path.name.startswith("node-") and path.stat().st_mode & 0o777 == 0o600
    with LogReader(path) as log:
        assert log.header["host"]["name"] == os.uname().nodename
    # AND WHEN the shipper runs once  THEN its archive is at the destination, and the log is gone
    arguments = list(SPECS[ship][0]["args"])
    arguments[arguments.index("--to") + 1] = "/archive"
    there = f"--volume={places['archive']}:/archive"
    container(*options(ship, places), there, "--", *arguments, "--once")
    assert len(list(places["archive"].rglob("*.parquet"))) == 1
    assert not list(places["logs"].glob("*.biotrail"))


def test_metrics_are_served(image: str) -> None:
    # GIVEN the container of metrics, at a port of its own
    port = "127.0.0.1:19477"
    run = ["podman", "--runtime", "runc", "run", "--rm", *HERE]
    run += [*options("biotrail-metrics/metrics", {}), image, "metrics", "--listen", port]
    with subprocess.Popen(run, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:

        def figures() -> bytes:
            try:
                with urllib.request.urlopen(f"http://{port}/metrics", timeout=10) as answer:
                    return bytes(answer.read())
            except OSError:
                return b""

        # WHEN it is asked  THEN it has the host's I/O
        try:
            wait_until(lambda: b"biotrail_ios_total{" in figures(), "no figures")
        finally:
            process.terminate()
    assert process.returncode == 0
