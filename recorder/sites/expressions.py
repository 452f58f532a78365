# SPDX-License-Identifier: Apache-2.0
"""Compiles what a user writes of a site ("arg0->q->id", "@tid", "vec == 3") to a `Value`.

A Value is read by programs that were compiled before (struct bt_value in `bpf/shared.h`): nothing
is compiled where biotrail runs. What a name means depends on the site, so there is a scope for each
kind of site: a typed tracepoint, a tracepoint by its format, a followed object.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.formats import Field, Format
from biotrail.recorder.schema.limits import Operator, Source
from biotrail.recorder.sites import members
from biotrail.recorder.sites.members import Place, Scalar
from biotrail.recorder.sites.types import Prototype, TypeTable, type_text

TASK_SOURCES = {"@tid": Source.TID, "@pid": Source.PID, "@cpu": Source.CPU}
OPERATORS = {
    "==": Operator.EQ,
    "!=": Operator.NE,
    "<": Operator.LT,
    "<=": Operator.LE,
    ">": Operator.GT,
    ">=": Operator.GE,
    "&": Operator.AND,
}
"""In the order of their numbers in a program."""
_MOST_CHARACTERS = 500
"""Of an expression, whose parts are compiled one within the other."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_ARGUMENT = re.compile(r"arg(\d{1,2})")
_LOW_BITS = re.compile(r"(.*\S)\s*:\s*(\d{1,2})\s*", re.DOTALL)
"""An expression whose lowest bits alone count, as C writes a bit field: `cid:12`."""
_CONDITION = re.compile(
    r"\s*(?P<left>(?:->|[^-=!<>&\s])+)\s*(?P<op>==|!=|<=|>=|<|>|&)\s*(?P<right>\S.*?)\s*$"
)
_DEVICE = re.compile(r"(\d{1,4}):(\d{1,7})")
_MINOR_BITS = 20
_ALL = (1 << 64) - 1
_POINTED = re.compile(r"(?:const )?(?:struct|union) (\w+) \*")
_CHARACTERS = ("char", "unsigned char", "signed char")
_DEV_TYPES = ("dev_t",)


@dataclass(frozen=True)
class Value:
    """A number that a program reads at a site.

    source, size, steps, shift, bits, is_signed, at: members of struct bt_value. at: with FIELD the
    byte offset in the tracepoint's record, with ARGUMENT the argument's index, with OBJECT 0; then,
    for each pointer that is read, the offset behind it. size: bytes of the last reading; shift,
    bits: the part of these that counts (bits 0: all). text: as written. format: how it is shown:
    dec, signed, hex, dev (a dev_t), text (up to 8 characters, the first in the lowest byte). names:
    of an enum's values, by their 64 bits. type: as C writes it; "" where the source says it.
    """

    source: Source
    text: str
    size: int = 8
    at: tuple[int, ...] = ()
    shift: int = 0
    bits: int = 0
    is_signed: bool = False
    format: str = "dec"
    names: Mapping[int, str] = field(default_factory=dict)
    type: str = ""

    @property
    def steps(self) -> int:
        """How many of `at` are used."""
        return len(self.at)


NO_VALUE = Value(Source.NONE, "", 0)


@dataclass(frozen=True)
class Condition:
    """A test of a value. operand: 64 bits, also of a negative.

    The comparison is signed where the value is.
    """

    value: Value
    operator: Operator
    operand: int
    text: str


