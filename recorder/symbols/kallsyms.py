# SPDX-License-Identifier: Apache-2.0
"""The running kernel's function names by address, those of modules and BPF programs too."""

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KALLSYMS = Path("/proc/kallsyms")
_MODULES = Path("/proc/modules")
_ADDRESS_DIGITS = 16
_TYPE_AT = _ADDRESS_DIGITS + 1
_SAMPLE_BYTES = 1 << 20
"""Holds some function: data that each CPU has for itself stands before the first."""
_TEXT = np.frombuffer(b"tTwW", np.uint8)
_GLOBAL = np.frombuffer(b"TW", np.uint8)
_FAR = 1 << 20
"""No function is longer: what is so far behind one is in code that has no name."""


class Symbol(NamedTuple):
    """A function: its name, its module (empty: the kernel itself), bytes into it."""

    name: str
    module: str
    offset: int


class KernelSymbols:
    """A reading of /proc/kallsyms, kept as it is in the file: 200,000 lines in about 15 MB.

    Without CAP_SYSLOG, or with kernel.kptr_restrict=2, the kernel shows no addresses: then there
    are no symbols.
    """

    def __init__(self, text: bytes) -> None:
        """`text`: lines of address, type, name and, in brackets, module."""
        self._text = text
        characters = np.frombuffer(text, np.uint8)
        starts = np.concatenate([[0], np.flatnonzero(characters == ord("\n")) + 1])
        starts = starts[starts + _TYPE_AT < len(text)]
        kind = characters[starts + _TYPE_AT] if len(starts) else characters[:0]
        starts = starts[np.isin(kind, _TEXT)]
        address = _hexadecimal(characters, starts)
        starts, address = starts[address > 0], address[address > 0]
        # Of several names of one address, a global one.
        order = np.lexsort((np.isin(characters[starts + _TYPE_AT], _GLOBAL), address))
        self._starts: NDArray[np.int64] = starts[order]
        self._address: NDArray[np.uint64] = address[order]

    def __len__(self) -> int:
        return len(self._address)

    def find(self, address: int) -> Symbol | None:
        """The function that an address is in; None where there is none near."""
        at = int(np.searchsorted(self._address, np.uint64(address), side="right")) - 1
        if at < 0 or address - int(self._address[at]) > _FAR:
            return None
        start = int(self._starts[at]) + _TYPE_AT + 2
        end = self._text.find(b"\n", start)
        line = self._text[start : end if end >= 0 else None].decode(errors="replace")
        name, _, module = line.partition("\t")
        return Symbol(name, module.strip("[] "), address - int(self._address[at]))


def _hexadecimal(characters: NDArray[np.uint8], starts: NDArray[np.int64]) -> NDArray[np.uint64]:
    value = np.zeros(len(starts), np.uint64)
    for column in range(_ADDRESS_DIGITS):
        digit = characters[starts + column]
        # The letters' low four bits count from 1, and bit 6 tells them from digits.
        digit = (digit & 15) + 9 * (digit >> 6)
        value = value << np.uint64(4) | digit.astype(np.uint64)
    return value


class LiveKernelSymbols:
    """The kernel's symbols, read again when modules have come or gone."""

    def __init__(self) -> None:
        self._modules = b""
        self._symbols = KernelSymbols(b"")
        self.refresh()

    def refresh(self) -> None:
        """Read them unless the modules are as they were."""
        modules = _read(_MODULES)
        if not len(self._symbols) or modules != self._modules:
            self._modules = modules
            self._symbols = KernelSymbols(_read(_KALLSYMS))

    @property
    def known(self) -> bool:
        """Whether the kernel shows its addresses."""
        return len(self._symbols) > 0

    def find(self, address: int) -> Symbol | None:
        """As KernelSymbols'."""
        return self._symbols.find(address)


def address_of(name: str, path: Path = _KALLSYMS) -> int:
    """Address of a function of the kernel itself; 0: there is none, or addresses are hidden."""
    found = re.search(rf"^([0-9a-f]+) [tT] {re.escape(name)}$".encode(), _read(path), re.MULTILINE)
    return int(found[1], 16) if found else 0


def symbols_shown(path: Path = _KALLSYMS) -> bool:
    """Whether the kernel shows its addresses to this process."""
    try:
        with path.open("rb") as file:
            return len(KernelSymbols(file.read(_SAMPLE_BYTES))) > 0
    except OSError:
        return False


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # no such kernel option, or not ours to read
        return b""
