# SPDX-License-Identifier: Apache-2.0
"""Every source file says in its first lines under which licence it is."""

import subprocess
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SOURCES = {".py", ".c", ".h", ".toml", ".yaml", ".yml", ".sh", ".sql", ".js"}
KERNEL_SIDE = "GPL-2.0-only OR BSD-2-Clause"
USER_SIDE = "Apache-2.0"
LIBRARY = Path("converters/analysis/page/echarts")  # not ours: it comes with its own licences
FIRST_LINES = 2  # an interpreter line may come before


def tracked_files() -> list[Path]:
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return [path for name in names.split("\0") if name and (path := ROOT / name).is_file()]


def is_source(path: Path) -> bool:
    if path.suffix in SOURCES or path.name == "Makefile":
        return True
    return not path.suffix and path.read_bytes()[:2] == b"#!"


def declared(path: Path) -> str | None:
    for line in path.read_text(encoding="utf-8").splitlines()[:FIRST_LINES]:
        _, mark, licence = line.partition("SPDX-License-Identifier: ")
        if mark:
            return licence.removesuffix("*/").removesuffix("-->").strip()
    return None


def is_kernel_side(path: Path) -> bool:
    """Whether the file is compiled for the kernel: BPF programs and tests' modules."""
    module = path.suffix in {".c", ".h"} and path.is_relative_to("tests/vm")
    return path.parts[0] == "bpf" or path.name.endswith(".bpf.c") or module


def test_every_source_file_declares_its_licence() -> None:
    # GIVEN all files under version control that are source code
    sources = [
        path
        for path in tracked_files()
        if is_source(path) and path.relative_to(ROOT).parent != LIBRARY
    ]
    # WHEN their first lines are read  THEN each names the licence of its part of the tree
    wrong = {
        str(path.relative_to(ROOT)): licence
        for path in sources
        if (licence := declared(path))
        != (KERNEL_SIDE if is_kernel_side(path.relative_to(ROOT)) else USER_SIDE)
    }
    assert len(sources) > 1
    assert wrong == {}


@pytest.mark.parametrize("identifier", ["Apache-2.0", "GPL-2.0-only", "BSD-2-Clause"])
def test_licence_texts_are_there(identifier: str) -> None:
    # GIVEN an identifier that files use  THEN its text stands in LICENSES/ and LICENSE names it
    assert (ROOT / "LICENSES" / f"{identifier}.txt").stat().st_size > 1000
    assert identifier in (ROOT / "LICENSE").read_text(encoding="utf-8")


def test_the_library_that_pages_embed_comes_with_its_licences() -> None:
    # GIVEN the library's folder THEN it holds nothing without a licence, and LICENSE tells of it
    names = {path.name for path in (ROOT / LIBRARY).iterdir()}
    parts = {"LICENSE-d3", "LICENSE-tslib", "LICENSE-zrender"}
    assert names == {"LICENSE", "NOTICE", "README.md", "echarts.min.js", *parts}
    assert str(LIBRARY) in (ROOT / "LICENSE").read_text(encoding="utf-8")
    # AND a page that holds the library holds its notice
    head = (ROOT / LIBRARY / "echarts.min.js").read_text(encoding="utf-8")[:500]
    assert "Licensed to the Apache Software Foundation" in head