class Scope(ABC):
    """What names mean at one site."""

    site: str
    """For messages: "tracepoint sched:sched_switch", "struct request"."""

    def value(self, text: str) -> Value:
        """Compile an expression. Raises SiteError, which says what there is instead."""
        text = text.strip()
        if not text:
            raise SiteError(f"{self.site}: an expression is empty; there is {self.listed()}")
        if len(text) > _MOST_CHARACTERS:
            raise SiteError(
                f"{self.site}: an expression has more than {_MOST_CHARACTERS} characters"
            )
        if low := _LOW_BITS.fullmatch(text):
            return self._low_bits(self.value(low[1]), int(low[2]), text)
        if text.startswith("@"):
            if text not in TASK_SOURCES:
                raise SiteError(f"{self.site}: '{text}' is none of {', '.join(TASK_SOURCES)}")
            return Value(TASK_SOURCES[text], text, 4)
        match = _NAME.match(text)
        if match is None:
            raise SiteError(
                f"{self.site}: '{text}' at character 1: expected a name; there is {self.listed()}"
            )
        try:
            return self._named(match[0], members.steps(text, match.end()), text)
        except SiteError as error:
            raise SiteError(f"{self.site}: {error}") from error

    def _low_bits(self, value: Value, bits: int, text: str) -> Value:
        """Return the lowest bits of a value, unsigned. Raises SiteError: too many, or none."""
        most = value.bits or 8 * value.size
        if not 1 <= bits <= most:
            raise SiteError(f"{self.site}: '{text}': a value of {most} bits has no lowest {bits}")
        kind = "hex" if value.format == "hex" else "dec"
        return replace(value, text=text, bits=bits, is_signed=False, format=kind, names={})

    @abstractmethod
    def listed(self) -> str:
        """Return what expressions may begin with at this site, for messages."""

    @abstractmethod
    def _named(self, name: str, path: list[members.Step], text: str) -> Value:
        pass

    def condition(self, text: str) -> Condition:
        """Compile a condition as `vec == 3`. Raises SiteError."""
        match = _CONDITION.match(text)
        if match is None:
            raise SiteError(
                f"{self.site}: '{text}' is no condition: write EXPRESSION OPERATOR NUMBER, "
                f"with one of {' '.join(OPERATORS)}"
            )
        value = self.value(match["left"])
        operand = _operand(match["right"], value)
        if operand is None:
            named = (
                f", or one of {', '.join(list(value.names.values())[:12])}" if value.names else ""
            )
            raise SiteError(
                f"{self.site}: '{text}' at character {match.start('right') + 1}: "
                f"'{match['right']}' is no number"
                f"{named}"
            )
        return Condition(value, OPERATORS[match["op"]], operand & _ALL, text.strip())


class TypedScope(Scope):
    """A tracepoint whose arguments have types, by their names or as arg0, arg1 and so on."""

    def __init__(self, prototype: Prototype, site: str = "") -> None:
        """Take the names of `prototype`. site: the tracepoint with its system, for messages."""
        self._prototype = prototype
        self.site = f"tracepoint {site or prototype.name}"

    def listed(self) -> str:
        """Return the arguments with their types, and the task's names."""
        arguments = [
            f"arg{index}{f' {argument.name}' if argument.name else ''} ({argument.text})"
            for index, argument in enumerate(self._prototype.arguments)
        ]
        return ", ".join((*arguments, *TASK_SOURCES))

    def _named(self, name: str, path: list[members.Step], text: str) -> Value:
        arguments = self._prototype.arguments
        names = [argument.name for argument in arguments]
        numbered = _ARGUMENT.fullmatch(name)
        if name in names:
            index = names.index(name)
        elif numbered and int(numbered[1]) < len(arguments):
            index = int(numbered[1])
        else:
            near = members.choices(name, filter(None, names), "arguments").partition("arguments:")[
                0
            ]
            raise SiteError(
                f"'{text}' at character 1: no argument {name}; {near}there is {self.listed()}"
            )
        place = Place(self._prototype.btf, arguments[index].number, ())
        return _value(Source.ARGUMENT, index, place, path, text)


class ObjectScope(Scope):
    """A followed object: members of its struct."""

    def __init__(self, types: TypeTable, struct: str) -> None:
        """Take the members of `struct`. Raises SiteError: BTF has no such struct."""
        blob, found = types.struct(struct)
        self._place = Place(blob, found.number, (0,))
        self.site = f"struct {struct}"

    def listed(self) -> str:
        """Return the first members, and the task's names."""
        blob, number = self._place.btf, self._place.number
        names = members.member_names(blob, blob.type(number))
        return ", ".join((*names[:12], *TASK_SOURCES))

    def _named(self, name: str, path: list[members.Step], text: str) -> Value:
        return _value(Source.OBJECT, 0, self._place, [members.Step(name, 0, 1), *path], text)


