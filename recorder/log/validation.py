# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the JSON in a log, which may be made up although its checksums are right.

And packs a log's header, notes, losses and end as JSON that another file format can carry.

What a value may be is said by a type (schema/payloads.py). A key may be absent, and a key that the
type does not list may hold anything: a newer recorder may have written it.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
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

from biotrail.recorder.log.frames import DamagedError, decode_json, encode_json
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.payloads import NOTES, End, Header, LossWindow, Mark, Range
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
    """Return a type as `_check` reads it: what it is, in words what is wanted, and its parts."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Required, NotRequired):
        return _form(inner[0])
    if origin is Annotated:  # a Range, a Mark, or another type takes the type's place
        forms: list[tuple[Any, ...]] = []
        for mark in inner[1:]:
            if isinstance(mark, Range):
                number = "a number" if inner[0] is float else "a whole number"
                wanted = f"{number} from {mark.least} to {mark.most}"
                if inner[0] is str:
                    forms.append(("digits", wanted, mark.most, len(str(mark.most))))
                else:
                    number_type = int | float if inner[0] is float else int
                    forms.append((Range, wanted, number_type, *mark))
            elif mark == Mark.BASE64:
                forms += [_form(str), (mark, "records in base64")]
            else:
                forms.append((mark, "a multiple of 8") if isinstance(mark, Mark) else _form(mark))
        return forms[0] if len(forms) == 1 else ("all", "", forms)
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        needed = [key for key in hints if key in kind.__required_keys__]
        return "object", "an object", {key: _form(hint) for key, hint in hints.items()}, needed
    if origin is list:
        return list, "a list", _form(inner[0])
    if origin is tuple:
        return tuple, f"a list of {len(inner)}", [_form(item) for item in inner]
    if origin is dict:
        return dict, "an object", _form(inner[0]), _form(inner[1])
    if kind is Any:
        return Mark.UNREAD, ""
    kinds = inner if origin is UnionType else (kind,)
    wanted = " or ".join(_PLAIN[one] for one in kinds)
    return "plain", wanted, (*kinds, int) if float in kinds else kinds, bool in kinds


def check(value: Any, kind: Any, where: str = "") -> None:
    """Check a JSON value by its type: one of `payloads`, or a part of one.

    `where`: the value's place, such as "devices[0].name". Raises DamagedError, which names the
    first value that is wrong.
    """
    _check(value, _form(kind), where)


def _check(value: Any, form: tuple[Any, ...], where: str) -> None:
    what = form[0]
    right: Any = True  # apart from the value's parts
    if what == "plain":
        right = isinstance(value, form[2]) and (form[3] or not isinstance(value, bool))
    elif what == "digits":  # of a key, which is a text
        right = value.isdecimal() and len(value) <= form[3] and int(value) <= form[2]
    elif what is Range:
        is_number = isinstance(value, form[2]) and not isinstance(value, bool)
        right = is_number and form[3] <= value <= form[4]
    elif what == Mark.RECORD_SIZE:
        right = value % 8 == 0
    elif what == Mark.BASE64:
        try:
            base64.b64decode(value, validate=True)
        except ValueError:
            right = False
    elif what == "object" or what is dict:
        right = isinstance(value, dict)
    elif what is list or what is tuple:
        right = isinstance(value, list) and (what is list or len(value) == len(form[2]))
    if not right:
        shown = ascii(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
        shown = shown if len(shown) <= _MAX_SHOWN else f"{shown[:_MAX_SHOWN]}…"
        raise DamagedError(f"has {shown} as {where}, not {form[1]}")
    if what == "all":
        for one in form[2]:
            _check(value, one, where)
    elif what == "object":
        if missing := [key for key in form[3] if key not in value]:
            raise DamagedError(f"has no {missing[0]} in {where}")
        for key, inner in form[2].items():
            if key in value:
                _check(value[key], inner, f"{where}.{key}" if where else key)
    elif what is dict:
        for key, item in value.items():
            _check(key, form[2], f"a key of {where}")
            _check(item, form[3], f"{where}.{ascii(key)[1:-1][:_MAX_SHOWN]}")
    elif what is list or what is tuple:
        for index, item in enumerate(value):
            inner, at = (form[2], f"{where}[{index}]") if what is list else (form[2][index], where)
            _check(item, inner, at)


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


@dataclass
class Facts:
    """All that a log holds beside its records, as in LogReader's attributes.

    notes: (name, payload). end: None where the log has none.
    """

    header: dict[str, Any]
    notes: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    losses: list[dict[str, Any]] = field(default_factory=list)
    end: dict[str, Any] | None = None


def pack_facts(facts: Facts) -> dict[str, str]:
    """Return the facts as JSON text by name: "header", "notes", "losses", "end".

    notes: a list of {"name", "payload"}. end: {"end": …}, or {} where there is none. Bytes that are
    no UTF-8 become U+FFFD. Raises DamagedError where a value is nested too deeply.
    """
    return {
        "header": pack_json(facts.header),
        "notes": pack_json([{"name": name, "payload": what} for name, what in facts.notes]),
        "losses": pack_json(facts.losses),
        "end": pack_json({} if facts.end is None else {"end": facts.end}),
    }


def pack_json(value: Any) -> str:
    """Return `value` as JSON that is valid UTF-8; raises DamagedError: it is nested too deeply."""
    return encode_json(plain(value)).decode()


def unpack_facts(name: str, packed: Mapping[str, bytes]) -> Facts:
    """Return the facts that `pack_facts` packed, checked as a log's are.

    `name`: of the file, for messages. `packed`: JSON in UTF-8 by name; other keys are ignored.
    Raises LogFormatError where a part is missing, is no valid JSON, is nested too deeply, or has
    another shape.
    """
    try:
        shapes = {"header": dict, "notes": list, "losses": list, "end": dict}
        header, found, losses, ended = (
            plain(decode_json(packed[part], shape)) for part, shape in shapes.items()
        )
        check(header, Header)
        notes = [note(value) for value in found]
        check(losses, list[LossWindow])
        end = ended.get("end")
        if end is not None:
            check(end, End)
    except KeyError as error:
        raise LogFormatError(
            f"{name}: the log's {error.args[0]} is missing; make it again from the log"
        ) from None
    except DamagedError as error:
        raise LogFormatError(
            f"{name}: what it says of its log {error}: no biotrail writes that; make it again from "
            "the log"
        ) from None
    return Facts(header, notes, losses, end)


def unpack_json(name: str, data: bytes, what: str) -> dict[str, Any]:
    """Return the object that `data` holds as JSON, without checking its shape.

    `name`, `what`: the file and the part of it ("the …"), for messages. Bytes that are no UTF-8
    become surrogate escapes. Raises LogFormatError where `data` is no valid JSON, no object, or has
    too many values (MAX_JSON_VALUES).
    """
    try:
        value: dict[str, Any] = decode_json(data, dict)
    except DamagedError as error:
        raise LogFormatError(f"{name}: {what} {error}; make it again from the log") from None
    return value
