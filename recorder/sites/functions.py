# SPDX-License-Identifier: Apache-2.0
"""Which functions a program may be attached to, by what the kernel lists of them.

BTF names functions that cannot be attached: inlined everywhere, notrace, copied under names with
a suffix, or several of one name. Each is counted under one reason; none is left out silently.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from biotrail.recorder.sites.types import Taking

_KALLSYMS = Path("/proc/kallsyms")
_BLACKLIST = Path("/sys/kernel/debug/kprobes/blacklist")
_TRACEABLE = "available_filter_functions"
_FUNCTION = re.compile(rb"^[0-9a-f]+ [tTwW] (\S+)(?:\t\[([^\]]+)\])?$", re.MULTILINE)
_LISTED = re.compile(rb"^(\S+)(?: \[([^\]]+)\])?$", re.MULTILINE)
_REFUSED = re.compile(r"^0x\S+\s+(\S+)$", re.MULTILINE)
_SUFFIX = re.compile(r"\.(?:isra|part|constprop|cold)\b")

STACK = "the argument is not in a register"
SUFFIX = "only copies with a suffix (.isra, .part, .constprop)"
INLINED = "inlined everywhere"
AMBIGUOUS = "several functions have the name"
NOTRACE = "the kernel does not let it be traced (notrace)"
BLACKLISTED = "on the kernel's kprobes blacklist"
REASONS = (STACK, SUFFIX, INLINED, AMBIGUOUS, NOTRACE, BLACKLISTED)
"""Why a function is not attached, as keys of `unseen`."""


@dataclass(frozen=True)
class KernelFunctions:
    """The kernel's own lists. Names of a module's functions have " [MODULE]" behind them.

    symbols: how many functions have a name; empty: not known. suffixed: names that only copies
    have, without the suffix. traceable: what ftrace can attach; None: the list cannot be read, as
    where the kernel has no function tracer. blacklist: what kprobes refuses. unread: lists that
    could not be read, and why.
    """

    symbols: Counter[str]
    suffixed: frozenset[str]
    traceable: frozenset[str] | None
    blacklist: frozenset[str]
    unread: tuple[str, ...] = ()

    @classmethod
    def read(
        cls, tracefs: Path | None, kallsyms: Path = _KALLSYMS, blacklist: Path = _BLACKLIST
    ) -> Self:
        """Read the lists that can be read. tracefs: where it is mounted; None: nowhere."""
        unread: list[str] = []
        traceable = _read(tracefs / _TRACEABLE, unread) if tracefs else None
        symbols = _names(_FUNCTION, _read(kallsyms, unread) or b"")
        listed = None if traceable is None else frozenset(_names(_LISTED, traceable))
        suffixed = {_SUFFIX.split(name)[0] + _module(name) for name in symbols if "." in name}
        refused = _REFUSED.findall((_read(blacklist, unread) or b"").decode(errors="replace"))
        return cls(
            Counter(symbols),
            frozenset(suffixed - set(symbols)),
            listed,
            frozenset(refused),
            tuple(unread),
        )

    def refusal(self, taking: Taking) -> str:
        """Return why a function cannot be attached, one of REASONS; "": it may be."""
        name = f"{taking.name} [{taking.module}]" if taking.module else taking.name
        if not taking.in_register:
            return STACK
        if self.symbols and not self.symbols[name]:
            return SUFFIX if name in self.suffixed else INLINED
        if self.symbols[name] > 1:
            return AMBIGUOUS
        if self.traceable is not None and name not in self.traceable:
            return NOTRACE
        return BLACKLISTED if taking.name in self.blacklist else ""

    def attachable(self, takings: Iterable[Taking]) -> tuple[list[Taking], dict[str, list[str]]]:
        """Return the functions that may be attached, and the names of all others by reason.

        A name that occurs twice among the takings of a module is ambiguous too.
        """
        takings = list(takings)
        times = Counter((taking.module, taking.name) for taking in takings)
        good: list[Taking] = []
        unseen: dict[str, list[str]] = {}
        for taking in takings:
            reason = self.refusal(taking)
            if not reason and times[taking.module, taking.name] > 1:
                reason = AMBIGUOUS
            if reason:
                unseen.setdefault(reason, []).append(taking.name)
            else:
                good.append(taking)
        return good, unseen


def _read(path: Path, unread: list[str]) -> bytes | None:
    """Return what a list holds; None: it cannot be read, and is added to `unread`."""
    try:
        return path.read_bytes()
    except OSError as error:
        unread.append(f"{path}: {error.strerror}")
        return None


def _names(pattern: re.Pattern[bytes], text: bytes) -> list[str]:
    """Return the function of each line that fits, with " [MODULE]" if it is a module's."""
    return [
        (name + b" [" + module + b"]" if module else name).decode(errors="replace")
        for name, module in pattern.findall(text)
    ]


def _module(name: str) -> str:
    """Return " [MODULE]" of a listed name, or ""."""
    return name[name.index(" [") :] if " [" in name else ""
