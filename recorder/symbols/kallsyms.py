# SPDX-License-Identifier: Apache-2.0
"""Function names of the running kernel by address, including modules and BPF programs."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KALLSYMS = Path("/proc/kallsyms")
_MODULES = Path("/proc/modules")
_ADDRESS_DIGITS = 16
_TYPE_AT = _ADDRESS_DIGITS + 1
_NAME_AT = _TYPE_AT + 2
_SAMPLE_BYTES = 1 << 20
"""Bytes of kallsyms that contain some function; per-CPU data is listed before the first."""
_IS_TEXT = np.zeros(256, np.bool_)  # np.isin takes 60 ms at its first call, for np.ma
_IS_TEXT[list(b"tTwW")] = True
_IS_GLOBAL = np.zeros(256, np.bool_)
_IS_GLOBAL[list(b"TW")] = True
_MOST_FOUND = 1 << 16
"""Addresses whose functions are remembered: stacks have few that differ, which take 30 µs each."""
_FAR = 1 << 20
"""Longest function in bytes: an address further behind a symbol is in code without a name."""


class Symbol(NamedTuple):
    """A place in a function: its name, its module ("": the kernel itself), bytes into it."""

    name: str
    module: str
    offset: int


class KernelSymbols:
    """Functions by address; keeps the text of /proc/kallsyms: 200,000 lines in about 15 MB.

    Empty (len 0) where the kernel hides addresses: without CAP_SYSLOG, or with kptr_restrict=2.
    """

    def __init__(self, text: bytes | None = None) -> None:
        """text: lines as in /proc/kallsyms; None: of the running kernel, which `refresh` reads."""
        self._modules = b""
        self._found: dict[int, Symbol | None] = {}
        self._index(text or b"")
        if text is None:
            self.refresh()

    def refresh(self) -> None:
        """Read the symbols again if /proc/modules has changed, or there were no symbols."""
        modules = _read(_MODULES)
        if not len(self) or modules != self._modules:
            self._modules = modules
            self._index(read_symbols())
            self._found.clear()

    def _index(self, text: bytes) -> None:
        """Index the functions in `text`.

        Functions are symbols of the types t, T, w and W, but for those of address 0 and the mapping
        symbols of arm64 ("$x" begins code, "$d" data in it), which some kernels list among them.
        """
        self._text = text
        characters = np.frombuffer(text, np.uint8)
        starts = np.concatenate([[0], np.flatnonzero(characters == ord("\n")) + 1])
        starts = starts[starts + _TYPE_AT < len(text)]
        kind = characters[starts + _TYPE_AT] if len(starts) else characters[:0]
        starts = starts[_IS_TEXT.take(kind)]
        # No name of C or of the compiler's begins with a $ (include/linux/module_symbol.h).
        first = np.minimum(starts + _NAME_AT, len(text) - 1)
        starts = starts[characters[first] != ord("$")]
        address = np.zeros(len(starts), np.uint64)
        for column in range(_ADDRESS_DIGITS):
            digit = characters[starts + column]
            # In ASCII, bit 6 is set for letters only, and the low four bits of "a" are 1.
            digit = (digit & 15) + 9 * (digit >> 6)
            address = address << np.uint64(4) | digit.astype(np.uint64)
        starts, address = starts[address > 0], address[address > 0]
        # Of several names of one address, `find` uses the last: a global one, if there is one.
        order = np.lexsort((_IS_GLOBAL.take(characters[starts + _TYPE_AT]), address))
        self._starts: NDArray[np.int64] = starts[order]
        """Index in `text` of each function's line."""
        self._address: NDArray[np.uint64] = address[order]
        """Ascending."""

    def __len__(self) -> int:
        return len(self._address)

    def find(self, address: int) -> Symbol | None:
        """Return the last function that starts at or before `address`; its end is not known.

        Of several with one address, a global one (T, W) if there is one. None: it starts more than
        _FAR before, or there is none.
        """
        if address in self._found:
            return self._found[address]
        if len(self._found) >= _MOST_FOUND:
            self._found.clear()
        self._found[address] = None
        row = int(np.searchsorted(self._address, np.uint64(address), side="right")) - 1
        if row < 0 or address - int(self._address[row]) > _FAR:
            return None
        start = int(self._starts[row]) + _NAME_AT
        end = self._text.find(b"\n", start)
        line = self._text[start : end if end >= 0 else None].decode(errors="replace")
        name, _, module = line.partition("\t")
        found = Symbol(name, module.strip("[] "), address - int(self._address[row]))
        self._found[address] = found
        return found


def address_of(name: str, path: Path = _KALLSYMS) -> int:
    """Return the address of the kernel's own first function (t, T) of this name; 0: none."""
    return next((at for at, module in functions_named(name, read_symbols(path)) if not module), 0)


def addresses_of(names: Iterable[str], path: Path = _KALLSYMS) -> dict[str, int]:
    """Return the addresses of functions, also of modules, by name; those not shown have no key."""
    text, found = read_symbols(path), {}
    for name in names:
        if address := next((at for at, _ in functions_named(name, text)), 0):
            found[name] = address
    return found


def functions_named(name: str, text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield (address, module with its brackets) of each function, t or T, of this name.

    address: 0: hidden. A search for the name is twenty times as fast as one for a line by a regular
    expression.
    """
    at, wanted = -1, b" " + name.encode()
    while (at := text.find(wanted, at + 1)) >= 0:
        end = at + len(wanted)
        begin = text.rfind(b"\n", 0, at) + 1
        address, _, kind = text[begin:at].partition(b" ")
        if text[end : end + 1] in (b"", b"\n", b"\t") and kind in (b"t", b"T"):
            line_end = text.find(b"\n", end)
            yield int(address, 16), text[end : line_end if line_end >= 0 else None].strip()


def symbols_shown(path: Path = _KALLSYMS) -> bool:
    """Return whether the kernel shows this process addresses: one in _SAMPLE_BYTES is enough."""
    try:
        with path.open("rb") as file:
            return len(KernelSymbols(file.read(_SAMPLE_BYTES))) > 0
    except OSError:
        return False


_readings: dict[Path, bytes] | None = None
"""What `read_once` shares; None: each look-up reads."""


@contextmanager
def read_once() -> Iterator[None]:
    """Have look-ups of the block share one reading of /proc/kallsyms, which takes 40 ms.

    What is loaded meanwhile is not seen. For one thread.
    """
    global _readings  # noqa: PLW0603
    _readings = {}
    try:
        yield
    finally:
        _readings = None


def read_symbols(path: Path = _KALLSYMS) -> bytes:
    """Return the text of kallsyms; empty where it cannot be read."""
    if _readings is None:
        return _read(path)
    if path not in _readings:
        _readings[path] = _read(path)
    return _readings[path]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # the kernel lacks the file (CONFIG_KALLSYMS), or reading is not permitted
        return b""
