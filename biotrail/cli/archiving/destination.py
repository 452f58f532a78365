# SPDX-License-Identifier: Apache-2.0
"""Where shipped archives go: a directory, or a folder of object storage.

Either has an archive whole or not at all: a directory by a temporary name and a rename, object
storage because an object appears when its last part has arrived.
"""

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol, cast

import pyarrow as pa
from pyarrow import fs

from biotrail.converters.inputs.beginning import is_url
from biotrail.converters.inputs.parquet.locations import LocationError, locate, reason
from biotrail.recorder.output import output
from biotrail.recorder.schema.errors import OutputError

_PIECE = 8 << 20
"""Bytes read at once; a part of a multi-part upload, which S3 wants to be 5 MiB at least."""
_FAILURES = (OSError, pa.ArrowException)


class Destination(Protocol):
    """A place for archives by name: `events/host=…/date=…/NAME.parquet`.

    All methods raise OutputError or LocationError where the place fails or cannot be reached.
    """

    def shown(self, name: str) -> str:
        """Return an archive's path or URL, as commands take it."""

    def open(self, name: str) -> BinaryIO | None:
        """Return an archive, open for reading and seekable; None: there is none of that name."""

    def put(self, staged: Path, name: str) -> None:
        """Store the file `staged` as `name`, in place of one that is there, and for good."""


def destination(to: str) -> Destination:
    """Return the destination of a directory's path or a URL.

    Raises OutputError: there is no such directory; LocationError: no URL of a storage.
    """
    return _Bucket(to) if is_url(to) and not to.startswith("file://") else _Directory(to)


def digest(stream: BinaryIO) -> str:
    """Return the SHA-256, as hex digits, of a stream from its position to its end."""
    found = hashlib.sha256()
    while piece := stream.read(_PIECE):
        found.update(piece)
    return found.hexdigest()


def ensure_same(place: Destination, staged: Path, name: str) -> None:
    """Read the archive back from its destination; raise OutputError unless it is `staged`.

    Compares size and SHA-256.
    """
    found = place.open(name)
    if found is None:
        raise OutputError(f"{place.shown(name)}: is not there after it was written: written again")
    try:
        with found, staged.open("rb") as wanted:
            size = found.seek(0, os.SEEK_END)
            found.seek(0)
            same = size == staged.stat().st_size and digest(found) == digest(wanted)
    except _FAILURES as error:
        raise OutputError(f"{place.shown(name)}: cannot be read back: {reason(error)}") from error
    if not same:
        raise OutputError(f"{place.shown(name)}: is not what was written: its checksum differs")


class _Directory:
    """A directory that exists: of a disk that is not mounted no other place is filled."""

    def __init__(self, to: str) -> None:
        """Take the directory's path or file:// URL. Raises OutputError: there is none."""
        self._root = Path(to.removeprefix("file://"))
        self._ensure_there()

    def _ensure_there(self) -> None:
        """Raise OutputError unless the directory is there."""
        if not self._root.is_dir():
            raise OutputError(f"{self._root}: is no directory: make or mount it, or give another")

    def shown(self, name: str) -> str:
        return str(self._root / name)

    def open(self, name: str) -> BinaryIO | None:
        try:
            return (self._root / name).open("rb")
        except FileNotFoundError:
            self._ensure_there()
            return None
        except OSError as error:
            raise OutputError(f"{self.shown(name)}: cannot be read: {error.strerror}") from error

    def put(self, staged: Path, name: str) -> None:
        final = self._root / name
        try:
            output.make_parents(self._root, Path(name))
            for left in final.parent.glob(f".{final.name}.*.part"):  # of a shipper that was killed
                left.unlink()
            with output.replacing(final, force=True) as stream, staged.open("rb") as source:
                while piece := source.read(_PIECE):
                    stream.write(piece)
                stream.flush()
                os.fsync(stream.fileno())
            folders = Path(name).parents
            for folder in folders:
                _sync_folder(self._root / folder)
        except OSError as error:
            raise output.explain(error, final) from error


def _sync_folder(path: Path) -> None:
    """Have the kernel write a folder's entries to the disk. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class _Bucket:
    """A folder of object storage, by pyarrow's file systems."""

    def __init__(self, url: str) -> None:
        """Look at the URL only; nothing is asked of the storage. Raises LocationError."""
        self._root = locate(url)

    def shown(self, name: str) -> str:
        return self._root.child(name).url

    def open(self, name: str) -> BinaryIO | None:
        place = self._root.child(name)
        try:
            if place.filesystem.get_file_info(place.path).type != fs.FileType.File:
                return None
            return cast(BinaryIO, place.filesystem.open_input_file(place.path))
        except FileNotFoundError:
            return None
        except _FAILURES as error:
            raise LocationError(f"{place.url}: cannot be read: {reason(error)}") from error

    def put(self, staged: Path, name: str) -> None:
        place = self._root.child(name)
        try:
            with (
                staged.open("rb") as source,
                place.filesystem.open_output_stream(place.path) as out,
            ):
                while piece := source.read(_PIECE):
                    out.write(piece)
        except BaseException as error:
            # Closing completes an upload, also one of which a part is missing.
            with suppress(*_FAILURES):
                if place.filesystem.get_file_info(place.path).size != staged.stat().st_size:
                    place.filesystem.delete_file(place.path)
            if isinstance(error, _FAILURES):
                raise LocationError(f"{place.url}: cannot be written: {reason(error)}") from error
            raise
