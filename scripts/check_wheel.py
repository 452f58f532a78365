# SPDX-License-Identifier: Apache-2.0
"""Check the newest wheel in a directory.

`python scripts/check_wheel.py DIRECTORY` exits with status 1 unless the wheel holds the compiled
BPF programs, the report's page, the man pages and shell completions of share/, and no top-level
package but biotrail; and where its name promises that, unless its compiled modules are all there,
keep to the stable ABI and need no newer glibc (abi3audit, auditwheel).
"""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

from build_compiled import COMPILED, SHARED

OBJECTS = tuple(f"biotrail/bpf/{name}.bpf.o" for name in ("biotrail", "measure", "sites"))
PAGE = Path("biotrail/converters/analysis/page")
SHARE = Path("share")


def check_compiled(wheel: Path, names: set[str]) -> None:
    """End with status 1 unless a wheel's compiled modules are what its name promises."""
    promised = re.search(r"-abi3-(manylinux_\d+_\d+_\w+)\.whl$", wheel.name)
    if promised is None:
        return
    wanted = {f"{module.replace('.', '/')}.abi3.so" for module in (SHARED, *COMPILED)}
    if missing := sorted(wanted - names):
        sys.exit(f"{wheel}: not compiled: {', '.join(missing)}")
    module = [sys.executable, "-m"]
    audit = subprocess.run(
        [*module, "abi3audit", "--strict", str(wheel)], capture_output=True, text=True, check=False
    )
    if audit.returncode:
        sys.exit(f"{wheel}: not the stable ABI alone:\n{audit.stdout}{audit.stderr}")
    shown = subprocess.run(
        [*module, "auditwheel", "show", str(wheel)], capture_output=True, text=True, check=False
    )
    ok = re.search(r'platform\s+tag:\s+"(\w+)"', shown.stdout)
    if ok is None or ok[1] != promised[1]:
        sys.exit(f"{wheel}: not for {promised[1]}:\n{shown.stdout}{shown.stderr}")


def main() -> None:
    """Print the wheel's name and size, or what is wrong with it and end with status 1."""
    wheels = sorted(Path(sys.argv[1]).glob("biotrail-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit(f"{sys.argv[1]}: no wheel")
    with zipfile.ZipFile(wheels[-1]) as archive:
        names = set(archive.namelist())
    # biotrail-VERSION.dist-info holds metadata, biotrail-VERSION.data what goes below the prefix.
    metadata = {name for name in names if name.startswith("biotrail-")}
    installed = {name.partition(".data/data/")[2] for name in metadata if ".data/data/" in name}
    if missing := sorted(set(OBJECTS) - names):
        sys.exit(f"{wheels[-1]}: {', '.join(missing)} is missing; make bpf says why")
    pages = {str(path) for path in PAGE.rglob("*") if path.is_file() and path.suffix != ".pyc"}
    if missing := sorted(pages - names):
        sys.exit(f"{wheels[-1]}: no {', '.join(missing)}; pyproject.toml lists data")
    shared = {str(path) for path in SHARE.rglob("*") if path.is_file()}
    if missing := sorted(shared - installed):
        sys.exit(f"{wheels[-1]}: no {', '.join(missing)}; pyproject.toml lists data-files")
    if others := sorted({name.partition("/")[0] for name in names - metadata} - {"biotrail"}):
        sys.exit(f"{wheels[-1]}: other packages than biotrail: {', '.join(others)}")
    check_compiled(wheels[-1], names)
    print(
        f"{wheels[-1]}: {wheels[-1].stat().st_size:,} bytes, with {', '.join(OBJECTS)}, "
        f"{len(installed)} files of {SHARE}/"
    )


if __name__ == "__main__":
    main()
