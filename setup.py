# SPDX-License-Identifier: Apache-2.0
"""Compile the BPF objects, and the compiled modules; all else is in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / "scripts"))

from build_compiled import COMPILED, STABLE, extensions  # noqa: E402


class BuildWithProbes(build_py):
    """A build whose package data holds BPF objects made from the sources beside it."""

    def run(self) -> None:
        """Compile the BPF objects, then package; a wheel without them is never made."""
        # An editable install reads the tree itself, where `make bpf` keeps the objects fresh.
        if not self.editable_mode:
            subprocess.run([ROOT / "scripts" / "build-bpf"], check=True)
        super().run()


def compiled_modules() -> list[Extension]:
    """Return the modules to compile; a failure is no error.

    None where Cython is missing, or with BIOTRAIL_PURE=1 in the environment: for one wheel that
    suits every machine and version of Python.
    """
    if os.environ.get("BIOTRAIL_PURE") == "1":
        return []
    try:
        return extensions(COMPILED, "build/cython", optional=True)
    except ImportError:
        return []


modules = compiled_modules()
setup(
    cmdclass={"build_py": BuildWithProbes},
    ext_modules=modules,
    # Named by the oldest Python that it serves.
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if modules and STABLE else {},
)
