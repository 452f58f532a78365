# SPDX-License-Identifier: Apache-2.0
"""Declarations of pairs and types, ready-made and a user's own, and what a kernel has of pairs.

docs/declarations.md says what each key holds. A user's file is read by root, so its size is
bounded, it has to be a regular file, and what is wrong in it is one message.
"""

import os
import pwd
import re
import stat
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn

from biotrail.recorder.schema.errors import DeclarationError, SiteError
from biotrail.recorder.sites.expressions import (
    NO_VALUE,
    Condition,
    Scope,
    Value,
    choices,
    sides,
)

TYPED, FORMAT = "typed", "format"
"""How a variant's expressions are meant, and a tracepoint is attached to: arguments by their types
(BTF), which is cheaper, or fields by the record's format; "": either."""
ANY = "*"
"""In `births`: a life begins at any hit of an address that is not followed."""


@dataclass(frozen=True)
class Event:
    """Its own key, process and conditions; without the first two, those of the variant."""

    event: str
    key: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True)
class Variant:
    """A way to time a pair. Kernels differ: of several, the first that works is taken."""

    begins: tuple[Event, ...]
    end: Event
    key: tuple[str, ...]
    way: str = ""
    by: tuple[str, ...] = ()
    device: tuple[str, ...] = ()
    where: tuple[str, ...] = ()
    process: str = ""


@dataclass(frozen=True)
class Pair:
    """origin: the file that declares it."""

    name: str
    about: str
    variants: tuple[Variant, ...]
    names: Mapping[int, str] = field(default_factory=dict)
    show: str = ""
    origin: str = ""


@dataclass(frozen=True)
class ObjectType:
    """A struct whose objects can be followed; by default, any hit begins a life."""

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
    """The user's own before the ready-made ones of the same name."""

    pairs: Mapping[str, Pair]
    types: Mapping[str, ObjectType]


Scopes = Callable[[str], Mapping[str, Scope]]
"""What names mean at a tracepoint ("system:name"), by way. Raises SiteError: there is none."""
READY_MADE = Path(__file__).with_name("declarations.toml")
_OWN = Path("biotrail") / "pairs.toml"
_MAX_BYTES = 1 << 18
_MAX_TEXT = 300
_MAX_LIST = 64
_MAX_NAMES = 256
KEYS = 2
"""Expressions that a pair's key may have: PAIR records hold so many."""
SHOWS = ("dec", "signed", "hex", "dev", "symbol")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_STRUCT = re.compile(r"[A-Za-z_]\w{0,63}")
_TRACEPOINT = re.compile(r"[A-Za-z0-9_-]{1,64}:\w{1,128}")
_SITE = re.compile(r"(?:[A-Za-z0-9_-]{1,64}:)?[\w.]{1,128}|\*")
_PAIR_KEYS = ("about", "names", "show", "variants")
# Keys that have a text (str), or one or several (tuple).
_VARIANT = {"key": tuple, "way": str, "by": tuple, "device": tuple, "where": tuple, "process": str}
_EVENT = {"event": str, "key": tuple, "where": tuple, "process": str}
_SITE_LISTS = ("births", "new", "deaths", "last")
_TYPE = {
    **dict.fromkeys((*_SITE_LISTS, "detail", "device", "process"), tuple),
    **dict.fromkeys(("about", "detail_unit"), str),
}
_VARIANT_KEYS = ("begin", "end", *_VARIANT)

Table = Mapping[str, Any]


