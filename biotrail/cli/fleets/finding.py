# SPDX-License-Identifier: Apache-2.0
"""Which files a path, glob, directory or URL means."""

import os
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
            no = "a directory without archives" if Path(place).is_dir() else "no archive there"
            raise ConversionError(
                f"{place}: {no}: give a file, a directory or glob with archives "
                f"({' or '.join('*' + end for end in ENDINGS)}), or a URL such as "
                "s3://bucket/*.parquet"
            )
        found.update(one for one in files if len(files) == 1 or not _TABLE.search(one))
    return sorted(found)


def _local(place: str) -> list[str]:
    """Return the files that a path, glob or directory means; empty if there is none.

    What has the name of an archive or log, and is none, is among them, so that it is named: a link
    that leads nowhere, a FIFO, a directory without archives.
    """
    there = os.path.lexists(place)
    paths = [place] if there or not has_magic(place) else glob(place, recursive=True)
    files: list[str] = []
    for path in map(Path, paths):
        if path.is_dir():
            files += _inside(path) or ([str(path)] if not there and path.suffix in ENDINGS else [])
        elif os.path.lexists(path):
            files.append(str(path))
    return files


def _inside(directory: Path) -> list[str]:
    """Return what is called as archives and logs are below a directory."""
    named = [one for one in directory.rglob("*") if one.suffix in ENDINGS]
    return [str(one) for one in named if not (one.is_dir() and _inside(one))]
