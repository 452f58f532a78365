# SPDX-License-Identifier: Apache-2.0
"""Check the newest wheel in a directory.

`python scripts/check_wheel.py DIRECTORY` exits with status 1 unless the wheel holds the compiled
BPF programs, the report's page, the man pages and shell completions of share/, and no top-level
package but biotrail.
"""

import sys
import zipfile
from pathlib import Path

OBJECTS = tuple(f"biotrail/bpf/{name}.bpf.o" for name in ("biotrail", "measure", "sites"))
PAGE = Path("biotrail/converters/analysis/page")
SHARE = Path("share")


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
    pages = {str(path) for path in PAGE.rglob("*") if path.is_file()}
    if missing := sorted(pages - names):
        sys.exit(f"{wheels[-1]}: no {', '.join(missing)}; pyproject.toml lists data")
    shared = {str(path) for path in SHARE.rglob("*") if path.is_file()}
    if missing := sorted(shared - installed):
        sys.exit(f"{wheels[-1]}: no {', '.join(missing)}; pyproject.toml lists data-files")
    if others := sorted({name.partition("/")[0] for name in names - metadata} - {"biotrail"}):
        sys.exit(f"{wheels[-1]}: other packages than biotrail: {', '.join(others)}")
    print(
        f"{wheels[-1]}: {wheels[-1].stat().st_size:,} bytes, with {', '.join(OBJECTS)}, "
        f"{len(installed)} files of {SHARE}/"
    )


if __name__ == "__main__":
    main()