class _Place:
    """Where in a file a value stands, for messages."""

    def __init__(self, file: str, table: str) -> None:
        self.file, self.table = file, table

    def wrong(self, key: str, reason: str) -> NoReturn:
        """Raise DeclarationError about a key of this table; key "": about the table."""
        raise DeclarationError(f"{self.file}: [{self.table}]{f', {key}' if key else ''}: {reason}")

    def only(self, table: Any, known: Collection[str]) -> Table:
        if not isinstance(table, dict):
            self.wrong("", f"is {_shown(table)}, not a table")
        for key in table:
            if key not in known:
                self.wrong(key, f"no such key; {choices(key, known, 'keys')}")
        return table

    def text(self, table: Table, key: str, default: str | None = "") -> str:
        value = table.get(key, default)
        if value is None:
            self.wrong(key, "is missing")
        if not isinstance(value, str):
            self.wrong(key, f"is {_shown(value)}, not a text")
        if len(value) > _MAX_TEXT or not value.isprintable():
            self.wrong(key, f"is longer than {_MAX_TEXT} characters, or has some that do not print")
        return value

    def texts(self, table: Table, key: str) -> tuple[str, ...]:
        """Return a list of strings; a single one is a list of one, a missing one is empty."""
        value = table.get(key, [])
        values = value if isinstance(value, list) else [value]
        if len(values) > _MAX_LIST:
            self.wrong(key, f"has more than {_MAX_LIST} elements")
        found = tuple(self.text({key: one}, key) for one in values)
        if any(not one.strip() for one in found):
            self.wrong(key, "is empty")
        return found

    def values(self, table: Table, kinds: Mapping[str, type]) -> dict[str, Any]:
        return {
            key: self.text(table, key) if kind is str else self.texts(table, key)
            for key, kind in kinds.items()
        }


def _shown(value: Any) -> str:
    return {bool: "true or false", int: "a number", list: "a list", dict: "a table"}.get(
        type(value), f"a {type(value).__name__}"
    )


def load(own: Path | None = None) -> Declarations:
    """Return the ready-made declarations and the user's: of the file `own`, or of `own_file()`."""
    ready = read(READY_MADE)
    mine = read(own or own_file(), missing=True)
    return Declarations({**ready.pairs, **mine.pairs}, {**ready.types, **mine.types})


def own_file() -> Path:
    """Return where a user's declarations are: ~/.config/biotrail/pairs.toml, if there are any.

    XDG_CONFIG_HOME counts. Under sudo it is the invoking user's directory, and XDG_CONFIG_HOME,
    which then would be root's, does not.
    """
    user = os.environ.get("SUDO_UID", "")
    if os.geteuid() == 0 and user.isascii() and user.isdigit() and user.strip("0"):
        try:
            return Path(pwd.getpwuid(int(user)).pw_dir) / ".config" / _OWN
        except (KeyError, OverflowError, ValueError):
            pass
    base = os.environ.get("XDG_CONFIG_HOME", "")
    # The specification (XDG base directories) ignores relative paths.
    return (Path(base) if base.startswith("/") else Path.home() / ".config") / _OWN


