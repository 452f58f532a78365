# SPDX-License-Identifier: Apache-2.0
"""Programs of Debian's packages: those that are installed, or else unpacked for this run alone.

Nothing is installed, so no server is started and no configuration is written.
"""

import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

SECONDS = 300


class Missing(Exception):
    """A program that cannot be had here, and why."""


@dataclass(frozen=True)
class Programs:
    """Where a package's programs are. root: of what was unpacked; None: they are installed."""

    root: Path | None
    directories: tuple[Path, ...]
    variables: dict[str, str] = field(default_factory=dict)
    """Environment that they need beside this process's."""

    def path(self, name: str) -> Path:
        """The program's path; Missing if the packages have none of this name."""
        for directory in self.directories:
            if (found := directory / name).exists():
                return found
        raise Missing(f"the packages have no {name}")

    @property
    def environment(self) -> dict[str, str]:
        """This process's environment, with what the programs need."""
        return {**os.environ, **self.variables}


def programs(names: tuple[str, ...], packages: tuple[str, ...], into: Path) -> Programs:
    """Find the named programs, installed, or else in the packages, unpacked below `into`.

    Raises Missing: a package cannot be had, or a library that they need is not there.
    """
    installed = tuple(sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    places = (*map(Path, os.get_exec_path()), Path("/usr/sbin"), *installed)
    here = Programs(None, places)
    if all(any((one / name).exists() for one in places) for name in names):
        return here
    _unpack(packages, into)
    found = tuple(sorted({one.parent for name in names for one in into.rglob(f"bin/{name}")}))
    found += tuple(sorted({one.parent for name in names for one in into.rglob(f"sbin/{name}")}))
    libraries = ":".join(sorted({str(one.parent) for one in into.rglob("*.so.*")}))
    made = Programs(into, found, {"LD_LIBRARY_PATH": libraries} if libraries else {})
    for name in names:
        _check_libraries(made, name)
    return made


def _unpack(packages: tuple[str, ...], into: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Missing("needs apt-get and dpkg, or the programs themselves")
    downloads = into / "packages"
    downloads.mkdir(parents=True)
    fetch = ("apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *packages)
    done = subprocess.run(fetch, cwd=downloads, capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["apt-get download failed"])[-1]
        raise Missing(f"{' '.join(packages)} cannot be had: {said}")
    for package in sorted(downloads.glob("*.deb")):
        subprocess.run(("dpkg", "-x", package, into), check=True, timeout=SECONDS)
    shutil.rmtree(downloads)


def _check_libraries(of: Programs, name: str) -> None:
    done = subprocess.run(
        ("ldd", of.path(name)), env=of.environment, capture_output=True, text=True, timeout=SECONDS
    )
    lacking = [line.split()[0] for line in done.stdout.splitlines() if "not found" in line]
    if lacking:
        raise Missing(f"{name} needs {', '.join(lacking)}")
