# SPDX-License-Identifier: Apache-2.0
"""Finds members of kernel structs by path: `q->disk->major`, `bi_iter.bi_sector`, `tags[2]`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import NamedTuple

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.btf import RECORDS, Btf, Kind, Member, Type
from biotrail.recorder.sites.types import type_text

POINTER = 8
MAX_STEPS = 6
"""Values of `bt_value.at`: an argument or field, and dereferences behind it."""
SIZES = (1, 2, 4, 8)
"""Bytes that a program reads at once."""
_STEP = re.compile(r"(?P<through>->|\.)(?P<name>[A-Za-z_]\w*)|\[(?P<index>\d{1,9})\]")
_LISTED = 12
_CHARACTERS = ("char", "signed char", "unsigned char")


class Step(NamedTuple):
    """A step of a path: a member's name, or the index of an element. at: its place in the text."""

    name: str
    element: int
    at: int


@dataclass(frozen=True)
class Scalar:
    """How a value of up to 8 bytes lies at its place, and how it is shown.

    size: bytes that are read, one of SIZES; shift, bits: the part of them that is the value (bits
    0: all). format: dec, signed, hex, dev or text (up to 8 characters). names: of an enum's values.
    """

    size: int
    is_signed: bool = False
    shift: int = 0
    bits: int = 0
    format: str = "dec"
    names: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Place:
    """What a path leads to: a type, and how to get there.

    offsets: bytes; each one behind a pointer that was read at the place before. Empty: the value is
    an argument itself. bits, shift: of a bit field within its declared type.
    """

    btf: Btf
    number: int
    offsets: tuple[int, ...]
    bit: int = 0
    bits: int = 0

    def moved(self, by: int, number: int) -> "Place":
        """Return the place `by` bytes behind this one, of another type."""
        return replace(self, number=number, offsets=(*self.offsets[:-1], self.offsets[-1] + by))

    def behind(self, number: int) -> "Place":
        """Return the place that this one, a pointer, points to."""
        return replace(self, number=number, offsets=(*self.offsets, 0))


def steps(text: str, start: int) -> list[Step]:
    """Return the steps in `text` from `start` on. Raises SiteError: something else is there."""
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


def follow(place: Place, path: Iterable[Step], text: str) -> Place:
    """Return the place that `path` leads to from `place`; `text`: the whole, for messages.

    `.` and `->` are one: whether a pointer has to be followed is known by its type. Raises
    SiteError: there is no such member, or no struct to have members, or too many pointers.
    """
    for step in path:
        place = _member(place, step, text) if step.name else _element(place, step, text)
        # The first of bt_value's steps is the argument, field or object itself.
        if len(place.offsets) > MAX_STEPS - 1:
            raise SiteError(
                f"'{text}' at character {step.at}: more than {MAX_STEPS - 1} pointers in a row"
            )
    return place


