# SPDX-License-Identifier: Apache-2.0
"""Compiles what a user writes of a site ("arg0->q->id", "@tid", "vec == 3") to a `Value`.

A Value is read by programs that were compiled before (struct bt_value in `bpf/shared.h`): nothing
is compiled where biotrail runs. What a name means depends on the site, so there is a scope for each
kind of site: a typed tracepoint, a tracepoint by its format, a followed object. Members are found
by path: `q->disk->major`, `bi_iter.bi_sector`, `tags[2]`.
"""

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from itertools import islice
from typing import NamedTuple

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.formats import Format
from biotrail.recorder.schema.limits import VALUE_STEPS, Operator, Source
from biotrail.recorder.sites.btf import RECORDS, Btf, Kind, Member, Type
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
_POINTER = 8
_SIZES = (1, 2, 4, 8)
"""Bytes that a program reads at once."""
_LISTED = 12
_NAME = re.compile(r"[A-Za-z_]\w*")
_ARGUMENT = re.compile(r"arg(\d{1,2})")
_STEP = re.compile(r"(?P<through>->|\.)(?P<name>[A-Za-z_]\w*)|\[(?P<index>\d{1,9})\]")
_LOW_BITS = re.compile(r"(.*\S)\s*:\s*(\d{1,2})\s*", re.DOTALL)
"""An expression whose lowest bits alone count, as C writes a bit field: `cid:12`."""
_CONDITION = re.compile(
    r"\s*(?P<left>(?:->|[^-=!<>&\s])+)\s*(?P<op>==|!=|<=|>=|<|>|&)\s*(?P<right>\S.*?)\s*$"
)
_DEVICE = re.compile(r"(\d{1,4}):(\d{1,7})")
_MINOR_BITS = 20
_ALL = (1 << 64) - 1
_POINTED = re.compile(r"(?:const )?(?:struct|union) (\w+) \*")
_CHARACTERS = ("char", "signed char", "unsigned char")


@dataclass(frozen=True)
class Value:
    """A number that a program reads at a site.

    source, size, shift, bits, is_signed, at: members of struct bt_value. at: with FIELD the byte
    offset in the tracepoint's record, with ARGUMENT the argument's index, with OBJECT 0; then, for
    each pointer that is read, the offset behind it. size: bytes of the last reading; shift, bits:
    the part of these that counts (bits 0: all). text: as written. format: how it is shown: dec,
    signed, hex, dev (a dev_t), text (up to 8 characters, the first in the lowest byte). names: of
    an enum's values, by their 64 bits. type: as C writes it; "" where the source says it.
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


NO_VALUE = Value(Source.NONE, "", 0)


@dataclass(frozen=True)
class Condition:
    """A test of a value, signed where the value is. operand: 64 bits, also of a negative."""

    value: Value
    operator: Operator
    operand: int
    text: str


class Step(NamedTuple):
    """A step of a path: a member's name, or the index of an element. at: its place in the text."""

    name: str
    element: int
    at: int


class Scope(ABC):
    """What names mean at one site."""

    site: str
    """For messages: "tracepoint sched:sched_switch", "struct request"."""
    listed: str
    """What expressions may begin with at this site, for messages."""

    def value(self, text: str) -> Value:
        """Compile an expression. Raises SiteError, which says what there is instead."""
        text = text.strip()
        if not text:
            raise SiteError(f"{self.site}: an expression is empty; there is {self.listed}")
        if len(text) > _MOST_CHARACTERS:
            raise SiteError(
                f"{self.site}: an expression has more than {_MOST_CHARACTERS} characters"
            )
        if low := _LOW_BITS.fullmatch(text):
            value, bits = self.value(low[1]), int(low[2])
            most = value.bits or 8 * value.size
            if not 1 <= bits <= most:
                raise SiteError(
                    f"{self.site}: '{text}': a value of {most} bits has no lowest {bits}"
                )
            kind = "hex" if value.format == "hex" else "dec"
            return replace(value, text=text, bits=bits, is_signed=False, format=kind, names={})
        if text.startswith("@"):
            if text not in TASK_SOURCES:
                raise SiteError(f"{self.site}: '{text}' is none of {', '.join(TASK_SOURCES)}")
            return Value(TASK_SOURCES[text], text, 4)
        match = _NAME.match(text)
        if match is None:
            raise SiteError(
                f"{self.site}: '{text}' at character 1: expected a name; there is {self.listed}"
            )
        try:
            return self._named(match[0], _steps(text, match.end()), text)
        except SiteError as error:
            raise SiteError(f"{self.site}: {error}") from error

    @abstractmethod
    def _named(self, name: str, path: list[Step], text: str) -> Value:
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
            names = ", ".join(list(value.names.values())[:12])
            raise SiteError(
                f"{self.site}: '{text}' at character {match.start('right') + 1}: "
                f"'{match['right']}' is no number" + (f", or one of {names}" if names else "")
            )
        return Condition(value, OPERATORS[match["op"]], operand & _ALL, text.strip())


