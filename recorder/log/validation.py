# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the JSON in a log, which may be made up although its checksums are right.

A shape is a function of (value, where) that raises DamagedError for any other value; it is made of
a type (schema/payloads.py). A key may be absent, and a key that the type does not list may hold
anything: a newer recorder may have written it.
"""

import base64
from collections.abc import Callable, Mapping
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    TypeAlias,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from biotrail.recorder.log.frames import DamagedError
from biotrail.recorder.schema.payloads import NOTES, Mark, Range
from biotrail.recorder.schema.strings import characters

Shape: TypeAlias = Callable[[Any, str], None]
"""`where`: the value's place in the JSON, such as "devices[0].name", for the message."""

_MAX_DEPTH = 50
_MAX_SHOWN = 40
_PLAIN: dict[Any, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    type(None): "null",
}


@cache
def shape_of(kind: Any) -> Shape:
    """Return the check that a JSON value is of a type: one of `payloads`, or a part of one."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired):
        return shape_of(inner[0])
    if origin is Annotated:
        return _annotated(*inner)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return _object({key: shape_of(hint) for key, hint in hints.items()}, kind.__required_keys__)
    if origin is list:
        return _each(shape_of(inner[0]))
    if origin is tuple:
        return _row([shape_of(item) for item in inner])
    if kind is dict or origin is dict:
        key, item = (shape_of(one) for one in inner)
        return _named(key, item)
    if origin is UnionType:
        kinds = inner
    elif kind is Any:
        return _anything
    else:
        kinds = (kind,)
    wanted = " or ".join(_PLAIN[one] for one in kinds)
    accepted = (*kinds, int) if float in kinds else kinds

    def check(value: Any, where: str) -> None:
        if not isinstance(value, accepted) or (isinstance(value, bool) and bool not in kinds):
            raise _wrong(value, where, wanted)

    return check


def _annotated(kind: Any, *marks: Any) -> Shape:
    """Return the check by what annotates a type; a type that does takes the place of `kind`."""
    checks = [
        _within(kind, mark) if isinstance(mark, Range) else _MARKS.get(mark) or shape_of(mark)
        for mark in marks
    ]

    def check(value: Any, where: str) -> None:
        for one in checks:
            one(value, where)

    return check


def _within(kind: type, range_: Range) -> Shape:
    """Return the check that a value is a number in a range, or, of str, a text of such a one."""
    least, most = range_
    what = f"{'a number' if kind is float else 'a whole number'} from {least} to {most}"

    def check_key(value: Any, where: str) -> None:
        if not value.isdecimal() or len(value) > len(str(most)) or int(value) > most:
            raise _wrong(value, where, what)

    def check(value: Any, where: str) -> None:
        kinds = int | float if kind is float else int
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise _wrong(value, where, what)

    return check_key if kind is str else check


def _anything(_value: Any, _where: str) -> None:
    pass


def _record_size(value: Any, where: str) -> None:
    if value % 8:
        raise _wrong(value, where, "a multiple of 8")


def _base64(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise _wrong(value, where, "a text")
    try:
        base64.b64decode(value, validate=True)
    except ValueError:
        raise _wrong(value, where, "records in base64") from None


_MARKS: dict[Any, Shape] = {
    Mark.RECORD_SIZE: _record_size,
    Mark.BASE64: _base64,
    Mark.UNREAD: _anything,
}


def _wrong(value: Any, where: str, wanted: str) -> DamagedError:
    """Return the exception for a value that is not a `wanted` ("a list"), shown shortened."""
    shown = ascii(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    if len(shown) > _MAX_SHOWN:
        shown = shown[:_MAX_SHOWN] + "…"
    return DamagedError(f"has {shown} as {where}, not {wanted}")


def _each(shape: Shape) -> Shape:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise _wrong(value, where, "a list")
        for index, item in enumerate(value):
            shape(item, f"{where}[{index}]")

    return check


def _row(shapes: list[Shape]) -> Shape:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, list) or len(value) != len(shapes):
            raise _wrong(value, where, f"a list of {len(shapes)}")
        for shape, item in zip(shapes, value, strict=True):
            shape(item, where)

    return check


def _object(shapes: Mapping[str, Shape], needed: frozenset[str]) -> Shape:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        for key in shapes:
            if key in needed and key not in value:
                raise DamagedError(f"has no {key} in {where}")
        for key, shape in shapes.items():
            if key in value:
                shape(value[key], f"{where}.{key}" if where else key)

    return check


def _named(key_shape: Shape, shape: Shape) -> Shape:
    def check(value: Any, where: str) -> None:
        if not isinstance(value, dict):
            raise _wrong(value, where, "an object")
        for key, item in value.items():
            key_shape(key, f"a key of {where}")
            shape(item, f"{where}.{ascii(key)[1:-1][:_MAX_SHOWN]}")

    return check


def check(value: Any, kind: Any) -> None:
    """Check a header, END frame or loss windows by their type. Raises DamagedError."""
    shape_of(kind)(value, "")


def note(name: str, payload: dict[str, Any]) -> None:
    """Check the payload of a note; that of a name that is not known may hold anything.

    Raises DamagedError, which names the first value that is wrong.
    """
    if name in NOTES:
        # The first version had the paths below a key.
        shape_of(NOTES[name])(
            payload.get("cgroups", payload) if name == "cgroups" else payload, name
        )


def plain(value: Any, depth: int = 0) -> Any:
    """Return a copy of a JSON value in which all texts, keys too, are valid Unicode.

    Lone surrogates, which stand for bytes of file names and command lines that are no UTF-8, become
    U+FFFD. Control characters stay: machine formats quote them, and text for people is escaped by
    `recorder.schema.strings` when it is printed. `depth`: levels of lists and objects around
    `value`. Raises DamagedError where lists and objects are nested more than _MAX_DEPTH deep.
    """
    if isinstance(value, str):
        return characters(value)
    if depth > _MAX_DEPTH:
        raise DamagedError(f"is nested more than {_MAX_DEPTH} deep")
    if isinstance(value, list):
        return [plain(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item, depth + 1) for key, item in value.items()}
    return value
