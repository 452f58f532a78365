# SPDX-License-Identifier: Apache-2.0
"""Make one file of the recorder alone, for hosts on which nothing may be installed.

`python scripts/recorder_file.py [--machine x86_64] [--python 3.11]` packs the wheel for that
machine in dist/ (`make wheels`) with what `biotrail record` needs, and writes the file beside it.
Another machine or Python than this one will do: all is downloaded as wheels.
"""

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path

from shiv import __version__ as shiv_version
from shiv.bootstrap.environment import Environment
from shiv.builder import create_archive

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
RECORD_SIDE = ("numpy", "zstandard", "click", "rich")
"""Of biotrail's dependencies those that recording needs."""
GLIBC = "2.28"
"""What numpy's and zstandard's wheels need at most."""
NOT_NEEDED = (
    *("**/tests", "**/*.pyi", "**/*.pxd", "**/*.a", "bin", "share", "numpy/f2py"),
    *("numpy/_core/include", "zstandard/_cffi*", "pygments", "markdown_it", "mdurl"),
)
"""Left out: headers, tests, and what rich needs for source code and Markdown alone."""


def requirements() -> list[str]:
    """Return the record side's dependencies as pyproject.toml has them."""
    with (ROOT / "pyproject.toml").open("rb") as stream:
        listed = tomllib.load(stream)["project"]["dependencies"]
    return [one for one in listed if re.split(r"\W", one)[0] in RECORD_SIDE]


def gather(wheel: Path, machine: str, python: str, place: Path) -> None:
    """Install the wheel and what it needs for a machine and a Python into a directory."""
    tags = [f"manylinux_2_{minor}_{machine}" for minor in (28, 27, 17)]
    tags.append(f"manylinux2014_{machine}")
    foreign = ["--only-binary=:all:", "--implementation=cp", f"--python-version={python}"]
    foreign += [f"--platform={tag}" for tag in tags]
    for what in (requirements(), ["--no-deps", str(wheel)]):
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        command += ["--no-compile", "--target", str(place), *foreign, *what]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"recorder_file: pip failed:\n{done.stderr}")
    for pattern in NOT_NEEDED:
        for path in list(place.glob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()


def pack(place: Path, needs: dict[str, str | int], target: Path) -> None:
    """Write a directory as a file that Python runs, beginning with recorder_start."""
    epoch = int(os.environ.get("SOURCE_DATE_EPOCH", "315532800"))  # 1980, a zip's earliest
    built = datetime.fromtimestamp(epoch, UTC)
    environment = Environment(
        built_at=built.strftime("%Y-%m-%d %H:%M:%S"),
        shiv_version=shiv_version,
        entry_point="biotrail.__main__:main",
    )
    create_archive([place], target, "/usr/bin/env python3", "recorder_start:main", environment)
    start = (ROOT / "scripts" / "recorder_start.py").read_text(encoding="utf-8")
    start = re.sub(r"(?m)^NEEDS = .*$", f"NEEDS = {needs!r}", start)
    with zipfile.ZipFile(target, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(zipfile.ZipInfo("recorder_start.py"), start)


def main() -> None:
    """Make the file, print its name and sizes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", default=platform.machine(), choices=("x86_64", "aarch64"))
    parser.add_argument("--python", default="{}.{}".format(*sys.version_info[:2]), metavar="3.N")
    arguments = parser.parse_args()
    wheels = sorted(DIST.glob(f"biotrail-*-cp311-abi3-manylinux*_{arguments.machine}.whl"))
    if not wheels:
        sys.exit(f"recorder_file: no wheel for {arguments.machine} in {DIST}: make wheels")
    release = wheels[-1].name.split("-")[1]
    tag = "cp" + arguments.python.replace(".", "")
    target = DIST / f"biotrail-recorder-{release}-{tag}-linux_{arguments.machine}.pyz"
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        gather(wheels[-1], arguments.machine, arguments.python, place)
        size = sum(path.stat().st_blocks * 512 for path in place.rglob("*"))
        needs: dict[str, str | int] = {
            "python": arguments.python,
            "machine": arguments.machine,
            "glibc": GLIBC,
            "size": size,
        }
        pack(place, needs, target)
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size:,} bytes, unpacked {size:,}")


if __name__ == "__main__":
    main()
