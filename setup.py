# SPDX-License-Identifier: Apache-2.0
"""Compile the BPF object before it is packaged; all else is in pyproject.toml."""

import subprocess
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent


class BuildWithProbes(build_py):
    """A build whose package data holds a BPF object made from the sources beside it."""

    def run(self) -> None:
        """Compile the BPF object, then package; a wheel without it is never made."""
        # An editable install reads the tree itself, where `make bpf` keeps the object fresh.
        if not self.editable_mode:
            subprocess.run([ROOT / "scripts" / "build-bpf"], check=True)
        super().run()


setup(cmdclass={"build_py": BuildWithProbes})