class FormatScope(Scope):
    """A tracepoint by its format: fields of its record, as the text that perf and ftrace print."""

    def __init__(self, format_: Format, site: str = "", types: TypeTable | None = None) -> None:
        """Take the fields of `format_`; `types` describes the structs that fields point to."""
        self._format, self._types = format_, types
        self.site = f"tracepoint {site or format_.name}"

    def listed(self) -> str:
        """Return the fields, and the task's names."""
        return ", ".join((*self._format.own_fields, *TASK_SOURCES))

    def _named(self, name: str, path: list[members.Step], text: str) -> Value:
        found = self._format.fields.get(name)
        if found is None:
            near = members.choices(name, self._format.own_fields, "fields").partition("fields:")[0]
            raise SiteError(
                f"'{text}' at character 1: no field {name}; {near}there is {self.listed()}"
            )
        if found.is_located:
            raise SiteError(
                f"'{text}' is a text of any length ({found.type}): a key has at most 8 bytes; "
                f"there is {self.listed()}"
            )
        if path and not found.elements:
            return self._behind(found, path, text)
        if path:
            found = _element(found, path, text)
        offset, scalar = _field_scalar(found, self._format.size, text)
        return _with(scalar, Value(Source.FIELD, text, at=(offset,), type=found.type))

    def _behind(self, found: Field, path: list[members.Step], text: str) -> Value:
        pointed = _POINTED.fullmatch(found.type)
        if pointed is None or self._types is None:
            raise SiteError(
                f"'{text}' at character {path[0].at}: {found.name} ({found.type}) has no "
                "members that are known here"
            )
        blob, struct = self._types.struct(pointed[1])
        place = Place(blob, struct.number, (0,))
        return _value(Source.FIELD, found.offset, place, path, text)


def _value(source: Source, first: int, place: Place, path: list[members.Step], text: str) -> Value:
    """Return the value at the end of `path`. first: bt_value.at[0]."""
    found = members.follow(place, path, text)
    end, scalar = members.scalar(found, text)
    type_ = type_text(end.btf, end.number)
    return _with(scalar, Value(source, text, at=(first, *end.offsets), type=type_))


def _with(scalar: Scalar, value: Value) -> Value:
    return replace(
        value,
        size=scalar.size,
        is_signed=scalar.is_signed,
        shift=scalar.shift,
        bits=scalar.bits,
        format=scalar.format,
        names=scalar.names,
    )


def _element(found: Field, path: list[members.Step], text: str) -> Field:
    step = path[0]
    if len(path) > 1 or step.name or step.element >= found.elements:
        raise SiteError(
            f"'{text}' at character {step.at}: {found.name} has {found.elements} elements, "
            "from [0] on"
        )
    size = found.size // found.elements
    return replace(found, offset=found.offset + step.element * size, size=size, elements=0)


def _field_scalar(found: Field, end: int, text: str) -> tuple[int, Scalar]:
    """Return where and how a field is read. end: bytes of the whole record."""
    if found.elements:
        if found.type not in _CHARACTERS:
            raise SiteError(f"'{text}' is an array: name an element, as in '{text}[0]'")
        scalar = members.text_of(found.size, text)
        over = max(0, found.offset + scalar.size - end)
        # At the record's end, read the bytes before the field too, and shift them out.
        return found.offset - over, replace(scalar, shift=8 * over)
    if found.size not in members.SIZES:
        raise SiteError(f"'{text}' has {found.size} bytes; a key has at most 8 bytes")
    kind = "signed" if found.signed else "dec"
    if found.type in _DEV_TYPES:
        kind = "dev"
    elif found.type.endswith("*"):
        kind = "hex"
    return found.offset, Scalar(found.size, found.signed and kind == "signed", format=kind)


def sides(text: str) -> tuple[str, str]:
    """Return a key's expressions at the pair's begin and end: "left|right", or one for both."""
    left, bar, right = text.partition("|")
    if bar and (not left.strip() or not right.strip() or "|" in right):
        raise SiteError(f"key '{text}': write BEGIN|END, an expression on each side of one |")
    return left.strip(), (right if bar else left).strip()


def _operand(text: str, value: Value) -> int | None:
    """Return a condition's number: decimal, 0x…, an enum's name, 8:0 of a device, 'text'."""
    by_name = {name: number for number, name in value.names.items()}
    if text in by_name:
        return by_name[text]
    if value.format == "dev" and (device := _DEVICE.fullmatch(text)):
        return int(device[1]) << _MINOR_BITS | int(device[2])
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        raw = os.fsencode(text[1:-1])
        return int.from_bytes(raw, "little") if len(raw) <= value.size else None
    try:
        number = int(text, 0)
    except ValueError:
        return None
    return number if -(1 << 63) <= number <= _ALL else None
