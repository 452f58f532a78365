# SPDX-License-Identifier: Apache-2.0
"""Names of programs' functions, by build id and offset in the file.

A file is looked for among what running processes have mapped, and then, for programs that have
ended, among the commands on this machine. What it says is believed only where its build id is
the one that the kernel saw.
"""

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from biotrail.recorder.symbols.elf import Elf, NoElfError

_PROC = Path("/proc")
_DEBUG = Path("/usr/lib/debug/.build-id")
_COMMANDS = ("/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin", "/bin", "/sbin")
_MAPPED = re.compile(r"(\S+) ..x. \S+ (\S+) (\d+) +(/.*)")
_MAX_OPEN = 64
"""Programs whose files are kept open for the names in them."""
_MAX_SEEN = 1 << 16

BuildId = bytes


class UserSymbol(NamedTuple):
    """A place in a program: a function and bytes into it; without a name, bytes into the file."""

    name: str
    file: str
    offset: int


class _File:
    """One file whose functions are known."""

    def __init__(self, path: str, sources: list[Elf]) -> None:
        """`sources`: the file, and what else has its symbols. Raises NoElfError, OSError."""
        self.path = path
        self._elf = sources[0]
        self._sources = [(source, source.functions()) for source in sources]

    def find(self, offset: int, *, called: bool) -> UserSymbol:
        """The function at an offset."""
        back = 1 if called and offset else 0
        address = self._elf.address(offset - back)
        if address is None:
            return UserSymbol("", self.path, offset)
        for symbols, known in self._sources:
            at = int(np.searchsorted(known.address, np.uint64(address), side="right")) - 1
            into = address - int(known.address[at]) if at >= 0 else -1
            if at >= 0 and (into < int(known.size[at]) or not int(known.size[at])):
                name = symbols.text(int(known.names[at]))
                if name:
                    return UserSymbol(name, self.path, into + back)
        return UserSymbol("", self.path, offset)


class UserSymbols:
    """Everything found so far."""

    def __init__(
        self, known: Iterable[str] = (), proc: Path = _PROC, commands: Iterable[str] = _COMMANDS
    ) -> None:
        """Looks at what runs now, which may end soon, and at the files `known`.

        commands: directories to look into besides those of PATH.
        """
        self._proc = proc
        self._commands: Iterable[str] | None = (*os.environ.get("PATH", "").split(":"), *commands)
        self._where: dict[BuildId, tuple[str, str]] = {}
        """Path to open, and what the file is called."""
        self._seen: set[str] = set()
        self._files: dict[BuildId, _File | None] = {}
        self._note_mapped()
        for path in known:
            self._note(path, path, path)

    def look_for(self, wanted: Iterable[BuildId]) -> None:
        """Look for files that are not known yet; in vain, and they are not looked for again."""
        unknown = set(wanted) - self._files.keys()
        if unknown - self._where.keys():
            self._note_mapped()
        if unknown - self._where.keys() and self._commands is not None:
            self._note_commands(self._commands)
            self._commands = None
        for build_id in unknown:
            self._files[build_id] = self._open(build_id)

    def find(self, build_id: BuildId, offset: int, *, called: bool) -> UserSymbol:
        """The function at an offset. `called`: the offset is where a call returns to."""
        file = self._files.get(build_id)
        if file is None:
            return UserSymbol("", f"build id {build_id.hex()}", offset)
        return file.find(offset, called=called)

    def _open(self, build_id: BuildId) -> _File | None:
        found = self._where.get(build_id)
        if found is None or sum(f is not None for f in self._files.values()) >= _MAX_OPEN:
            return None
        for path in found:
            if (elf := _of_build_id(path, build_id)) is not None:
                sources = [elf]
                try:
                    more = elf.inner(), _of_build_id(_debug_path(build_id), build_id)
                    sources += [source for source in more if source is not None]
                    return _File(found[1], sources)
                except (OSError, NoElfError):  # its symbols are damaged
                    for source in sources:
                        source.close()
        return None

    def _note(self, key: str, path: str, name: str) -> None:
        """Remember the build id of the file at `path`, or at `name` where that may not be opened.

        key: of the file; it is looked at once.
        """
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
        for process in self._processes():
            with suppress(OSError):  # it has ended by now, or is not ours to look at
                text = (self._proc / process / "maps").read_text(errors="surrogateescape")
                for line in text.splitlines():
                    if match := _MAPPED.match(line):
                        span, dev, inode, path = match.groups()
                        # This is the file itself: also of another mount namespace, also deleted.
                        link = f"{self._proc}/{process}/map_files/{span}"
                        self._note(f"{dev} {inode}", link, path.removesuffix(" (deleted)"))

    def _processes(self) -> Iterator[str]:
        with suppress(OSError):
            yield from (name for name in os.listdir(self._proc) if name.isdecimal())

    def _note_commands(self, directories: Iterable[str]) -> None:
        for directory in dict.fromkeys(d for d in directories if d):
            with suppress(OSError), os.scandir(directory) as entries:
                for entry in entries:
                    self._note(entry.path, entry.path, entry.path)


def _debug_path(build_id: BuildId) -> Path:
    """Where a distribution's debug package puts the symbols that a program was stripped of."""
    text = build_id.hex()
    return _DEBUG / text[:2] / f"{text[2:]}.debug"


def _of_build_id(path: str | Path, build_id: BuildId) -> Elf | None:
    """The file at a path, open, where its build id is this one."""
    with suppress(OSError, NoElfError):
        elf = Elf(path)
        if elf.build_id() == build_id:
            return elf
        elf.close()
    return None
