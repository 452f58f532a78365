# SPDX-License-Identifier: Apache-2.0
"""The image of Containerfile, and how its containers are run by podman: `make test-container`.

BIOTRAIL_BASE is the image to begin with; by default one is made of this machine's Debian.
"""

import os
import platform
import resource
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT

_RUNTIME = ["--runtime", "runc"] if shutil.which("runc") else []
_FILES, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
_TASKS, _ = resource.getrlimit(resource.RLIMIT_NPROC)
# The host's network, so that nothing has to be set up; limits that need no right to raise them.
HERE = ["--network=host", f"--ulimit=nofile={min(_FILES, 1024)}"]
HERE.append(f"--ulimit=nproc={_TASKS if 0 < _TASKS < 1000 else 1000}")
# Where pip of the machine goes through a proxy, that of the image does.
PROXY = [path for path in ("/etc/ssl/certs", "/etc/pip.conf") if Path(path).exists()]
BPF = ["--cap-drop=all", "--cap-add=bpf,perfmon", "--security-opt=seccomp=unconfined"]
"""What recording needs at least."""

Podman = Callable[..., subprocess.CompletedProcess[str]]


def podman(*arguments: str | Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
    """What podman answers; status: what its exit status has to be."""
    command = ["podman", *_RUNTIME, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert status in (None, done.returncode), f"{command}: {done.stdout}{done.stderr}"
    return done


@pytest.fixture(scope="session")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    if given := os.environ.get("BIOTRAIL_BASE"):
        return given
    name = "localhost/biotrail-base"
    if podman("image", "exists", name, status=None).returncode:
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        tree = tmp_path_factory.mktemp("base") / "base.tar"
        command = [
            "mmdebstrap",
            "--quiet",
            "--variant=minbase",
            "--include=ca-certificates",
            release,
            str(tree),
        ]
        subprocess.run(command, check=True, timeout=900)
        podman("import", tree, name)
        tree.unlink()
    return name


@pytest.fixture(scope="session")
def image(base: str) -> Iterator[str]:
    """The image, made of the wheel in dist/."""
    if os.geteuid() or shutil.which("podman") is None:
        pytest.fail("needs root and podman")
    name = "localhost/biotrail-test"
    mounts = [f"--volume={path}:{path}:ro" for path in PROXY]
    made = ["-f", ROOT / "Containerfile", "--build-arg", f"BASE={base}", "-t", name]
    podman("build", "--quiet", *HERE, *mounts, *made, ROOT / "dist")
    yield name
    podman("rmi", "--force", name, status=None)


@pytest.fixture
def container(image: str) -> Podman:
    """Runs a container with podman's options, then "--", then biotrail's arguments."""

    def run(*arguments: str | Path, status: int | None = 0) -> subprocess.CompletedProcess[str]:
        split = arguments.index("--")
        options = ["run", "--rm", *HERE, *arguments[:split]]
        return podman(*options, image, *arguments[split + 1 :], status=status)

    return run
