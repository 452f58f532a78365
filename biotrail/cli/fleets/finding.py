# SPDX-License-Identifier: Apache-2.0
"""Which files a path, glob, directory or URL means."""

import re
from collections.abc import Sequence
from glob import glob, has_magic
from pathlib import Path

from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.parquet.locations import expand
from biotrail.recorder.schema.errors import ConversionError

_TABLE = re.compile(r"(?:^|/)(?:bios|requests)/host=[^/]*/")
"""In the paths of a dataset's tables, which are made from its archives."""
ENDINGS = (".parquet", ".biotrail")
"""Of the files that are taken from a directory; from a folder of a URL only the first."""


def find(places: Sequence[str]) -> list[str]:
    """Return the files at paths, globs, directories and URLs, each once, sorted.

    Of a dataset they are its archives, without its tables of bios and requests. Raises
    ConversionError: there is no file at a place; LocationError: a URL cannot be listed.
    """
    found: set[str] = set()
    for place in places:
        files = expand(place) if is_url(place) else _local(place)
        if not files:
            raise ConversionError(
                f"{place}: no archive there: give a file, a directory or glob with archives "
                f"({' or '.join('*' + end for end in ENDINGS)}), or a URL such as "
                "s3://bucket/*.parquet"
            )
        found.update(one for one in files if len(files) == 1 or not _TABLE.search(one))
    return sorted(found)


def _local(place: str) -> list[str]:
    """Return the files that a path, glob or directory means; empty if there is none."""
    paths = [place] if Path(place).exists() or not has_magic(place) else glob(place, recursive=True)
    files: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            inside = (one for one in path.rglob("*") if one.suffix in ENDINGS)
            files += [str(one) for one in inside if one.is_file()]
        elif path.exists():
            files.append(str(path))
    return files
