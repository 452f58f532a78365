# SPDX-License-Identifier: Apache-2.0
"""See to it that the newest wheel in a directory holds the compiled BPF programs and the page.

python scripts/check_wheel.py DIRECTORY
"""

import sys
import zipfile
from pathlib import Path

OBJECT = "biotrail/bpf/biotrail.bpf.o"
PAGE = Path("biotrail/converters/analysis/page")


def main() -> None:
    """Print the wheel's name and size, or say what it lacks and end with status 1."""
    wheels = sorted(Path(sys.argv[1]).glob("biotrail-*.whl"), key=lambda path: path.stat().st_mtime)
    if not wheels:
        sys.exit(f"{sys.argv[1]}: no wheel")
    with zipfile.ZipFile(wheels[-1]) as archive:
        if OBJECT not in archive.namelist():
            sys.exit(f"{wheels[-1]}: {OBJECT} is missing; make bpf says why")
        pages = {str(path) for path in PAGE.rglob("*") if path.is_file()}
        if missing := sorted(pages - set(archive.namelist())):
            sys.exit(f"{wheels[-1]}: no {', '.join(missing)}; pyproject.toml lists data")
    print(f"{wheels[-1]}: {wheels[-1].stat().st_size:,} bytes, with {OBJECT}")


if __name__ == "__main__":
    main()
