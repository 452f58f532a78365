# SPDX-License-Identifier: Apache-2.0
"""What a declaration holds: pairs of events, and types of objects that can be followed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Way = Literal["", "typed", "format"]
"""How a variant's expressions are meant: arguments by BTF, fields by the format, or either ("")."""
ANY = "*"
"""In `births`: a life begins at any hit of an address that is not followed."""


@dataclass(frozen=True)
class Event:
    """One event of a pair, with expressions for it alone.

    event: tracepoint, "system:name". key, process: "" or empty: those of the variant. where:
    conditions beside the variant's.
    """

    event: str
    key: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True)
class Variant:
    """A way to time a pair. Kernels differ, so a pair has several; the first that works is taken.

    begins: one or more events; any of them begins a pair. key: one or two expressions, each
    "BEGIN|END" or one for both. by, device: alternatives; the first that the begin or, if none, the
    end has. by: also "LABEL=EXPRESSION", as it is shown. where: conditions on the begin or, where
    it has no such field, on the end. process: the process that the pair belongs to, as a key; "":
    the one that runs at the begin.
    """

    begins: tuple[Event, ...]
    end: Event
    key: tuple[str, ...]
    way: Way = ""
    by: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True)
class Pair:
    """A pair by its name.

    names: of values of `by` and of a key that is the same. show: how these are shown otherwise; "":
    as their type says, else dec, signed, hex, dev or symbol (the address of a function). origin:
    the file that declares it.
    """

    name: str
    about: str
    variants: tuple[Variant, ...]
    names: Mapping[int, str] = field(default_factory=dict)
    show: str = ""
    origin: str = ""


@dataclass(frozen=True)
class ObjectType:
    """A struct whose objects can be followed.

    Sites are functions by name and tracepoints as "system:name"; those that a kernel does not have
    do not count. births: a life begins there if the object is not followed (ANY: at any hit).
    new: the address certainly begins a new life, so a life under it has ended before. deaths: it
    ends. last: it may be the life's last hit: the next of births begins another life. detail,
    device, process: expressions of the object, alternatives; process: of the process that --pid
    compares; empty: the one that runs.
    """

    name: str
    about: str = ""
    births: tuple[str, ...] = (ANY,)
    new: tuple[str, ...] = ()
    deaths: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    detail: tuple[str, ...] = ()
    detail_unit: str = ""
    device: tuple[str, ...] = ()
    process: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class Declarations:
    """All pairs and types by name, the user's own before the ready-made ones of the same name."""

    pairs: Mapping[str, Pair]
    types: Mapping[str, ObjectType]

    def type(self, struct: str) -> ObjectType:
        """Return a type's declaration; of a struct without one, what holds for any.

        Any hit begins its life, and only an idle time ends it.
        """
        return self.types.get(struct) or ObjectType(struct)
