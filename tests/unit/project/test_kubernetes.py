# SPDX-License-Identifier: Apache-2.0
"""share/kubernetes: valid, with commands that biotrail has, and rights that a page explains."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import click
import kubernetes_validate
import pytest

from biotrail import __version__
from biotrail.cli.main import cli
from tests.support.manifests import MANIFESTS, containers, documents, pods
from tests.support.paths import ROOT

PAGE = ROOT / "docs" / "containers.md"
OURS = [pytest.param(container, pod, id=name) for name, container, pod in containers()]


@pytest.mark.parametrize("version", ["1.30", kubernetes_validate.latest_version()])
def test_kubernetes_takes_the_manifests(version: str) -> None:
    # GIVEN the manifests  WHEN they are held against an API's schema  THEN all of it is in there
    assert len(MANIFESTS) == 2
    for one in documents():
        kubernetes_validate.validate(one, version, strict=True)


@pytest.mark.parametrize(("container", "pod"), OURS)
def test_biotrail_takes_the_arguments(container: dict[str, Any], pod: dict[str, Any]) -> None:
    # GIVEN a container of biotrail  WHEN its arguments are parsed  THEN the command has them all
    name, *arguments = container["args"]
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    command.make_context(name, list(arguments))
    # AND its image is this version's
    assert container["image"] == f"biotrail:{__version__}"


@pytest.mark.parametrize(("container", "pod"), OURS)
def test_rights_are_few_and_explained(container: dict[str, Any], pod: dict[str, Any]) -> None:
    # GIVEN a container of biotrail  THEN it has no rights but those that the page explains
    context = container["securityContext"]
    assert "privileged" not in context
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    explained = set(re.findall(r"CAP_([A-Z_]+)", PAGE.read_text(encoding="utf-8")))
    assert set(context["capabilities"].get("add", [])) <= explained
    # AND what it mounts is there, and read-only but for its own
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    for mount in container.get("volumeMounts", []):
        own = mount["name"] in ("logs", "tmp")
        assert ("hostPath" in volumes[mount["name"]] or own) and (own or mount["readOnly"])


def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed")
    # GIVEN what the agent beside `biotrail metrics` reads
    (config,) = (one["data"] for one in documents() if one["kind"] == "ConfigMap")
    (tmp_path / "prometheus.yml").write_text(config["prometheus.yml"])
    # WHEN promtool reads it  THEN it finds nothing wrong
    command = ["promtool", "check", "config", "--agent", str(tmp_path / "prometheus.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    # AND it scrapes where metrics serves by default
    (metrics,) = (
        one for one in pods()["biotrail-metrics"]["containers"] if one["args"][0] == "metrics"
    )
    assert metrics["args"] == ["metrics"]
    assert "127.0.0.1:9477" in config["prometheus.yml"]
