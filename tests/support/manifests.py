# SPDX-License-Identifier: Apache-2.0
"""Reads share/kubernetes."""

from typing import Any

import yaml

from tests.support.paths import ROOT

MANIFESTS = sorted((ROOT / "share" / "kubernetes").glob("*.yaml"))


def documents() -> list[dict[str, Any]]:
    """All objects in the manifests."""
    texts = (path.read_text(encoding="utf-8") for path in MANIFESTS)
    return [one for text in texts for one in yaml.safe_load_all(text)]


def pods() -> dict[str, dict[str, Any]]:
    """{name of a DaemonSet: the spec of its pods}."""
    sets = (one for one in documents() if one["kind"] == "DaemonSet")
    return {one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in sets}


def containers(image: str = "biotrail:") -> list[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, the container, its pod's spec) of each container with this image."""
    return [
        (f"{name}/{container['name']}", container, pod)
        for name, pod in pods().items()
        for container in pod["containers"]
        if container["image"].startswith(image)
    ]
