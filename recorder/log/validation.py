# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the JSON in a log, which may be made up although its checksums are right.

What a value may be is said by a type (schema/payloads.py). A key may be absent, and a key that the
type does not list may hold anything: a newer recorder may have written it.
"""

import base64
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    NotRequired,
    Required,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from biotrail.recorder.log.frames import DamagedError
from biotrail.recorder.schema.payloads import NOTES, Mark, Range
from biotrail.recorder.schema.strings import characters

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
def _form(kind: Any) -> tuple[Any, ...]:
    """Return a type as `_check` reads it: what it is, then the forms or types of its parts."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired):
        return _form(inner[0])
    if origin is Annotated:  # a type that annotates another takes its place
        base, *marks = inner
        return "all", [
            (Range, base, mark)
            if isinstance(mark, Range)
            else ((mark,) if isinstance(mark, Mark) else _form(mark))
            for mark in marks
        ]
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        forms = {key: _form(hint) for key, hint in hints.items()}
        return "object", forms, [key for key in forms if key in kind.__required_keys__]
    if origin is list or origin is tuple:
        return origin, [_form(item) for item in inner]
    if origin is dict:
        return dict, _form(inner[0]), _form(inner[1])
    if kind is Any:
        return (Mark.UNREAD,)
    kinds = inner if origin is UnionType else (kind,)
    wanted = " or ".join(_PLAIN[one] for one in kinds)
    return "plain", (*kinds, int) if float in kinds else kinds, bool in kinds, wanted


def check(value: Any, kind: Any, where: str = "") -> None:
    """Check a JSON value by its type: one of `payloads`, or a part of one.

    `where`: the value's place, such as "devices[0].name". Raises DamagedError, which names the
    first value that is wrong.
    """
    _check(value, _form(kind), where)


def _check(value: Any, form: tuple[Any, ...], where: str) -> None:
    what = form[0]
    if wanted := _wanted(value, form):
        shown = ascii(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
        shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
        raise DamagedError(f"has {shown} as {where}, not {wanted}")
    if what == "all":
        for one in form[1]:
            _check(value, one, where)
    elif what == "object":
        if missing := [key for key in form[2] if key not in value]:
            raise DamagedError(f"has no {missing[0]} in {where}")
        for key, inner in form[1].items():
            if key in value:
                _check(value[key], inner, f"{where}.{key}" if where else key)
    elif what is dict:
        for key, item in value.items():
            _check(key, form[1], f"a key of {where}")
            _check(item, form[2], f"{where}.{ascii(key)[1:-1][:_MAX_SHOWN]}")
    elif what is list or what is tuple:
        inners = form[1] * len(value) if what is list else form[1]
        for index, item in enumerate(value):
            _check(item, inners[index], f"{where}[{index}]" if what is list else where)


def _wanted(value: Any, form: tuple[Any, ...]) -> str:
    """Return what a value is not, and should be, apart from its parts; "": it is right."""
    what, right, wanted = form[0], True, ""
    if what == "plain":
        _, kinds, takes_bool, wanted = form
        right = isinstance(value, kinds) and (takes_bool or not isinstance(value, bool))
    elif what is Range:
        _, kind, (least, most) = form
        wanted = f"{'a number' if kind is float else 'a whole number'} from {least} to {most}"
        if kind is str:  # a key
            right = value.isdecimal() and len(value) <= len(str(most)) and int(value) <= most
        else:
            right = isinstance(value, int | float if kind is float else int)
            right = right and not isinstance(value, bool) and least <= value <= most
    elif what == "object" or what is dict:
        right, wanted = isinstance(value, dict), "an object"
    elif what is list:
        right, wanted = isinstance(value, list), "a list"
    elif what is tuple:
        right = isinstance(value, list) and len(value) == len(form[1])
        wanted = f"a list of {len(form[1])}"
    elif what == Mark.RECORD_SIZE:
        right, wanted = value % 8 == 0, "a multiple of 8"
    elif what == Mark.BASE64:
        wanted = "records in base64" if isinstance(value, str) else "a text"
        try:
            base64.b64decode(value, validate=True)
        except (TypeError, ValueError):
            right = False
    return "" if right else wanted


def note(value: Any) -> tuple[str, dict[str, Any]]:
    """Return (name, payload) of a note's decoded JSON, with the payload checked by its name.

    That of a name which is not known may hold anything. Raises DamagedError.
    """
    found = value if isinstance(value, dict) else {}
    name, payload = found.get("name"), found.get("payload")
    if not isinstance(name, str) or not isinstance(payload, dict):
        raise DamagedError("holds no note")
    if name in NOTES:
        # The first version had the paths below a key.
        inner = payload.get("cgroups", payload) if name == "cgroups" else payload
        check(inner, NOTES[name], name)
    return name, payload


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
