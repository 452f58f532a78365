# SPDX-License-Identifier: Apache-2.0
"""Compile the BPF objects, and the compiled modules; all else is in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))

from build_compiled import COMPILED, NEEDED, STABLE, extensions  # noqa: E402


class BuildWithProbes(build_py):
    """A build whose package data holds BPF objects made from the sources beside it."""

    def run(self) -> None:
        """Compile the BPF objects, then package; a wheel without them is never made."""
        # An editable install reads the tree itself, where `make bpf` keeps the objects fresh.
        if not self.editable_mode:
            subprocess.run([ROOT / "scripts" / "build-bpf"], check=True)
        super().run()


class BuildCompiled(build_ext):
    """A build of the compiled modules that says what it needs where it fails."""

    def run(self) -> None:
        """Compile."""
        try:
            super().run()
        except Exception as error:
            raise SystemExit(f"biotrail: not compiled: {error}; {NEEDED}") from error


def compiled_modules() -> list[Extension]:
    """Return the modules to compile.

    None with BIOTRAIL_PURE=1 in the environment: for one wheel that suits every machine and version
    of Python, and records alone.
    """
    if os.environ.get("BIOTRAIL_PURE") == "1":
        return []
    return extensions(COMPILED, "build/cython")


modules = compiled_modules()
setup(
    cmdclass={"build_ext": BuildCompiled, "build_py": BuildWithProbes},
    ext_modules=modules,
    # Named by the oldest Python that it serves.
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if modules and STABLE else {},
)