def read(path: Path, missing: bool = False) -> Declarations:
    """missing: an absent file declares nothing. Raises DeclarationError."""
    try:
        # O_NONBLOCK: opening a FIFO must not wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        with os.fdopen(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise DeclarationError(f"{path}: is no regular file")
            data = stream.read(_MAX_BYTES + 1)
    except FileNotFoundError:
        if missing:
            return Declarations({}, {})
        raise DeclarationError(f"{path}: there is no such file") from None
    except OSError as error:
        raise DeclarationError(f"{path}: cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise DeclarationError(f"{path}: has more than {_MAX_BYTES >> 10} KiB")
    try:
        content = tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:  # a number of thousands of digits, too
        raise DeclarationError(f"{path}: is no TOML: {error}") from error
    return parse(content, str(path))


def parse(content: Table, origin: str) -> Declarations:
    _Place(origin, "file").only(content, ("pairs", "types"))
    for key, form in (("pairs", _NAME), ("types", _STRUCT)):
        place, tables = _Place(origin, key), content.get(key, {})
        if not isinstance(tables, dict):
            place.wrong("", f"is {_shown(tables)}, not a table")
        for name in tables:
            if not form.fullmatch(name):
                place.wrong(name, f"is no name for an entry of {key}: {form.pattern}")
    pairs, types = content.get("pairs", {}), content.get("types", {})
    return Declarations(
        {n: _pair(n, table, _Place(origin, f"pairs.{n}")) for n, table in pairs.items()},
        {n: _type(n, table, _Place(origin, f"types.{n}")) for n, table in types.items()},
    )


def _pair(name: str, table: Any, place: _Place) -> Pair:
    table = place.only(table, (*_PAIR_KEYS, *_VARIANT_KEYS))
    show = place.text(table, "show")
    if show and show not in SHOWS:
        place.wrong("show", f"'{show}' is none of {', '.join(SHOWS)}")
    variants = table.get("variants", [{}])
    if not isinstance(variants, list) or not 0 < len(variants) <= _MAX_LIST:
        place.wrong("variants", "is no list of tables")
    common = {key: table[key] for key in _VARIANT_KEYS if key in table}
    found = []
    for number, variant in enumerate(variants):
        at = place
        if "variants" in table:
            at = _Place(place.file, f"{place.table}.variants[{number}]")
        found.append(_variant({**common, **at.only(variant, _VARIANT_KEYS)}, at))
    texts = table.get("names", {})
    if not isinstance(texts, dict) or len(texts) > _MAX_NAMES:
        place.wrong("names", f"is no table of up to {_MAX_NAMES} names by number")
    names = {}
    for number in texts:
        if not re.fullmatch(r"\d{1,19}", number):
            place.wrong("names", f"'{number}' is no number")
        names[int(number)] = _Place(place.file, f"{place.table}.names").text(texts, number)
    return Pair(name, place.text(table, "about"), tuple(found), names, show, place.file)


def _variant(table: Table, place: _Place) -> Variant:
    begins = table.get("begin")
    if begins is None or begins == []:
        place.wrong("begin", "is missing")
    given = place.values(table, _VARIANT)
    way, key = given["way"], given["key"]
    if way not in ("", TYPED, FORMAT):
        place.wrong("way", f"'{way}' is neither typed nor format")
    events = tuple(
        _event(one, "begin", place) for one in (begins if isinstance(begins, list) else [begins])
    )
    if "end" not in table:
        place.wrong("end", "is missing")
    end = _event(table["end"], "end", place)
    counts = {len(event.key or key) for event in (*events, end)}
    if len(counts) > 1 or not 0 < min(counts) <= KEYS:
        place.wrong("key", f"has to have one expression or {KEYS}, as many for each event")
    return Variant(events, end, **given)


def _event(value: Any, key: str, place: _Place) -> Event:
    table: Table = {"event": value}
    if isinstance(value, dict):
        table = _Place(place.file, f"{place.table}.{key}").only(value, _EVENT)
    name = place.text(table, "event", None)
    if not _TRACEPOINT.fullmatch(name):
        place.wrong(key, f"'{name}' is no tracepoint: write SYSTEM:NAME, as block:block_rq_issue")
    return Event(**place.values(table, _EVENT))


def _type(name: str, table: Any, place: _Place) -> ObjectType:
    given = place.values(place.only(table, _TYPE), _TYPE)
    for key in _SITE_LISTS:
        for site in given[key]:
            if not _SITE.fullmatch(site) or (site == ANY and key != "births"):
                place.wrong(key, f"'{site}' is neither a function nor a tracepoint SYSTEM:NAME")
    given["births"] = given["births"] or (ANY,)
    return ObjectType(name=name, origin=place.file, **given)


# Which variant of a pair this kernel has, and what its expressions mean there


@dataclass(frozen=True)
class ResolvedSide:
    """One event of a pair. by, device, process: NO_VALUE: not taken from this side.

    choosing: how many of the conditions, the first, are the event's own, as declared: where one
    does not hold, the tracepoint's event is no event of the pair. Another that does not hold leaves
    the begin out or, at an end, the whole pair.
    """

    event: str
    keys: tuple[Value, ...]
    by: Value
    device: Value
    process: Value
    conditions: tuple[Condition, ...]
    choosing: int


@dataclass(frozen=True)
class ResolvedPair:
    """A pair as this kernel can time it. begins: one or more; all are attached by one way.

    by: its label or, without one, its expression; "": none is declared. device: its expression.
    """

    pair: Pair
    variant: Variant
    way: str
    begins: tuple[ResolvedSide, ...]
    end: ResolvedSide
    by: str
    device: str

    @property
    def by_value(self) -> Value:
        """The value of --by, from the side that has it; NO_VALUE: there is none."""
        begin = self.begins[0].by
        return begin if begin.source else self.end.by


def resolve(pair: Pair, scopes: Scopes) -> ResolvedPair:
    """Return the first variant whose tracepoints and fields exist. Raises SiteError: none does."""
    reasons: list[str] = []
    for variant in pair.variants:
        for way in (variant.way,) if variant.way else (TYPED, FORMAT):
            try:
                return _resolved(pair, variant, way, scopes)
            except SiteError as error:
                reasons.append(f"{way}: {error}")
    # Two ways fail for one reason where the tracepoint is missing.
    said = dict.fromkeys(reason.partition(": ")[2] for reason in reasons)
    joined = next(iter(said)) if len(said) == 1 else "; ".join(dict.fromkeys(reasons))
    raise SiteError(f"pair {pair.name}: {joined}")


def _resolved(pair: Pair, variant: Variant, way: str, scopes: Scopes) -> ResolvedPair:
    meant = []
    for event in (*variant.begins, variant.end):
        found = scopes(event.event)
        if way not in found:
            lacking = "types (BTF)" if way == TYPED else "format"
            raise SiteError(f"tracepoint {event.event} has no {lacking} on this kernel")
        meant.append(found[way])
    *begins, end = meant
    # An alternative of `by` may have a label: "LABEL=EXPRESSION".
    parts = [text.rpartition("=") for text in variant.by]
    labels = {expression.strip(): label.strip() for label, _, expression in parts}
    by, device = _first(labels, begins, end), _first(variant.device, begins, end)

    def side(
        scope: Scope, half: int, event: Event, by: str, conditions: Iterable[Condition]
    ) -> ResolvedSide:
        own = tuple(scope.condition(text) for text in event.where)
        process = event.process or variant.process
        keys = tuple(scope.value(sides(text)[half]) for text in event.key or variant.key)
        return ResolvedSide(
            event.event,
            keys,
            scope.value(by) if by and _compiles(scope.value, by) else NO_VALUE,
            scope.value(device) if device and _compiles(scope.value, device) else NO_VALUE,
            scope.value(sides(process)[half]) if process else NO_VALUE,
            (*own, *conditions),
            len(own),
        )

    made = []
    for scope, event in zip(begins, variant.begins, strict=True):
        texts = [text for text in variant.where if _compiles(scope.condition, text)]
        made.append(side(scope, 0, event, by, map(scope.condition, texts)))
    at_end = "" if by and _compiles(begins[0].value, by) else by
    rest = [text for text in variant.where if not _compiles(begins[0].condition, text)]
    # The device on both sides: an end of another device has no begin to look for.
    ended = side(end, 1, variant.end, at_end, map(end.condition, rest))
    for one in made:
        for begin_key, end_key in zip(one.keys, ended.keys, strict=True):
            if (begin_key.format == "text") != (end_key.format == "text"):
                raise SiteError(
                    f"the key {begin_key.text} of {one.event} is {begin_key.type}, that of "
                    f"{ended.event}, {end_key.text}, is {end_key.type}: they are never equal"
                )

    def shown(value: Value) -> Value:
        """Return `by`, or a key that is the same, with the pair's names and form."""
        if value is NO_VALUE or value.text != by:
            return value
        return replace(value, format=pair.show or value.format, names={**value.names, **pair.names})

    *made, ended = (
        replace(one, keys=tuple(map(shown, one.keys)), by=shown(one.by)) for one in (*made, ended)
    )
    return ResolvedPair(pair, variant, way, tuple(made), ended, labels.get(by, "") or by, device)


def _compiles(compiled: Callable[[str], object], text: str) -> bool:
    try:
        compiled(text)
    except SiteError:
        return False
    return True


def _first(texts: Iterable[str], begins: list[Scope], end: Scope) -> str:
    """Return the first alternative that every begin or the end knows; "": none is declared."""
    text = ""
    for text in texts:
        if all(_compiles(scope.value, text) for scope in begins) or _compiles(end.value, text):
            return text
    if text:
        begins[0].value(text)  # raises: says what there is instead
    return ""
