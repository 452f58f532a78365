# SPDX-License-Identifier: Apache-2.0
"""Plans what `biotrail follow` attaches: the sites that take a struct, and what each means.

Attaches nothing: `--dry-run` shows a plan.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.follow_structs import SITE_BIRTH, SITE_DEATH, SITE_LAST, SITE_NEW
from biotrail.recorder.schema.payloads import FollowFacts
from biotrail.recorder.sites.declarations import ANY, TYPED, ObjectType
from biotrail.recorder.sites.expressions import NO_VALUE, ObjectScope, Value
from biotrail.recorder.sites.types import Taking, TypeTable

_KALLSYMS = Path("/proc/kallsyms")
_TRACEABLE = "available_filter_functions"
_FUNCTION = re.compile(rb"^([0-9a-f]+) [tTwW] (\S+)(?:\t\[([^\]]+)\])?$", re.MULTILINE)
_LISTED = re.compile(rb"^(\S+)(?: \[([^\]]+)\])?$", re.MULTILINE)
_REFUSED = re.compile(r"^0x\S+\s+(\S+)$", re.MULTILINE)
_SUFFIX = re.compile(r"\.(?:isra|part|constprop|cold)\b")

# Why a function is not attached, as keys of `unseen`.
STACK = "the argument is not in a register"
SUFFIX = "only copies with a suffix (.isra, .part, .constprop)"
INLINED = "inlined everywhere"
AMBIGUOUS = "several functions have the name"
NOTRACE = "the kernel does not let it be traced (notrace)"
BLACKLISTED = "on the kernel's kprobes blacklist"

_REGISTERS = 6
"""Arguments that a site can read: those in the registers of x86-64's calling convention."""
_MAX_SITES = 65536
"""Sites that a HIT record can tell apart."""


@dataclass(frozen=True)
class KernelFunctions:
    """The kernel's own lists. Names of a module's functions have " [MODULE]" behind them.

    symbols: addresses of the functions of a name, 0: hidden; empty: not known. suffixed: names that
    only copies have, without the suffix. traceable: what ftrace can attach; None: the list cannot
    be read, as where the kernel has no function tracer. blacklist: what kprobes refuses. unread:
    lists that could not be read, and why.
    """

    symbols: Mapping[str, Sequence[int]]
    suffixed: frozenset[str]
    traceable: frozenset[str] | None
    blacklist: frozenset[str]
    unread: tuple[str, ...] = ()

    @classmethod
    def read(cls, tracefs: Path, blacklist: Path, kallsyms: Path = _KALLSYMS) -> Self:
        unread: list[str] = []

        def text(path: Path) -> bytes | None:
            try:
                return path.read_bytes()
            except OSError as error:
                unread.append(f"{path}: {error.strerror}")
                return None

        traceable = text(tracefs / _TRACEABLE)
        symbols: dict[str, list[int]] = {}
        for address, name, module in _FUNCTION.findall(text(kallsyms) or b""):
            symbols.setdefault(_name(name, module), []).append(int(address, 16))
        suffixed = {
            _SUFFIX.split(name)[0] + "".join(name.partition(" [")[1:])
            for name in symbols
            if "." in name
        }
        refused = _REFUSED.findall((text(blacklist) or b"").decode(errors="replace"))
        return cls(
            symbols,
            frozenset(suffixed - symbols.keys()),
            None
            if traceable is None
            else frozenset(_name(*found) for found in _LISTED.findall(traceable)),
            frozenset(refused),
            tuple(unread),
        )

    def attachable(self, takings: list[Taking]) -> tuple[list[Taking], dict[str, list[str]]]:
        """Return the functions that may be attached, and the names of all others by reason."""
        times = Counter((taking.module, taking.name) for taking in takings)
        good: list[Taking] = []
        unseen: dict[str, list[str]] = {}
        for taking in takings:
            addresses, reason = self.symbols.get(taking.symbol, ()), ""
            if not 0 <= taking.slot < _REGISTERS:
                reason = STACK
            elif self.symbols and not addresses:
                reason = SUFFIX if taking.symbol in self.suffixed else INLINED
            elif len(addresses) > 1:
                reason = AMBIGUOUS
            elif self.traceable is not None and taking.symbol not in self.traceable:
                reason = NOTRACE
            elif taking.name in self.blacklist:
                reason = BLACKLISTED
            elif times[taking.module, taking.name] > 1:
                reason = AMBIGUOUS
            if reason:
                unseen.setdefault(reason, []).append(taking.name)
            else:
                good.append(taking)
        return good, unseen


def _name(name: bytes, module: bytes) -> str:
    """Return a function's name, with " [MODULE]" if it is a module's."""
    return (name + b" [" + module + b"]" if module else name).decode(errors="replace")


@dataclass(frozen=True)
class PlannedSite:
    """A site to attach to.

    index: in the plan, and the header. meaning: for a life, by bits of SITE_BIRTH, SITE_NEW,
    SITE_DEATH and SITE_LAST (declarations.ObjectType). address: of a function's entry; 0: not
    known.
    """

    index: int
    taking: Taking
    way: str
    meaning: int = 0
    address: int = 0


