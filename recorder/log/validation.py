# SPDX-License-Identifier: Apache-2.0
"""Checks the shape of the JSON in a log, which may be made up although its checksums are right.

A key may be absent, and a key that is not listed here may hold anything: a newer recorder may
have written it. The values of the listed keys have the types and ranges that readers rely on.

Private functions of (value, where) are shapes: they raise DamagedError for any other value.
"""

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from biotrail.recorder.log.frames import DamagedError
from biotrail.recorder.schema.records import BLOCK_BYTES, Kind
from biotrail.recorder.schema.strings import characters

Shape: TypeAlias = Callable[[Any, str], None]
"""Checks a value: (value, where) → None. Raises DamagedError where it has another shape.

`where`: the value's place in the JSON, such as "devices[0].name", for the message.
"""

MAX_NS = 1 << 62
"""Highest time, 146 years: the sum of two still fits a signed 64-bit integer."""
_MAX_DEPTH = 50
_MAX_SHOWN = 40
_MAX_DEV = (1 << 32) - 1
_MAX_COUNT = 1 << 62
_MAX_STACK = (1 << 31) - 1


def _fail(value: Any, where: str, wanted: str) -> DamagedError:
    """Return the exception for a value that is not a `wanted` ("a list"), shown shortened."""
    shown = ascii(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    if len(shown) > _MAX_SHOWN:
        shown = shown[:_MAX_SHOWN] + "…"
    return DamagedError(f"has {shown} as {where}, not {wanted}")


def _text(value: Any, where: str) -> None:
    if not isinstance(value, str):
        raise _fail(value, where, "a text")


def _flag(value: Any, where: str) -> None:
    if not isinstance(value, bool):
        raise _fail(value, where, "true or false")


def _number(least: float, most: float, *, whole: bool = True) -> Shape:
    """Return a check that a value is a number from `least` to `most`, both inclusive.

    The check is a Shape: a function of a value and its place in the JSON that raises DamagedError
    for any other value. With `whole`, integers alone; else floats too. true and false are no
    numbers.
    """
    kinds = int if whole else int | float
    what = "a whole number" if whole else "a number"

    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise _fail(value, where, f"{what} from {least} to {most}")

    return check


def _each(shape: Shape) -> Shape:
    """Return a check that a value is a list, of any length, whose items all pass the check `shape`.

    A Shape, as is `shape`: a function of a value and its place in the JSON that raises
    DamagedError.
    """

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise _fail(value, where, "a list")
        for index, item in enumerate(value):
            shape(item, f"{where}[{index}]")

    return check


def _object(shapes: Mapping[str, Shape], *needed: str) -> Shape:
    """Return a check that a value is an object whose values pass the checks of their keys.

    A Shape: a function of a value and its place in the JSON that raises DamagedError. `shapes`: the
    check by key; a key that is absent from the object is not checked, and one that is not listed
    may have any value. `needed`: keys that the object must have.
    """

    def check(value: Any, where: str) -> None:
        """Check an object: its type, the needed keys, then the values of the listed keys.

        `where`: its place in the JSON, for messages. Raises DamagedError at the first that is
        wrong.
        """
        if not isinstance(value, dict):
            raise _fail(value, where, "an object")
        for key in needed:
            if key not in value:
                raise DamagedError(f"has no {key} in {where}")
        for key, shape in shapes.items():
            if key in value:
                shape(value[key], f"{where}.{key}" if where else key)

    return check


def _names(shape: Shape) -> Shape:
    """Return a check that a value is an object, with any keys, whose values pass the check `shape`.

    A Shape, as is `shape`: a function of a value and its place in the JSON that raises
    DamagedError.
    """

    def check(value: Any, where: str) -> None:
        _object({})(value, where)
        for key, item in value.items():
            shape(item, f"{where}.{ascii(key)[1 : _MAX_SHOWN + 1]}")

    return check


def _cgroups(value: Any, where: str) -> None:
    """Check an object: cgroup id, in decimal → path."""
    _names(_text)(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > len(str(_MAX_COUNT)):
            raise _fail(key, f"a key of {where}", "a cgroup's number")


def _mounts(value: Any, where: str) -> None:
    """Check an object: dev_t, in decimal, from 0 to _MAX_DEV → a list of [root, mount point]."""
    _names(_each(_root_and_point))(value, where)
    for key in value:
        if not key.isdecimal() or not 0 <= int(key[:11]) <= _MAX_DEV:
            raise _fail(key, f"a key of {where}", "a device's number")


def _root_and_point(value: Any, where: str) -> None:
    """Check a list of two texts: [root, mount point]."""
    _pair(value, where)
    for item in value:
        _text(item, where)


def _stacks(value: Any, where: str) -> None:
    """Check an object: stack id, in decimal → a list of frames."""
    _names(_each(_frame))(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > len(str(_MAX_STACK)):
            raise _fail(key, f"a key of {where}", "a stack's number")


def _frame(value: Any, where: str) -> None:
    """Check a stack's frame: [function, module or file, offset in bytes].

    That is two texts and a whole number from 0 to 2^64 - 1. `where`: its place in the JSON. Raises
    DamagedError for any other value.
    """
    _each(_any)(value, where)
    if len(value) != 3:
        raise _fail(value, where, "a function, a place and an offset")
    for item, shape in zip(value, (_text, _text, _number(0, (1 << 64) - 1)), strict=True):
        shape(item, where)


def _records(value: Any, where: str) -> None:
    """Check an object: record kind, in decimal → text, records in base64.

    A kind has at most three digits. The records themselves are not checked. `where`: the object's
    place in the JSON. Raises DamagedError for any other value.
    """
    _names(_text)(value, where)
    for key, text in value.items():
        if not key.isdecimal() or len(key) > 3:
            raise _fail(key, f"a key of {where}", "a kind's number")
        try:
            base64.b64decode(text, validate=True)
        except ValueError:
            raise _fail(text, f"{where}.{key}", "records in base64") from None


def _kinds_counted(value: Any, where: str) -> None:
    """Check an object: record kind, in decimal → number of records."""
    _names(_count)(value, where)
    for key in value:
        if not key.isdecimal() or len(key) > 3:
            raise _fail(key, f"a key of {where}", "a kind's number")


def _any(_value: Any, _where: str) -> None:
    """Accept any value: readers rely on nothing."""


def _pair(value: Any, where: str) -> None:
    """Check a list of two values of any type."""
    _each(_any)(value, where)
    if len(value) != 2:
        raise _fail(value, where, "a pair")


def _record_size(value: Any, where: str) -> None:
    """Check the bytes of a record: a multiple of 8 from 8 to BLOCK_BYTES."""
    _number(8, BLOCK_BYTES)(value, where)
    if value % 8:
        raise _fail(value, where, "a multiple of 8")


_dev = _number(0, _MAX_DEV)
_ns = _number(0, MAX_NS)
_count = _number(0, _MAX_COUNT)
_clocks = _object(dict.fromkeys(("monotonic", "boottime", "realtime", "uncertainty"), _ns))
_device = _object(
    {
        "dev": _dev,
        "name": _text,
        "dm_name": _text,
        "kind": _text,
        "disk": _dev,
        "start": _count,
        "sectors": _count,
        "stacked_on": _each(_dev),
        "loop": _object({"backing_dev": _dev}),
        "md": _object({"level": _text}),
        "queue": _object({"nr_hw_queues": _count}),
    },
    "dev",
)
_devices = _each(_device)
_word = _number(-(1 << 63), (1 << 64) - 1)
_seconds = _number(0, 1e12, whole=False)
_filters = _object(
    {
        "devices": _each(_object({"spec": _text})),
        **dict.fromkeys(("pids", "tids", "comms", "cgroups", "ops", "flags"), _each(_any)),
        **dict.fromkeys(("files", "dirs"), _each(_text)),
        "sectors": _each(_pair),
    }
)
_kept = _object(
    {
        "seconds": _seconds,
        "reason": _text,
        "trigger": _object({"value": _word, "monotonic": _ns, "dev": _dev, "trigger": _text}),
        "triggers_let_pass": _count,
    }
)
_program = _object(
    {"letter": _text, "run_count": _count, "run_ns": _count, "part": _text},
    "letter",
    "run_count",
    "run_ns",
)
_path_cost = _object({"calls": _count, "timed": _count, "seconds": _names(_seconds)})

HEADER = _object(
    {
        "log_id": _text,
        "created_by": _text,
        "backend": _text,
        "host": _object({"name": _text, "machine": _text, "os": _text, "cpus": _count}),
        "kernel": _object(
            {
                "release": _text,
                "version": _text,
                "op_enum": _names(_number(0, 255)),
                "flag_bits": _names(_number(0, 31)),
            }
        ),
        "clocks": _clocks,
        "devices": _devices,
        "command": _each(_text),
        "filters": _filters,
        "stacks": _object({"user": _flag}),
        "files": _object({"direct": _flag, "ways": _each(_text)}),
        "series": _object({}),
        "kept": _kept,
        "absent": _names(_each(_text)),
        "events": _object(
            {
                "set": _text,
                "letters": _each(_text),
                "missing": _each(_object({"letter": _text, "reason": _text}, "letter", "reason")),
            }
        ),
        "path": _object(
            {
                "parts": _each(_text),
                "missing": _each(_object({"part": _text, "reason": _text}, "part", "reason")),
            }
        ),
        "rights": _object(
            {"lacking": _each(_object({"what": _text, "needs": _text}, "what", "needs"))}
        ),
        "versions": _object({}),
        "schema": _each(
            _object(
                {
                    "kind": _number(1, Kind.PAD),
                    "size": _record_size,
                    "fields": _each(_object({"name": _text}, "name")),
                },
                "kind",
                "size",
            )
        ),
    }
)
_run = {"seconds": _seconds, "path": _path_cost}
END = _object(
    {
        **_run,
        "run": _object(_run),
        "clocks": _clocks,
        "stopped": _clocks,
        "reason": _text,
        "programs": _each(_program),
        "log": _object({"names": _count}),
        "left_out": _object(
            {"bios": _names(_count), "events": _kinds_counted, "unfollowed": _count}
        ),
        "recorder": _object(
            {"cpu_seconds": _seconds, "max_rss_bytes": _count},
            "cpu_seconds",
            "max_rss_bytes",
        ),
    }
)
LOSSES = _each(
    _object(
        {
            "start": _ns,
            "end": _ns,
            "cpu": _number(-1, 0xFFFF),
            "kind": _number(0, 0xFF),
            "count": _number(-1, _MAX_COUNT),
        },
        "start",
        "end",
    )
)
_NOTES: dict[str, Shape] = {
    "devices": _object({"devices": _devices}),
    "names": _object(
        {"monotonic": _ns, "count": _count, "records": _records}, "monotonic", "count", "records"
    ),
    "stacks": _object({"kernel": _stacks, "user": _stacks, "wait": _stacks}),
    "mounts": _mounts,
    "call_timing": _object(
        {"until": _ns, "percent": _seconds, "budget": _seconds},
        "until",
    ),
    "cgroups": lambda value, where: _cgroups(value.get("cgroups", value), where),
}


def note(name: str, payload: dict[str, Any]) -> None:
    """Check the payload of a note called `name`: that its values have the types readers rely on.

    The payload of a note with a name that is not a key of _NOTES may hold anything. Raises
    DamagedError, which names the first value that is wrong.
    """
    if name in _NOTES:
        _NOTES[name](payload, name)


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
