# SPDX-License-Identifier: Apache-2.0
"""Archives by path, glob, directory or URL: which there are, and how each is opened.

Object storage is read by pyarrow's own file systems (S3, GCS, Azure), which take their credentials
from where the providers' tools do; other URLs (HTTP, memory, SFTP) by fsspec.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, cast
from urllib.parse import urlsplit

from biotrail.recorder.schema.errors import ConversionError

ENDINGS = (".parquet", ".biotrail")
"""Of the files that are taken from a directory."""
_OF_PYARROW = ("s3", "gs", "gcs", "abfs", "abfss", "hdfs")
_GLOB = frozenset("*?[")


@dataclass(frozen=True)
class File:
    """A file to read."""

    name: str
    """Path, or URL without the query, as the user is to see it."""
    url: str
    """What `stream_of` opens."""
    size: int


def find(places: Sequence[str]) -> list[File]:
    """Return the files at paths, globs, directories and URLs, each once, sorted by name.

    Raises ConversionError: a place cannot be listed, or holds no file.
    """
    found: dict[str, File] = {}
    for place in places:
        files = _files_at(place)
        if not files:
            raise ConversionError(
                f"{place}: no archive there: give a file, a directory or glob with archives (files "
                f"{' or '.join('*' + end for end in ENDINGS)}), or a URL such as s3://bucket/*.parquet"
            )
        found.update({one.name: one for one in files})
    return [found[name] for name in sorted(found)]


@contextmanager
def stream_of(file: File) -> Iterator[str | BinaryIO]:
    """Yield what `open_source` takes: the path of a local file, or a stream of any other.

    Raises ConversionError: the file system cannot be reached.
    """
    if "://" not in file.url:
        yield file.url
        return
    with _explained(file.name):
        system, path, _ = _opened(file.url)
        stream = system.open(path, "rb")
    with stream:
        yield cast(BinaryIO, stream)


def _files_at(place: str) -> list[File]:
    """Return the files at a path, glob, directory or URL; empty if there is none."""
    with _explained(place):
        system, path, query = _opened(place)
        if _GLOB & set(path):
            # With details: object storage lists sizes at no further cost.
            entries = list(cast(dict[str, Any], system.glob(path, detail=True)).values())
        else:
            entries = [system.info(path)]
        files = []
        for entry in entries:
            if entry["type"] == "directory":
                inside = system.find(entry["name"], detail=True)
                files += [one for one in inside.values() if one["name"].endswith(ENDINGS)]
            elif entry["type"] == "file":
                files.append(entry)
        return [_file(place, entry, query) for entry in files]


def _file(place: str, entry: dict[str, Any], query: str) -> File:
    """Return a listed entry (fsspec's) as a File. query: of the URL `place`, with its "?"."""
    path, size = str(entry["name"]), int(entry.get("size") or 0)
    if "://" not in place:
        return File(path, path, size)
    scheme = urlsplit(place).scheme
    name = path if "://" in path else f"{scheme}://{path.removeprefix('//')}"
    return File(name, name + query, size)


def _opened(place: str) -> tuple[Any, str, str]:
    """Return (file system as fsspec's, path in it, query of the URL with its "?") of a place."""
    from fsspec.core import url_to_fs

    if "://" not in place:
        return (*url_to_fs(place), "")
    scheme, rest = place.split("://", 1)
    if scheme not in _OF_PYARROW:
        return (*url_to_fs(place), "")
    from fsspec.implementations.arrow import ArrowFSWrapper
    from pyarrow.fs import FileSystem

    path, mark, options = rest.partition("?") if "=" in rest else (rest, "", "")
    bucket = path.split("/", 1)[0]
    system, _ = FileSystem.from_uri(f"{scheme}://{bucket}{mark}{options}")
    return ArrowFSWrapper(system), path, mark + options


@contextmanager
def _explained(place: str) -> Iterator[None]:
    """Raise ConversionError with one line for what a file system raises inside the block."""
    try:
        yield
    except FileNotFoundError as error:
        raise ConversionError(f"{place}: there is no such file, directory or bucket") from error
    except ImportError as error:
        raise ConversionError(
            f"{place}: needs a library that is not installed ({error})"
        ) from error
    except (OSError, ValueError) as error:
        what = " ".join(str(error).split())
        raise ConversionError(
            f"{place}: cannot be read: {what}; check the URL, the network and the credentials"
        ) from error