def _member(place: Place, step: Step, text: str) -> Place:
    found = place.btf.strip(place.number)
    if found.kind == Kind.PTR:
        place = place.behind(found.extent)
        found = place.btf.strip(found.extent)
    if found.kind not in RECORDS:
        raise SiteError(
            f"'{text}' at character {step.at}: {type_text(place.btf, place.number)} "
            "has no members"
            + (" that the kernel's types (BTF) describe" if found.kind == Kind.FWD else "")
        )
    member = _find(place.btf, found, step.name)
    if member is None:
        raise SiteError(
            f"'{text}' at character {step.at}: {type_text(place.btf, place.number)} has no member "
            f"{step.name}; {choices(step.name, member_names(place.btf, found), 'members')}"
        )
    moved = place.moved(member.bit // 8, member.number)
    return replace(moved, bit=member.bit % 8, bits=member.bits)


def _element(place: Place, step: Step, text: str) -> Place:
    found = place.btf.strip(place.number)
    if found.kind == Kind.PTR:
        size = _bytes(place.btf, found.extent)
        return place.behind(found.extent).moved(step.element * size, found.extent)
    if found.kind != Kind.ARRAY:
        raise SiteError(
            f"'{text}' at character {step.at}: {type_text(place.btf, place.number)} is no array"
        )
    element, count = place.btf.array(found)
    if count and step.element >= count:
        raise SiteError(
            f"'{text}' at character {step.at}: the array has {count} elements, from [0] on"
        )
    return place.moved(step.element * _bytes(place.btf, element), element)


def _find(btf: Btf, holder: Type, name: str) -> Member | None:
    """Return the member, its offset from the holder; also of anonymous structs and unions in it."""
    for member in btf.members(holder):
        if member.name == name:
            return member
        inner = btf.strip(member.number)
        if not member.name and inner.kind in RECORDS and (deep := _find(btf, inner, name)):
            return deep._replace(bit=deep.bit + member.bit)
    return None


def member_names(btf: Btf, holder: Type) -> list[str]:
    """Return the names of a struct's members, those of anonymous structs in it too, in order."""
    names = []
    for member in btf.members(holder):
        inner = btf.strip(member.number)
        if member.name:
            names.append(member.name)
        elif inner.kind in RECORDS:
            names += member_names(btf, inner)
    return names


def _bytes(btf: Btf, number: int) -> int:
    found = btf.strip(number)
    if found.kind == Kind.PTR:
        return POINTER
    if found.kind == Kind.ARRAY:
        element, count = btf.array(found)
        return count * _bytes(btf, element)
    return found.extent if found.kind not in (Kind.VOID, Kind.FWD, Kind.FUNC_PROTO) else 1


def choices(name: str, known: Iterable[str], what: str) -> str:
    """Return what there is instead of `name`: near names, and the first of `known`."""
    known = list(known)
    near = get_close_matches(name, known, 4)
    listed = ", ".join(known[:_LISTED]) or "none"
    more = f" and {len(known) - _LISTED} more" if len(known) > _LISTED else ""
    return (f"near: {', '.join(near)}; " if near else "") + f"{what}: {listed}{more}"


def scalar(place: Place, text: str) -> tuple[Place, Scalar]:
    """Return how the value at `place` is read, with the place where the reading begins.

    Raises SiteError: it is a struct, or an array of anything but up to 8 characters.
    """
    found = place.btf.strip(place.number)
    match found.kind:
        case Kind.PTR:
            return place, Scalar(POINTER, format="hex")
        case Kind.ENUM | Kind.ENUM64:
            names = {v & (1 << 64) - 1: n for v, n in place.btf.values(found).items()}
            plain = Scalar(
                found.extent, found.flag, format="signed" if found.flag else "dec", names=names
            )
            return _bit_field(place, plain)
        case Kind.INT:
            signed = place.btf.integer(found)[0]
            kind = "dev" if _is_dev(place) else "signed" if signed else "dec"
            return _bit_field(place, Scalar(found.extent, signed, format=kind))
        case Kind.ARRAY:
            return _characters(place, found, text)
    what = type_text(place.btf, place.number)
    if found.kind in RECORDS:
        raise SiteError(
            f"'{text}' is a whole {what}: name one of its "
            f"{choices('', member_names(place.btf, found), 'members')}"
        )
    raise SiteError(f"'{text}' is a value of type {what}, which cannot be read as a number")


def _is_dev(place: Place) -> bool:
    found = place.btf.type(place.number)
    while found.kind == Kind.TYPEDEF and found.name not in ("dev_t", "__kernel_dev_t"):
        found = place.btf.type(found.extent)
    return found.kind == Kind.TYPEDEF


def _bit_field(place: Place, plain: Scalar) -> tuple[Place, Scalar]:
    """Return where and how a number is read that may be a bit field of its type."""
    if not place.bits or not place.offsets:
        return place, plain
    # `place` is at the byte of the first bit, so read as few bytes from there as hold all bits.
    size = next((size for size in SIZES if place.bit + place.bits <= size * 8), SIZES[-1])
    return place, replace(plain, size=size, shift=place.bit, bits=place.bits)


def _characters(place: Place, found: Type, text: str) -> tuple[Place, Scalar]:
    element, count = place.btf.array(found)
    if place.btf.strip(element).name not in _CHARACTERS:
        what = type_text(place.btf, place.number)
        raise SiteError(f"'{text}' is an array ({what}): name an element, as in '{text}[0]'")
    return place, text_of(count, text)


def text_of(count: int, text: str) -> Scalar:
    """Return how `count` characters are read as one value; SiteError: more than 8, or none."""
    if not 0 < count <= SIZES[-1]:
        raise SiteError(
            f"'{text}' has {count} characters; a key has at most {SIZES[-1]} bytes"
            if count
            else f"'{text}' has no fixed length; a key has at most {SIZES[-1]} bytes"
        )
    size = next(size for size in SIZES if size >= count)
    return Scalar(size, bits=0 if size == count else 8 * count, format="text")
