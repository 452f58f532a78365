# SPDX-License-Identifier: Apache-2.0
"""What takes a struct, and tracepoints' prototypes: by crafted types, and this kernel's."""

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.formats import parse
from biotrail.recorder.schema.limits import VALUE_STEPS
from biotrail.recorder.sites.btf import Btf
from biotrail.recorder.sites.expressions import (
    Condition,
    FormatScope,
    ObjectScope,
    Scope,
    Source,
    TypedScope,
    Value,
    sides,
)
from biotrail.recorder.sites.types import Prototype, Taking, TypeTable
from tests.support.btf_builder import BtfBuilder
from tests.support.crafted_kernel import Crafted, crafted


@pytest.fixture(scope="module")
def made() -> Crafted:
    return crafted()


def named(takings: list[Taking]) -> dict[str, Taking]:
    return {taking.name: taking for taking in takings}


def test_functions_that_take_a_struct_are_found_with_the_first_argument(made: Crafted) -> None:
    # GIVEN functions with a request behind typedefs and const, and others with a queue, a request
    # by value, or made by the tracing macros
    # WHEN those that take a request are asked for
    found = named(made.table.functions_taking("request"))
    # THEN the others are not among them, and each has its argument; behind a struct of two words
    # the slot says where it is, and behind a larger one that this is not known
    shown = {n: (t.module, t.argument, t.slot) for n, t in found.items()}
    assert shown == {
        "blk_start": ("", 0, 0),
        "blk_end": ("", 1, 1),
        "blk_hidden": ("", 0, 0),
        "blk_seventh": ("", 6, 6),
        "blk_behind": ("", 1, 2),
        "blk_stacked": ("", 1, -1),
        "drv_queue": ("drv", 1, 1),
        "drv_shared": ("drv", 0, 0),
    }
    # AND its id, also of a module's functions, of which one has the kernel's own prototype
    ids = {"blk_end": "end", "drv_queue": "drv", "drv_shared": "shared"}
    assert {name: found[name].btf_id for name in ids} == {n: made.ids[i] for n, i in ids.items()}
    assert found["blk_end"].arguments == 3
    # AND a struct that only the module has is found there
    assert [t.name for t in made.table.functions_taking("drv_cmd")] == ["drv_queue"]


def test_tracepoints_that_take_a_struct_are_found(made: Crafted) -> None:
    # WHEN tracepoints with a request are asked for
    found = named(made.table.tracepoints_taking("request"))
    # THEN the probe's own data does not count as an argument
    assert set(found) == {"rq_issue", "rq_nameless", "rq_merge", "drv_issue"}
    issue, nameless = found["rq_issue"], found["rq_nameless"]
    assert (issue.argument, issue.arguments, issue.slot) == (0, 3, 0)
    assert (issue.btf_id, issue.module) == (made.ids["issue"], "")
    assert (nameless.argument, nameless.btf_id) == (1, made.ids["nameless"])
    assert (found["drv_issue"].module, found["drv_issue"].argument) == ("drv", 1)
    # GIVEN a tracepoint with two requests
    both = [t for t in made.table.tracepoints_taking("request") if t.name == "rq_merge"]
    # THEN each counts
    assert [(t.argument, t.slot) for t in both] == [(1, 1), (2, 2)]
    # AND each is shown with its argument's name
    assert [t.shown for t in both] == ["rq_merge(rq)", "rq_merge(next)"]
    assert issue.shown == "rq_issue"


def test_a_prototype_has_names_and_types(made: Crafted) -> None:
    # WHEN a tracepoint is asked for by its name, with its system or without
    issue = made.table.prototype("rq_issue")
    assert issue == made.table.prototype("block:rq_issue")
    # THEN its arguments are named and typed as in C
    assert issue is not None
    assert issue.names == ("rq", "bytes", "what")
    assert TypedScope(issue, "x").listed.startswith(
        "arg0 rq (struct request *), arg1 bytes (unsigned int), arg2 what (unsigned char), "
    )
    # AND without a function of that prototype there are no names
    nameless = made.table.prototype("rq_nameless")
    assert nameless is not None
    assert nameless.names == ("", "")
    # AND that of a module's tracepoint says which module's BTF has the id
    found = made.table.prototype("drv:drv_issue")
    assert found is not None
    assert (found.module, found.btf_id) == ("drv", made.ids["drv_tp"])
    # AND one that nobody has is none
    assert made.table.prototype("drv:drv_nothing") is None


