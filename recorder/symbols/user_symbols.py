# SPDX-License-Identifier: Apache-2.0
"""Function names of user-space programs, by build id and offset in the file.

A file is searched among those that running processes have mapped and then, for programs that have
ended, in the directories of commands. Its symbols are used only if its build id is the one that
the kernel recorded.
"""

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biotrail.recorder.symbols.elf import Elf, Functions, NoElfError

_PROC = Path("/proc")
_DEBUG = Path("/usr/lib/debug/.build-id")
_COMMANDS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin")
_MAPPED = re.compile(r"(\S+) ..x. \S+ (\S+) (\d+) +(/.*)")
_MAX_OPEN = 64
"""Most files that are kept open to read function names from."""
_MAX_SEEN = 1 << 16
"""Most files whose build id is read."""

BuildId = bytes


class UserSymbol(NamedTuple):
    """A place in a program: function `name`, `file`, and `offset` in bytes into the function.

    name: "" where it is not known; then `offset` is in the file. file: its path, or "build id …"
    where no file was found.
    """

    name: str
    file: str
    offset: int


class _File(NamedTuple):
    """An open program or library: the path to show, and the functions in it.

    sources: the file itself, then its symbol files. They stay open: names are read from them.
    """

    path: str
    sources: list[tuple[Elf, Functions]]


class UserSymbols:
    """Finds and keeps the files of programs, and the functions in them."""

    def __init__(
        self, known: Iterable[str] = (), proc: Path = _PROC, commands: Iterable[str] = _COMMANDS
    ) -> None:
        """Read the build ids of files that processes have mapped as executable, then of `known`.

        `commands`: directories of commands, searched by `look_for` after those of PATH. No file
        stays open.
        """
        self._proc = proc
        self._commands: Iterable[str] | None = (*os.environ.get("PATH", "").split(":"), *commands)
        self._where: dict[BuildId, tuple[str, str]] = {}
        """Build id → (path to open, path to show)."""
        self._seen: set[str] = set()
        self._files: dict[BuildId, _File | None] = {}
        self._note_mapped()
        for path in known:
            self._note(path, path, path)

    def look_for(self, wanted: Iterable[BuildId]) -> None:
        """Find and open the files with build ids `wanted`, for `find`; each is searched once."""
        unknown = set(wanted) - self._files.keys()
        if unknown - self._where.keys():
            self._note_mapped()
        if unknown - self._where.keys() and self._commands is not None:
            for directory in dict.fromkeys(d for d in self._commands if d):
                with suppress(OSError), os.scandir(directory) as entries:
                    for entry in entries:
                        self._note(entry.path, entry.path, entry.path)
            self._commands = None
        for build_id in unknown:
            self._files[build_id] = self._open(build_id)

    def find(self, build_id: BuildId, offset: int, *, called: bool) -> UserSymbol:
        """Return the function at an offset of the file, by the first of its sources that has one.

        `called`: the offset is a return address; the byte before it is looked up, but the result's
        offset is that of the return address. A function of size 0 reaches up to the next.
        """
        file = self._files.get(build_id)
        if file is None:
            return UserSymbol("", f"build id {build_id.hex()}", offset)
        back = 1 if called and offset else 0
        address = file.sources[0][0].address(offset - back)
        if address is None:
            return UserSymbol("", file.path, offset)
        for symbols, functions in file.sources:
            row = int(np.searchsorted(functions.address, np.uint64(address), side="right")) - 1
            into = address - int(functions.address[row]) if row >= 0 else -1
            if row >= 0 and (into < int(functions.size[row]) or not int(functions.size[row])):
                name = symbols.text(int(functions.names[row]))
                if name:
                    return UserSymbol(name, file.path, into + back)
        return UserSymbol("", file.path, offset)

    def _open(self, build_id: BuildId) -> _File | None:
        """Return the file with `build_id`, opened, with its debug symbols where there are any.

        Tried where it was read (a link in map_files, which deleted files have too), then at the
        path to show. None: not found, not readable or damaged, or _MAX_OPEN files are open.
        """
        found = self._where.get(build_id)
        if found is None or sum(f is not None for f in self._files.values()) >= _MAX_OPEN:
            return None
        for path in found:
            if (elf := _of_build_id(path, build_id)) is not None:
                sources = [elf]
                try:
                    text = build_id.hex()
                    debug = _DEBUG / text[:2] / f"{text[2:]}.debug"
                    more = elf.inner(), _of_build_id(debug, build_id)
                    sources += [source for source in more if source is not None]
                    return _File(found[1], [(source, source.functions()) for source in sources])
                except (OSError, NoElfError):  # its symbols are damaged
                    for source in sources:
                        source.close()
        return None

    def _note(self, key: str, path: str, name: str) -> None:
        """Add the build id of the file at `path`, else at `name` (as shown), once for a `key`."""
        if key in self._seen or len(self._seen) >= _MAX_SEEN:
            return
        self._seen.add(key)
        for place in dict.fromkeys((path, name)):
            with suppress(OSError, NoElfError):
                elf = Elf(place)
                try:
                    if build_id := elf.build_id():
                        self._where.setdefault(build_id, (place, name))
                finally:
                    elf.close()
                return

    def _note_mapped(self) -> None:
        """Add the build ids of the files that running processes have mapped as executable."""
        processes: list[str] = []
        with suppress(OSError):
            processes = [name for name in os.listdir(self._proc) if name.isdecimal()]
        for process in processes:
            with suppress(OSError):  # the process has ended, or may not be read
                text = (self._proc / process / "maps").read_bytes()
                # In paths the kernel escapes line feeds alone, so nothing else ends a line.
                for line in os.fsdecode(text).split("\n"):
                    if match := _MAPPED.match(line):
                        span, dev, inode, path = match.groups()
                        # The link opens the mapped file itself, even if it was deleted or is
                        # in another mount namespace.
                        link = f"{self._proc}/{process}/map_files/{span}"
                        self._note(f"{dev} {inode}", link, path.removesuffix(" (deleted)"))


def _of_build_id(path: str | Path, build_id: BuildId) -> Elf | None:
    """Return the file at a path, open, if it has this build id; else None."""
    with suppress(OSError, NoElfError):
        elf = Elf(path)
        if elf.build_id() == build_id:
            return elf
        elf.close()
    return None