class TypedScope(Scope):
    """A tracepoint whose arguments have types, by their names or as arg0, arg1 and so on."""

    def __init__(self, prototype: Prototype, site: str) -> None:
        self._prototype = prototype
        self.site = f"tracepoint {site}"
        arguments = [
            f"arg{index}{f' {name}' if name else ''} ({type_text(prototype.btf, type_)})"
            for index, (name, type_) in enumerate(
                zip(prototype.names, prototype.types, strict=True)
            )
        ]
        self.listed = ", ".join((*arguments, *TASK_SOURCES))

    def _named(self, name: str, path: list[Step], text: str) -> Value:
        names = self._prototype.names
        numbered = _ARGUMENT.fullmatch(name)
        if name in names:
            index = names.index(name)
        elif numbered and int(numbered[1]) < len(names):
            index = int(numbered[1])
        else:
            near = _near(name, filter(None, names))
            raise SiteError(
                f"'{text}' at character 1: no argument {name}; {near}there is {self.listed}"
            )
        made = self._prototype
        return _at_end(Source.ARGUMENT, index, made.btf, made.types[index], path, text)


class ObjectScope(Scope):
    """A followed object: members of its struct."""

    def __init__(self, types: TypeTable, struct: str) -> None:
        self._btf, self._struct = types.struct(struct)
        self.site = f"struct {struct}"
        members = islice(_members(self._btf, self._struct), _LISTED)
        self.listed = ", ".join((*(one.name for one in members), *TASK_SOURCES))

    def _named(self, name: str, path: list[Step], text: str) -> Value:
        steps, number = [Step(name, 0, 1), *path], self._struct.number
        return _at_end(Source.OBJECT, 0, self._btf, number, steps, text)


class FormatScope(Scope):
    """A tracepoint by its format. types: describes the structs that fields point to."""

    def __init__(self, format_: Format, site: str, types: TypeTable) -> None:
        self._format, self._types = format_, types
        self.site = f"tracepoint {site}"
        self.listed = ", ".join((*format_.own_fields, *TASK_SOURCES))

    def _named(self, name: str, path: list[Step], text: str) -> Value:
        found = self._format.fields.get(name)
        if found is None:
            near = _near(name, self._format.own_fields)
            raise SiteError(
                f"'{text}' at character 1: no field {name}; {near}there is {self.listed}"
            )
        if found.is_located:
            raise SiteError(
                f"'{text}' is a text of any length ({found.type}): a key has at most 8 bytes; "
                f"there is {self.listed}"
            )
        if path and not found.elements:
            pointed = _POINTED.fullmatch(found.type)
            if pointed is None:
                raise SiteError(
                    f"'{text}' at character {path[0].at}: {found.name} ({found.type}) has no "
                    "members that are known here"
                )
            blob, struct = self._types.struct(pointed[1])
            return _at_end(Source.FIELD, found.offset, blob, struct.number, path, text)
        if path:
            step = path[0]
            if len(path) > 1 or step.name or step.element >= found.elements:
                raise SiteError(
                    f"'{text}' at character {step.at}: {found.name} has {found.elements} elements, "
                    "from [0] on"
                )
            size = found.size // found.elements
            offset = found.offset + step.element * size
            found = replace(found, offset=offset, size=size, elements=0)
        value = Value(Source.FIELD, text, found.size, (found.offset,), type=found.type)
        if found.elements:
            if found.type not in _CHARACTERS:
                raise SiteError(f"'{text}' is an array: name an element, as in '{text}[0]'")
            value = _characters(value, found.size)
            # At the record's end, read the bytes before the field too, and shift them out.
            over = max(0, found.offset + value.size - self._format.size)
            return replace(value, at=(found.offset - over,), shift=8 * over)
        if found.size not in _SIZES:
            raise SiteError(f"'{text}' has {found.size} bytes; a key has at most 8 bytes")
        if found.type == "dev_t":
            return replace(value, format="dev")
        if found.type.endswith("*"):
            return replace(value, format="hex")
        return replace(value, is_signed=found.signed, format="signed") if found.signed else value


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


# Members by path


def _steps(text: str, start: int) -> list[Step]:
    found, at = [], start
    while at < len(text):
        match = _STEP.match(text, at)
        if match is None:
            raise SiteError(
                f"'{text}' at character {at + 1}: expected ->member, .member or [number], "
                f"not '{text[at:]}'"
            )
        name = match["name"] or ""
        begins = match.start("name") if name else at
        found.append(Step(name, int(match["index"] or 0), begins + 1))
        at = match.end()
    return found


