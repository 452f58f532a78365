# SPDX-License-Identifier: Apache-2.0
"""Reads declarations of pairs and types: the ready-made ones, and a user's own.

A user's file is read by root, so its size is bounded, it has to be a regular file, and whatever is
wrong in it is one message with the file, the table and the key.
"""

import os
import pwd
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn

from biotrail.recorder.schema.errors import DeclarationError
from biotrail.recorder.sites.expressions import choices

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
    """A struct whose objects can be followed; by default, any hit begins a life.

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
    """The user's own before the ready-made ones of the same name."""

    pairs: Mapping[str, Pair]
    types: Mapping[str, ObjectType]


READY_MADE = Path(__file__).with_name("declarations.toml")
_OWN = Path("biotrail") / "pairs.toml"
_MAX_BYTES = 1 << 18
_MAX_TEXT = 300
_MAX_LIST = 64
_MAX_NAMES = 256
KEYS = 2
"""Expressions that a pair's key may have: PAIR records hold so many."""
_WAYS: dict[str, Way] = {"": "", "typed": "typed", "format": "format"}
SHOWS = ("dec", "signed", "hex", "dev", "symbol")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_STRUCT = re.compile(r"[A-Za-z_]\w{0,63}")
_TRACEPOINT = re.compile(r"[A-Za-z0-9_-]{1,64}:\w{1,128}")
_SITE = re.compile(r"(?:[A-Za-z0-9_-]{1,64}:)?[\w.]{1,128}|\*")
_PAIR_KEYS = ("about", "names", "show", "variants")
_VARIANT_KEYS = ("begin", "end", "key", "way", "by", "device", "where", "process")
_EVENT_KEYS = ("event", "key", "where", "process")
_SITE_LISTS = ("births", "new", "deaths", "last")
_EXPRESSIONS = ("detail", "device", "process")
_TYPE_KEYS = (*_SITE_LISTS, *_EXPRESSIONS, "about", "detail_unit")

Table = Mapping[str, Any]


class _Place:
    """Where in a file a value stands, for messages."""

    def __init__(self, file: str, table: str) -> None:
        self.file, self.table = file, table

    def wrong(self, key: str, reason: str) -> NoReturn:
        """Raise DeclarationError about a key of this table; key "": about the table."""
        raise DeclarationError(f"{self.file}: [{self.table}]{f', {key}' if key else ''}: {reason}")

    def only(self, table: Any, known: tuple[str, ...]) -> Table:
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
        return self._text(key, value)

    def _text(self, key: str, value: Any) -> str:
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
        found = tuple(self._text(key, one) for one in values)
        if any(not one.strip() for one in found):
            self.wrong(key, "is empty")
        return found


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
    way = place.text(table, "way")
    if way not in _WAYS:
        place.wrong("way", f"'{way}' is neither typed nor format")
    key = place.texts(table, "key")
    events = tuple(
        _event(one, "begin", place) for one in (begins if isinstance(begins, list) else [begins])
    )
    if "end" not in table:
        place.wrong("end", "is missing")
    end = _event(table["end"], "end", place)
    counts = {len(event.key or key) for event in (*events, end)}
    if len(counts) > 1 or not 0 < min(counts) <= KEYS:
        place.wrong("key", f"has to have one expression or {KEYS}, as many for each event")
    lists = {key: place.texts(table, key) for key in ("by", "device", "where")}
    process = place.text(table, "process")
    return Variant(events, end, key, _WAYS[way], process=process, **lists)


def _event(value: Any, key: str, place: _Place) -> Event:
    table: Table = {"event": value}
    if isinstance(value, dict):
        table = _Place(place.file, f"{place.table}.{key}").only(value, _EVENT_KEYS)
    name = place.text(table, "event", None)
    if not _TRACEPOINT.fullmatch(name):
        place.wrong(key, f"'{name}' is no tracepoint: write SYSTEM:NAME, as block:block_rq_issue")
    keys, where = place.texts(table, "key"), place.texts(table, "where")
    return Event(name, keys, where, place.text(table, "process"))


def _type(name: str, table: Any, place: _Place) -> ObjectType:
    table = place.only(table, _TYPE_KEYS)
    lists = {key: place.texts(table, key) for key in (*_SITE_LISTS, *_EXPRESSIONS)}
    for key in _SITE_LISTS:
        for site in lists[key]:
            if not _SITE.fullmatch(site) or (site == ANY and key != "births"):
                place.wrong(key, f"'{site}' is neither a function nor a tracepoint SYSTEM:NAME")
    lists["births"] = lists["births"] or (ANY,)
    unit = place.text(table, "detail_unit")
    return ObjectType(
        name=name, about=place.text(table, "about"), detail_unit=unit, origin=place.file, **lists
    )