def test_what_has_no_types_is_said(made: Crafted, tmp_path: Path) -> None:
    # WHEN a struct's name is misspelt  THEN the message has names like it
    with pytest.raises(SiteError, match="no struct requets; near: request"):
        made.table.functions_taking("requets")
    # GIVEN a module whose BTF is damaged  THEN it has none
    table = TypeTable(BtfBuilder().bytes(), {"bad": lambda: struct.pack("<I", 7)})
    assert table.prototype("bad:bad_event") is None
    # GIVEN a kernel without BTF  THEN the message names the option that it needs
    with pytest.raises(SiteError, match="CONFIG_DEBUG_INFO_BTF"):
        TypeTable.kernel(tmp_path)


def built(add: Callable[[BtfBuilder], object]) -> bytes:
    builder = BtfBuilder()
    add(builder)
    return builder.bytes()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is too short"),
        (b"\x12\x34" + bytes(30), "it begins with 0x3412"),
        (BtfBuilder().bytes()[:-1], "it is cut"),
        # A type of a kind that a later kernel may have, whose length nobody knows.
        (built(lambda builder: builder.add(31, "new", 4)), "kind that is not known"),
        (built(lambda builder: builder.pointer(77)), "refers to one that is not there"),
    ],
)
def test_what_is_no_btf_is_one_message(data: bytes, message: str) -> None:
    # GIVEN bytes that are no BTF, or a part of one, or refer to nothing  THEN there is one message
    with pytest.raises(SiteError, match=message):
        TypeTable(data, {})


# Expressions and conditions compiled to values, by crafted types and formats.

FORMAT = """name: rq_issue
ID: 77
format:
\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;
\tfield:struct request * rq;\toffset:16;\tsize:8;\tsigned:0;
\tfield:u32 counts[3];\toffset:24;\tsize:12;\tsigned:0;
\tfield:char comm[16];\toffset:36;\tsize:16;\tsigned:0;
\tfield:__data_loc char[] cmd;\toffset:52;\tsize:4;\tsigned:0;
\tfield:int error;\toffset:56;\tsize:4;\tsigned:1;
\tfield:char rwbs[6];\toffset:60;\tsize:6;\tsigned:0;

print fmt: "%d", REC->dev
"""
KERNEL = crafted().table


def typed() -> TypedScope:
    prototype = KERNEL.prototype("rq_issue")
    assert prototype is not None
    return TypedScope(prototype, "block:rq_issue")


def by_format() -> FormatScope:
    return FormatScope(parse("rq_issue", FORMAT), "block:rq_issue", KERNEL)


def shape(value: Value) -> tuple[Source, tuple[int, ...], int, str]:
    return value.source, value.at, value.size, value.format


@pytest.mark.parametrize(
    ("text", "at", "size", "format_"),
    [
        ("rq", (0,), 8, "hex"),
        ("arg0", (0,), 8, "hex"),
        ("arg1", (1,), 4, "dec"),
        ("what", (2,), 1, "dec"),
        ("rq->q", (0, 0), 8, "hex"),
        ("rq->q->id", (0, 0, 4), 4, "signed"),
        ("arg0->q->disk->major", (0, 0, 8, 0), 4, "signed"),
        ("rq.q.disk.minor", (0, 0, 8, 4), 4, "signed"),
        ("rq->bio->bi_iter.bi_sector", (0, 8, 8), 8, "dec"),
        ("rq->bio->dev", (0, 8, 24), 4, "dev"),
        ("rq->tag", (0, 16), 4, "signed"),
        ("rq->__sector", (0, 20), 8, "dec"),
        ("rq->short", (0, 28), 4, "dec"),
        ("rq->counts[2]", (0, 60), 4, "dec"),
        ("rq->short_name", (0, 68), 8, "text"),
        ("rq->bios[1]->dev", (0, 82, 8, 24), 4, "dev"),
        # Fields of the tracepoint's format, at their offsets.
        ("format: dev", (8,), 4, "dev"),
        ("format: rq", (16,), 8, "hex"),
        ("format: error", (56,), 4, "signed"),
        ("format: counts[1]", (28,), 4, "dec"),
        ("format: rq->q->id", (16, 0, 4), 4, "signed"),
        ("format: common_pid", (4,), 4, "signed"),
    ],
)
def test_arguments_fields_and_their_members(
    text: str, at: tuple[int, ...], size: int, format_: str
) -> None:
    # GIVEN a path through pointers, structs inside others, anonymous ones, unions and arrays
    field = text.removeprefix("format: ")
    scope, source = (typed(), Source.ARGUMENT) if field == text else (by_format(), Source.FIELD)
    # THEN its value has the offset behind each pointer, its size, and how it is shown
    assert shape(scope.value(field)) == (source, at, size, format_)