def _at_end(
    source: Source, first: int, btf: Btf, number: int, path: Iterable[Step], text: str
) -> Value:
    """Return the value at the end of `path`. first: bt_value.at[0]; number: of the type there.

    `.` and `->` are one: whether a pointer has to be followed is known by its type.
    """
    # Bytes; each one behind a pointer that was read at the place before. An argument is no place.
    offsets = [] if source == Source.ARGUMENT else [0]
    bit = bits = 0  # of a bit field, from the byte of its first bit on
    for step in path:
        number, bit, bits = _step(btf, number, offsets, step, text)
        # The first of bt_value's steps is the argument, field or object itself.
        if len(offsets) > VALUE_STEPS - 1:
            raise SiteError(
                f"'{text}' at character {step.at}: more than {VALUE_STEPS - 1} pointers in a row"
            )
    type_, found = type_text(btf, number), btf.strip(number)
    value = Value(source, text, at=(first, *offsets), type=type_)
    match found.kind:
        case Kind.PTR:
            return replace(value, format="hex")
        case Kind.ARRAY:
            element, count = btf.array(found)
            if btf.strip(element).name not in _CHARACTERS:
                raise SiteError(
                    f"'{text}' is an array ({type_}): name an element, as in '{text}[0]'"
                )
            return _characters(value, count)
        case Kind.ENUM | Kind.ENUM64:
            signed = found.flag
            value = replace(value, names={v & _ALL: n for v, n in btf.values(found).items()})
        case Kind.INT:
            signed = bool(int(btf.words_of(found)[0]) >> 24 & 1)  # BTF_INT_SIGNED
        case Kind.STRUCT | Kind.UNION:
            members = choices("", (one.name for one in _members(btf, found)), "members")
            raise SiteError(f"'{text}' is a whole {type_}: name one of its {members}")
        case _:
            raise SiteError(
                f"'{text}' is a value of type {type_}, which cannot be read as a number"
            )
    named = btf.type(number)
    while named.kind == Kind.TYPEDEF and named.name not in ("dev_t", "__kernel_dev_t"):
        named = btf.type(named.extent)
    kind = "dev" if named.kind == Kind.TYPEDEF else "signed" if signed else "dec"
    value = replace(value, size=found.extent, is_signed=signed, format=kind)
    if not bits or not offsets:
        return value
    # The place is the byte of the first bit, so read as few bytes from there as hold all bits.
    size = next((size for size in _SIZES if bit + bits <= size * 8), _SIZES[-1])
    return replace(value, size=size, shift=bit, bits=bits)


def _step(btf: Btf, number: int, offsets: list[int], step: Step, text: str) -> tuple[int, int, int]:
    """Take a step, which changes `offsets`; return the type, and a bit field's bit and bits."""
    where, what = f"'{text}' at character {step.at}", type_text(btf, number)
    found, bit, bits = btf.strip(number), 0, 0
    followed = found.kind == Kind.PTR
    if followed:
        offsets.append(0)
        number = found.extent
    if step.name:
        if followed:
            found, what = btf.strip(number), type_text(btf, number)
        if found.kind not in RECORDS:
            described = " that the kernel's types (BTF) describe" if found.kind == Kind.FWD else ""
            raise SiteError(f"{where}: {what} has no members{described}")
        member = next((one for one in _members(btf, found) if one.name == step.name), None)
        if member is None:
            there = choices(step.name, (one.name for one in _members(btf, found)), "members")
            raise SiteError(f"{where}: {what} has no member {step.name}; {there}")
        number, by, bit, bits = member.number, member.bit // 8, member.bit % 8, member.bits
    else:
        if not followed:
            if found.kind != Kind.ARRAY:
                raise SiteError(f"{where}: {what} is no array")
            number, count = btf.array(found)
            if count and step.element >= count:
                raise SiteError(f"{where}: the array has {count} elements, from [0] on")
        by = step.element * _bytes(btf, number)
    if not offsets:
        raise SiteError(f"{where}: {what} is passed by value, of which no part can be read")
    offsets[-1] += by
    return number, bit, bits


def _members(btf: Btf, holder: Type) -> Iterator[Member]:
    """Yield the members, also of anonymous structs and unions; offsets are from the holder."""
    for member in btf.members(holder):
        if member.name:
            yield member
        elif (inner := btf.strip(member.number)).kind in RECORDS:
            for deep in _members(btf, inner):
                yield deep._replace(bit=deep.bit + member.bit)


def _bytes(btf: Btf, number: int) -> int:
    found = btf.strip(number)
    if found.kind == Kind.PTR:
        return _POINTER
    if found.kind == Kind.ARRAY:
        element, count = btf.array(found)
        return count * _bytes(btf, element)
    return found.extent if found.kind not in (Kind.VOID, Kind.FWD, Kind.FUNC_PROTO) else 1


def _characters(value: Value, count: int) -> Value:
    """Return `count` characters read as one value; SiteError: more than 8, or none."""
    if not 0 < count <= _SIZES[-1]:
        many = f"{count} characters" if count else "no fixed length"
        raise SiteError(f"'{value.text}' has {many}; a key has at most {_SIZES[-1]} bytes")
    size = next(size for size in _SIZES if size >= count)
    return replace(value, size=size, bits=0 if size == count else 8 * count, format="text")


def _near(name: str, known: Iterable[str]) -> str:
    near = get_close_matches(name, list(known), 4)
    return f"near: {', '.join(near)}; " if near else ""


def choices(name: str, known: Iterable[str], what: str) -> str:
    """Return what there is instead of `name`: near names, and the first of `known`."""
    known = list(known)
    listed = ", ".join(known[:_LISTED]) or "none"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return f"{_near(name, known)}{what}: {listed}{more}"
