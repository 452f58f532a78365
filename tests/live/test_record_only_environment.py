# SPDX-License-Identifier: Apache-2.0
"""`biotrail record` runs from a wheel where only numpy, zstandard and click are installed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support.devices import Fio, fio_arguments, read_fio_report
from tests.support.paths import ROOT

pytestmark = [pytest.mark.xdist_group("the wheel"), pytest.mark.long]

RECORD_SIDE = ("numpy", "zstandard", "click")
PIP = ("-m", "pip", "--disable-pip-version-check", "--no-input")
NO_INDEX = ("No matching distribution found", "Could not find a version", "ConnectionError")
GENERATED = (".*", "build", "dist", "*.egg-info", "__pycache__", "demo-output", "*.o", "*.so")
OBJECTS = ("biotrail", "sites")
MODULES = "import {}; print('imported')"


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # PYTHONPATH would let the tree's own modules, or another environment's, stand in.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["BIOTRAIL_PURE"] = "1"
    return subprocess.run(
        command, cwd=cwd, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def pip(*arguments: str | Path, cwd: Path) -> None:
    done = run(sys.executable, *PIP, *arguments, cwd=cwd)
    if done.returncode == 0:
        return
    last = done.stderr.strip().splitlines()[-1:]
    if any(mark in done.stderr for mark in NO_INDEX):
        pytest.skip(f"pip cannot reach an index: {last}")
    pytest.fail(f"pip {' '.join(map(str, arguments))}:\n{done.stdout}\n{done.stderr}")


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("record-only")


@pytest.fixture(scope="module")
def wheel(directory: Path) -> Path:
    """The wheel, built from a copy of the tree that holds sources only."""
    if shutil.which("clang") is None:
        pytest.skip("needs clang")
    tree = directory / "tree"
    shutil.copytree(ROOT, tree, symlinks=True, ignore=shutil.ignore_patterns(*GENERATED))
    pip("wheel", "--no-deps", "-w", directory, tree, cwd=directory)
    (built,) = directory.glob("biotrail-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(directory: Path, wheel: Path) -> Path:
    """A fresh environment's bin directory."""
    place = directory / "environment"
    done = run(sys.executable, "-m", "venv", "--without-pip", place, cwd=directory)
    assert done.returncode == 0, done.stderr
    # This environment's pip: to install one in there takes as long as all the rest.
    pip("--python", place / "bin" / "python", "install", *RECORD_SIDE, cwd=directory)
    pip("--python", place / "bin" / "python", "install", "--no-deps", wheel, cwd=directory)
    return place / "bin"


def test_wheel_holds_the_programs_and_the_packages_only(wheel: Path) -> None:
    # GIVEN a wheel built from sources
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        sizes = [archive.getinfo(f"biotrail/bpf/{name}.bpf.o").file_size for name in OBJECTS]
    # THEN the compiled programs are in it, it suits every machine, and no test is in it
    assert min(sizes) > 0
    assert wheel.name.endswith("-py3-none-any.whl")
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith((".dist-info", ".data"))} == {"biotrail"}
    # AND beside it man pages and completion alone
    beside = {name.split("/")[3] for name in names if "/data/share/" in name}
    assert {name.split("/")[2] for name in names if ".data/" in name} == {"share"}
    assert beside == {"man", "bash-completion", "zsh", "fish", "kubernetes"}


def test_help_needs_the_record_side_alone(environment: Path, directory: Path) -> None:
    # GIVEN an environment where the converters' libraries cannot be imported
    for module in ("google.protobuf", "perfetto", "intervaltree", "otf2"):
        done = run(environment / "python", "-c", MODULES.format(module), cwd=directory)
        assert "ModuleNotFoundError" in done.stderr, module
    # WHEN record is asked for its help
    done = run(environment / "biotrail", "record", "--help", cwd=directory)
    # THEN it answers
    assert done.returncode == 0, done.stderr
    assert "--device" in done.stdout


def test_recording_needs_the_record_side_alone(
    environment: Path, directory: Path, needs_bpf: None, loop_device: Any, fio: Fio
) -> None:
    # GIVEN that environment, a loop device and fio
    log, report = directory / "real.biotrail", directory / "fio.json"
    load = fio_arguments(loop_device.path, rw="randread", bs="4k", size="1m")
    # WHEN it records fio's reads
    command = f"record -q -d {loop_device.name} -o {log} --".split()
    load = ["fio", "--output-format=json", f"--output={report}", *load]
    words = ("-X", "importtime", environment / "biotrail", *command, *load)
    done = run(environment / "python", *words, cwd=directory)
    # THEN no converter is imported
    assert "biotrail.recorder.session" in done.stderr
    assert "biotrail.converters" not in done.stderr
    # AND the log, read by the whole environment, holds each of them
    assert done.returncode == 0, done.stderr
    total = read_fio_report(report)["jobs"][0]["read"]["total_ios"]
    assert total == 256
    assert queued(log, loop_device.dev) == total


def queued(log: Path, dev: int) -> int:
    return sum(
        int((events.dev[events.rows(Kind.Q)] == dev).sum()) for events, _ in Trace(log).events()
    )
