# SPDX-License-Identifier: Apache-2.0
"""Shapes: checks of one JSON value, of which `validation` makes those of whole payloads.

A shape is a function of (value, where) that raises DamagedError for any other value.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from biotrail.recorder.log.frames import DamagedError

Shape: TypeAlias = Callable[[Any, str], None]
"""Checks a value: (value, where) → None. Raises DamagedError where it has another shape.

`where`: the value's place in the JSON, such as "devices[0].name", for the message.
"""

_MAX_SHOWN = 40


def wrong(value: Any, where: str, wanted: str) -> DamagedError:
    """Return the exception for a value that is not a `wanted` ("a list"), shown shortened."""
    shown = ascii(value) if not isinstance(value, dict | list) else f"a {type(value).__name__}"
    if len(shown) > _MAX_SHOWN:
        shown = shown[:_MAX_SHOWN] + "…"
    return DamagedError(f"has {shown} as {where}, not {wanted}")


def text(value: Any, where: str) -> None:
    """Check a text."""
    if not isinstance(value, str):
        raise wrong(value, where, "a text")


def flag(value: Any, where: str) -> None:
    """Check true or false."""
    if not isinstance(value, bool):
        raise wrong(value, where, "true or false")


def number(least: float, most: float, *, whole: bool = True) -> Shape:
    """Return a check that a value is a number from `least` to `most`, both inclusive.

    The check is a Shape: a function of a value and its place in the JSON that raises DamagedError
    for any other value. With `whole`, integers alone; else floats too. true and false are no
    numbers.
    """
    kinds = int if whole else int | float
    what = "a whole number" if whole else "a number"

    def check(value: Any, where: str) -> None:
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise wrong(value, where, f"{what} from {least} to {most}")

    return check


def each(shape: Shape) -> Shape:
    """Return a check that a value is a list, of any length, whose items all pass the check `shape`.

    A Shape, as is `shape`: a function of a value and its place in the JSON that raises
    DamagedError.
    """

    def check(value: Any, where: str) -> None:
        if not isinstance(value, list):
            raise wrong(value, where, "a list")
        for index, item in enumerate(value):
            shape(item, f"{where}[{index}]")

    return check


def fields(shapes: Mapping[str, Shape], *needed: str) -> Shape:
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
            raise wrong(value, where, "an object")
        for key in needed:
            if key not in value:
                raise DamagedError(f"has no {key} in {where}")
        for key, shape in shapes.items():
            if key in value:
                shape(value[key], f"{where}.{key}" if where else key)

    return check


def named(shape: Shape) -> Shape:
    """Return a check that a value is an object, with any keys, whose values pass the check `shape`.

    A Shape, as is `shape`: a function of a value and its place in the JSON that raises
    DamagedError.
    """

    def check(value: Any, where: str) -> None:
        fields({})(value, where)
        for key, item in value.items():
            shape(item, f"{where}.{ascii(key)[1 : _MAX_SHOWN + 1]}")

    return check


def anything(_value: Any, _where: str) -> None:
    """Accept any value: readers rely on nothing."""