@dataclass(frozen=True)
class FollowPlan:
    """The sites of a struct, functions first, and what is read of its objects."""

    struct: str
    way: str
    """How functions are attached; "typed": only tracepoints are."""
    sites: tuple[PlannedSite, ...]
    unseen: dict[str, list[str]] = field(default_factory=dict)
    """Names of functions that cannot be attached, by reason."""
    detail: Value = NO_VALUE
    detail_unit: str = ""
    device: Value = NO_VALUE
    process: Value = NO_VALUE

    @property
    def functions(self) -> tuple[PlannedSite, ...]:
        return tuple(site for site in self.sites if site.taking.kind == "function")

    @property
    def tracepoints(self) -> tuple[PlannedSite, ...]:
        return tuple(site for site in self.sites if site.taking.kind == "tracepoint")

    def named(self, meaning: int) -> list[str]:
        return sorted({site.taking.name for site in self.sites if site.meaning & meaning})

    def without(self, refused: dict[str, list[str]]) -> "FollowPlan":
        """Return the plan with refused functions among the unseen; they keep their sites."""
        unseen = {reason: list(names) for reason, names in self.unseen.items()}
        for reason, names in refused.items():
            unseen[reason] = unseen.get(reason, []) + names
        return replace(self, unseen=unseen)

    def facts(self) -> FollowFacts:
        """Return the header's entry `sites.follow`, without what the user chose of objects."""
        return {
            "type": self.struct,
            "way": self.way,
            "sites": [
                {
                    "name": site.taking.shown,
                    "kind": site.taking.kind,
                    "module": site.taking.module,
                    "argument": site.taking.argument,
                    "way": site.way,
                }
                for site in self.sites
            ],
            "births": self.named(SITE_BIRTH),
            "deaths": self.named(SITE_DEATH),
            "detail": self.detail.text,
            "detail_unit": self.detail_unit,
            "unseen": {reason: len(names) for reason, names in self.unseen.items()},
        }


def plan(
    types: TypeTable,
    declared: ObjectType,
    way: str,
    kernel: KernelFunctions | None,
    max_functions: int,
) -> FollowPlan:
    """kernel: its lists of functions; None with the way "typed". Raises SiteError."""
    struct = declared.name
    tracepoints = types.tracepoints_taking(struct)
    functions: list[Taking] = []
    unseen: dict[str, list[str]] = {}
    taking = types.functions_taking(struct)
    if way != TYPED and kernel is not None:
        functions, unseen = kernel.attachable(taking)
        if len(functions) > min(max_functions, _MAX_SITES // 2):
            raise SiteError(
                f"{len(functions)} functions take a struct {struct}, more than "
                f"--max-functions ({max_functions}): raise it if this host bears their cost, or "
                "follow tracepoints alone (--way typed)"
            )
    if not functions and not tracepoints:
        if way == TYPED and taking:
            raise SiteError(
                f"no typed tracepoint takes a struct {struct}, and this kernel lets no "
                f"functions be attached, of which {len(taking)} take it: `biotrail doctor` says why"
            )
        raise SiteError(f"no function or typed tracepoint takes a struct {struct}")
    scope = ObjectScope(types, struct)
    return FollowPlan(
        struct,
        way if functions else TYPED,
        _sites([*functions, *tracepoints], way, declared, kernel.symbols if kernel else {}),
        unseen,
        _value(scope, declared.detail),
        declared.detail_unit,
        _value(scope, declared.device),
        _value(scope, declared.process),
    )


def _sites(
    takings: list[Taking], way: str, declared: ObjectType, symbols: Mapping[str, Sequence[int]]
) -> tuple[PlannedSite, ...]:
    """Return the sites with what the declaration says of them.

    Where none of the births is there, lives begin anywhere. Where none of the deaths is, the first
    of `last` that is there stands for them. Tracepoints of `new` count where none of its functions
    is there: they come later in the life that such a function has begun.
    """
    # A tracepoint counts with any system.
    names = [f":{one.name}" if one.kind == "tracepoint" else one.name for one in takings]

    def known(sites: Iterable[str]) -> list[str]:
        short = [":" + site.rpartition(":")[2] if ":" in site else site for site in sites]
        return [name for name in short if name in there or name == ANY]

    there = set(names)
    births, last, new = known(declared.births), known(declared.last), known(declared.new)
    deaths = known(declared.deaths) or last[:1]
    new = [name for name in new if not name.startswith(":")] or new
    anywhere = ANY in births or not (births or new)
    sites = []
    for index, (taking, name) in enumerate(zip(takings, names, strict=True)):
        meaning = SITE_BIRTH if anywhere or name in births or name in new else 0
        meaning |= SITE_NEW * (name in new) | SITE_DEATH * (name in deaths)
        meaning |= SITE_LAST * (name in last)
        if taking.kind == "function":
            address, *_ = symbols.get(taking.symbol, (0,))
            sites.append(PlannedSite(index, taking, way, meaning, address))
        else:
            sites.append(PlannedSite(index, taking, TYPED, meaning))
    return tuple(sites)


def _value(scope: ObjectScope, alternatives: Iterable[str]) -> Value:
    """Compile the first expression that this kernel's struct has."""
    for text in alternatives:
        try:
            return scope.value(text)
        except SiteError:
            continue
    return NO_VALUE