def test_bits_enums_and_keys_of_records() -> None:
    # GIVEN bit fields at the bits 0, 13 and 20 of a struct at byte 36
    low, mid, wide = (typed().value(f"rq->flags.{name}") for name in ("low", "mid", "wide"))
    # THEN each begins at the byte of its first bit
    assert (low.at, low.size, low.shift, low.bits) == ((0, 36), 1, 0, 3)
    assert (mid.at, mid.size, mid.shift, mid.bits) == ((0, 37), 2, 5, 5)
    assert (wide.at, wide.size, wide.shift, wide.bits) == ((0, 38), 8, 4, 40)
    # GIVEN enums, one with a negative value
    state, mood = typed().value("rq->state"), typed().value("rq->mood")
    # THEN names are by 64 bits, and a negative one makes it signed
    assert state.names == {0: "IDLE", 1: "FLYING", 2: "DONE"}
    assert mood.is_signed
    assert mood.names == {(1 << 64) - 1: "BAD", 1: "GOOD"}
    # GIVEN an enum with values beyond 32 bits and a negative one
    builder = BtfBuilder()
    number = builder.enum64("big", signed=True, FAR=1 << 40, LESS=-2)
    blob = Btf(builder.bytes())
    # THEN they are whole
    assert blob.values(blob.type(number)) == {1 << 40: "FAR", -2: "LESS"}
    # GIVEN keys with and without a bar  THEN each side has its expression
    assert sides("pid|next_pid") == ("pid", "next_pid")
    assert sides("work") == ("work", "work")
    for wrong in ("a|", "|b", "a|b|c"):
        with pytest.raises(SiteError, match="write BEGIN"):
            sides(wrong)
    # GIVEN an object of a type  THEN names are its members, behind its address
    scope = ObjectScope(KERNEL, "request")
    assert shape(scope.value("__sector")) == (Source.OBJECT, (0, 20), 8, "dec")
    assert shape(scope.value("q->id")) == (Source.OBJECT, (0, 0, 4), 4, "signed")
    assert shape(scope.value("@cpu")) == (Source.CPU, (), 4, "dec")
    # GIVEN an argument that is a whole struct, as in no register  THEN it has no parts
    blob, request = KERNEL.struct("request")
    scope = TypedScope(Prototype("", 1, ("rq",), (request.number,), blob), "x")
    with pytest.raises(SiteError, match=r"character 4: struct request is passed by value"):
        scope.value("rq.tag")
    # GIVEN an argument with pointers behind pointers  THEN as many are followed as programs can
    builder = BtfBuilder()
    number = builder.int("int", 4, signed=True)
    for _ in range(VALUE_STEPS):
        number = builder.pointer(number)
    scope = TypedScope(Prototype("", 1, ("p",), (number,), Btf(builder.bytes())), "x")
    assert scope.value("p" + "[0]" * (VALUE_STEPS - 1)).at == (0,) * VALUE_STEPS
    with pytest.raises(SiteError, match="character 17: more than 5 pointers in a row"):
        scope.value("p" + "[0]" * VALUE_STEPS)
    # GIVEN 6 characters at the record's end, of which 8 cannot be read
    value = by_format().value("rwbs")
    # THEN two bytes before are read as well and shifted out
    assert (value.at, value.size, value.shift, value.bits) == ((58,), 8, 16, 48)
    # GIVEN a signed field of 32 bits WHEN its lowest 12 bits are taken
    found = by_format().value("error:12")
    # THEN they are read as a number without a sign, and named as written
    assert (found.size, found.bits, found.shift, found.is_signed) == (4, 12, 0, False)
    assert (found.text, found.format) == ("error:12", "dec")
    # AND so in conditions
    assert by_format().condition("error:4 == 3").value.bits == 4
    # AND of a value of 32 bits no less than one and no more can be taken
    for text in ("error:0", "error:33", "dev:64"):
        with pytest.raises(SiteError, match="a value of 32 bits has no lowest"):
            by_format().value(text)


