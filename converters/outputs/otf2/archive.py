# SPDX-License-Identifier: Apache-2.0
"""Write an archive: event files in our own code, all else by the OTF2 library, definitions last.

The library writes one event per call, with one more call for each attribute. Events encoded in
columns (`records`) are the same bytes in a fraction of the time; `docs/otf2.md` has figures.
"""

import ctypes
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from biotrail.converters.events.tables import I64, Bool
from biotrail.converters.outputs.otf2.records import (
    CHUNK_BYTES,
    Attribute,
    Column,
    EventFile,
    Shape,
    check_room,
    encode,
)
from biotrail.recorder.schema.errors import ConversionError, OutputError
from biotrail.recorder.schema.strings import characters, shown

NAME = "traces"
"""The archive's name; `traces.otf2` is its anchor file."""

CHUNK_DEFINITION_BYTES = 4 << 20
"""The library's chunk size for definitions."""
DEFINITION_BYTES = 1 << 20
"""Most bytes that definitions take, without their strings."""

_POINTER, _U64 = ctypes.c_void_p, ctypes.c_uint64


def library() -> ModuleType:
    """Return `_otf2`, the OTF2 library's low-level Python package; ConversionError without it."""
    try:
        return import_module("_otf2")
    except ImportError as error:
        raise ConversionError(
            f"OTF2 output needs the otf2 package ({error}): pip install 'biotrail[otf2]'"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the library's error lines on standard error, as exceptions report its errors."""
    # int callback(void *, file, line, function, code, format, va_list), returning the code; the
    # ABIs of x86-64 and arm64 both pass a va_list as a pointer.
    kind = ctypes.CFUNCTYPE(
        ctypes.c_int, _POINTER, _POINTER, _U64, _POINTER, ctypes.c_int, _POINTER, _POINTER
    )
    register = import_module("_otf2.Config").conf.lib["OTF2_Error_RegisterCallback"]
    register.argtypes, register.restype = (_POINTER, _POINTER), _POINTER
    callback = kind(lambda *arguments: int(arguments[4]))
    before = register(ctypes.cast(callback, _POINTER), None)
    yield
    register(before, None)


class Archive:
    """An archive being written: first events, then definitions. Raises OutputError."""

    def __init__(self, directory: Path) -> None:
        """Create the archive in `directory`, which is created, or exists and is empty.

        Raises OutputError where it cannot, ConversionError without otf2; then no file is left.
        """
        self.lib: Any = library()
        try:
            if not directory.parent.is_dir():
                parent = directory.parent
                raise OutputError(f"{directory}: {parent} is no directory, create it first")
            if directory.exists() and not directory.is_dir():
                raise OutputError(
                    f"{directory} is no directory: OTF2 archives are, name another path"
                )
            if directory.exists() and any(directory.iterdir()):
                raise OutputError(f"{directory} is not empty: name another directory or remove it")
        except OSError as error:
            raise OutputError(f"{directory}: {error.strerror}: name another directory") from error
        self._existed = directory.exists()
        self.directory = directory
        self.anchor = directory / f"{NAME}.otf2"
        """Path of the file that readers open."""
        self.strings: dict[str, int] = {"": 0}
        """Number of each string of the archive."""
        self.event_counts: dict[int, int] = {}
        """Number of events of each location; set by `end_events`."""
        self._files: dict[int, EventFile] = {}
        """Event file of each location with events."""
        self._definitions: Any = None
        """The library's writer of global definitions; None before `end_events`."""
        self._quiet = ExitStack()
        self._quiet.enter_context(_quiet())
        try:
            self._open()
        except BaseException:  # Ctrl-C, too: no part of an archive stays
            self.abandon()
            raise

    def _open(self) -> None:
        lib, directory = self.lib, str(self.directory)
        if characters(directory) != directory:
            raise OutputError(
                f"{directory}: the library of OTF2 takes paths in UTF-8: give another"
            )
        self.handle = self.call(
            lib.Archive_Open,
            directory,
            NAME,
            lib.FILEMODE_WRITE,
            CHUNK_BYTES,
            CHUNK_DEFINITION_BYTES,
            lib.SUBSTRATE_POSIX,
            lib.COMPRESSION_NONE,
        )
        # The library keeps a pointer to the callbacks: they must not be freed before the archive.
        self._callbacks = lib.FlushCallbacks(lambda *_: lib.FLUSH, None)
        self.call(lib.Archive_SetFlushCallbacks, self.handle, self._callbacks, None)
        self.call(lib.Archive_SetSerialCollectiveCallbacks, self.handle)
        self.call(lib.Archive_OpenEvtFiles, self.handle)

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what a function of the library returns; its errors are raised as OutputError."""
        try:
            return function(*arguments)
        except self.lib.Error as error:
            raise self.failure(str(error)) from error

    def failure(self, what: str) -> OutputError:
        """Return an OutputError that says what failed, and how much disk space is free."""
        free = shutil.disk_usage(self.directory.parent).free
        return OutputError(
            f"{self.directory}: OTF2 cannot be written: {what}; {free >> 20} MiB are free there"
        )

    def string(self, text: str) -> int:
        """Return the number of a string, which is escaped first (`shown`) and defined if new."""
        text = shown(text)
        if text not in self.strings:
            self.strings[text] = len(self.strings)
            if self._definitions is not None:
                self.define("String", self.strings[text], text)
        return self.strings[text]

    def event_file(self, location: int) -> EventFile:
        """Return the event file of a location, which is created at its first full chunk."""
        if location not in self._files:
            with self._explained():
                (self.directory / NAME).mkdir(exist_ok=True)
            self._files[location] = EventFile(self.directory / NAME / f"{location}.evt")
        return self._files[location]

    def append(
        self,
        location: int,
        time: I64,
        shape: Column,
        shapes: Mapping[int, Shape],
        columns: Mapping[str, Column],
        attributes: Iterable[tuple[Attribute, Column, Bool]] = (),
    ) -> None:
        """Append a location's next events (n > 0), in order of time (ns). Rest: as for `encode`."""
        file = self.event_file(location)
        timed = np.diff(time, prepend=-1) != 0
        timed[0] = time[0] != file.time
        records = encode(time, timed, shape, shapes, columns, attributes)
        with self._explained():
            file.write(records)

    def end_events(self) -> None:
        """Close all event files; from now on only definitions may follow."""
        lib, handle = self.lib, self.handle
        for location, file in self._files.items():
            self.event_counts[location] = file.events
            with self._explained():
                file.close()
        # The library aborts the process if the disk fills up while it writes definitions.
        check_room(self.directory, DEFINITION_BYTES + sum(map(len, self.strings)) * 4)
        self.call(lib.Archive_CloseEvtFiles, handle)
        self.call(lib.Archive_OpenDefFiles, handle)
        for location in self._files:
            local = self.call(lib.Archive_GetDefWriter, handle, location)
            self.call(lib.Archive_CloseDefWriter, handle, local)
        self.call(lib.Archive_CloseDefFiles, handle)
        self._definitions = self.call(lib.Archive_GetGlobalDefWriter, handle)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self.failure(error.strerror or str(error)) from error

    def define(self, what: str, *arguments: Any) -> None:
        """Write one global definition, with the fields of OTF2_GlobalDefWriter_Write`what`."""
        function = getattr(self.lib, f"GlobalDefWriter_Write{what}")
        self.call(function, self._definitions, *arguments)

    def mark_losses(self, rows: list[tuple[int, int, str]]) -> None:
        """Write markers of high severity, for all locations: (start ns, duration ns, text)."""
        lib = self.lib
        writer = self.call(lib.Archive_GetMarkerWriter, self.handle)
        high = lib.SEVERITY_HIGH
        self.call(lib.MarkerWriter_WriteDefMarker, writer, 0, "biotrail", "lost events", high)
        for start, duration, text in rows:
            scope = lib.MARKER_SCOPE_GLOBAL
            self.call(lib.MarkerWriter_WriteMarker, writer, start, duration, 0, scope, 0, text)
        self.call(lib.Archive_CloseMarkerWriter, self.handle, writer)

    def close(self) -> None:
        """End the definitions and the archive; only now can the archive be read."""
        lib, handle = self.lib, self.handle
        self.call(lib.Archive_CloseGlobalDefWriter, handle, self._definitions)
        self.call(lib.Archive_Close, handle)
        self._quiet.close()

    def abandon(self) -> None:
        """Remove the archive's files, and the directory if this archive created it."""
        self._quiet.close()
        for path in self.directory.glob(f"{NAME}*"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if not self._existed and self.directory.is_dir():
            self.directory.rmdir()