@pytest.mark.parametrize(
    ("scope", "text", "message"),
    [
        (typed, "rqq", "'rqq' at character 1: no argument rqq; near: rq; there is arg0 rq"),
        (typed, "arg3", "no argument arg3; .*arg2 what .unsigned char., @tid, @pid, @cpu"),
        (
            typed,
            "rq->dsk",
            "->dsk' at character 5: .*no member dsk; .*members: q, bio, tag, __sector",
        ),
        (typed, "rq->q->dsk", "at character 8: .*no member dsk; near: disk"),
        (typed, "rq-q", "at character 3: expected ->member, .member or .number., not '-q'"),
        (
            typed,
            "rq->bio->bi_iter",
            "is a whole struct bvec_iter: name one of .*members: bi_sector",
        ),
        (
            typed,
            "rq->counts",
            "array .unsigned int .4..: name an element, as in 'rq->counts.0.'",
        ),
        (typed, "rq->counts[4]", "the array has 4 elements"),
        (typed, "rq->tag[0]", "int is no array"),
        (typed, "rq->tag->x", "int has no members"),
        (typed, "rq->secret->x", "has no members that the kernel's types .BTF. describe"),
        (typed, "rq->q->disk->disk_name", "has 32 characters; a key has at most 8 bytes"),
        (typed, "bytes->x", "unsigned int has no members"),
        (typed, "@thread", "'@thread' is none of @tid, @pid, @cpu"),
        (typed, "", "an expression is empty; there is arg0 rq"),
        (typed, "3", "expected a name"),
        (by_format, "cmd", "is a text of any length .*at most 8 bytes"),
        (by_format, "comm", "has 16 characters; a key has at most 8 bytes"),
        (by_format, "counts", "is an array: name an element"),
        (by_format, "counts[3]", "counts has 3 elements"),
        (by_format, "dve", "no field dve; near: dev; there is dev, rq, counts"),
        (by_format, "dev->x", "dev .dev_t. has no members"),
    ],
)
def test_what_is_wrong_of_an_expression_is_said(
    scope: Callable[[], Scope], text: str, message: str
) -> None:
    # GIVEN an expression  THEN its message names the site, the text, the place, and what there is
    with pytest.raises(SiteError, match=f"tracepoint block:rq_issue: .*{message}"):
        scope().value(text)


@pytest.mark.parametrize(
    ("text", "operator", "operand"),
    [
        ("bytes == 4096", 0, 4096),
        ("bytes!=0x10", 1, 16),
        ("rq->tag < -1", 2, (1 << 64) - 1),
        ("rq->q->id>=2", 5, 2),
        ("bytes & 0xff", 6, 255),
        ("rq->state == FLYING", 0, 1),
        ("rq->mood == BAD", 0, (1 << 64) - 1),
        ("rq->bio->dev == 8:16", 0, 8 << 20 | 16),
        ("rq->short_name == 'loop0'", 0, int.from_bytes(b"loop0", "little")),
    ],
)
def test_conditions(text: str, operator: int, operand: int) -> None:
    # GIVEN a condition with a number, a name of the enum, a device or a text
    found = typed().condition(text)
    # THEN its operand is 64 bits
    assert isinstance(found, Condition)
    assert (found.operator, found.operand) == (operator, operand)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bytes", "is no condition: write EXPRESSION OPERATOR NUMBER"),
        ("bytes == many", "at character 10: 'many' is no number"),
        ("rq->state == FLY", "'FLY' is no number, or one of IDLE, FLYING, DONE"),
        ("rq->short_name == 'far too long'", "is no number"),
        ("bytes == 99999999999999999999", "is no number"),
        ("nothing == 1", "no argument nothing"),
    ],
)
def test_what_is_wrong_of_a_condition_is_said(text: str, message: str) -> None:
    with pytest.raises(SiteError, match=message):
        typed().condition(text)
