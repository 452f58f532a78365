# SPDX-License-Identifier: Apache-2.0
"""What takes a struct, and tracepoints' prototypes: by crafted types, and this kernel's."""

import struct
from pathlib import Path

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.btf import Btf
from biotrail.recorder.sites.types import PLACE, Taking, TypeTable
from tests.support.btf_builder import BtfBuilder
from tests.support.crafted_kernel import Crafted, crafted


@pytest.fixture(scope="module")
def made() -> Crafted:
    return crafted()


@pytest.fixture(scope="module")
def running() -> TypeTable:
    if not (PLACE / "vmlinux").exists():
        pytest.skip("this kernel has no BTF")
    return TypeTable.kernel()


def named(takings: list[Taking]) -> dict[str, Taking]:
    return {taking.name: taking for taking in takings}


def test_functions_that_take_a_struct_are_found_with_the_first_argument(made: Crafted) -> None:
    # GIVEN functions with a request behind typedefs and const, and others with a queue, a request
    # by value, or made by the tracing macros
    # WHEN those that take a request are asked for
    found = named(made.table.functions_taking("request"))
    # THEN the others are not among them, and each has its argument, id and linkage
    assert set(found) == {
        *("blk_start", "blk_end", "blk_hidden", "blk_seventh", "blk_behind", "blk_stacked"),
        *("drv_queue", "drv_shared"),
    }
    end = found["blk_end"]
    assert (end.argument, end.arguments, end.btf_id) == (1, 3, made.ids["end"])
    assert end.is_static and not found["blk_start"].is_static
    assert found["blk_hidden"].argument == 0


def test_a_modules_functions_have_its_name_and_ids(made: Crafted) -> None:
    # GIVEN a module whose functions take the kernel's struct, one by the kernel's own prototype
    found = named(made.table.functions_taking("request"))
    # THEN both are the module's
    queue, shared = found["drv_queue"], found["drv_shared"]
    assert (queue.module, queue.argument, queue.btf_id) == ("drv", 1, made.ids["drv"])
    assert (shared.module, shared.argument, shared.btf_id) == ("drv", 0, made.ids["shared"])
    # AND a struct that only the module has is found there
    assert [t.name for t in made.table.functions_taking("drv_cmd")] == ["drv_queue"]


def test_arguments_behind_structs_by_value_have_another_register(made: Crafted) -> None:
    # GIVEN a struct of two words before the request, a larger one, and six numbers before it
    found = named(made.table.functions_taking("request"))
    # THEN the slot says where it is; on the stack it is in no register
    assert (found["blk_behind"].argument, found["blk_behind"].slot) == (1, 2)
    assert found["blk_behind"].in_register
    assert not found["blk_stacked"].in_register
    assert not found["blk_seventh"].in_register
    assert found["blk_seventh"].argument == 6


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


def test_a_tracepoint_may_pass_two_objects(made: Crafted) -> None:
    # GIVEN a tracepoint with two requests
    first = [t for t in made.table.tracepoints_taking("request") if t.name == "rq_merge"]
    both = [t for t in made.table.tracepoints_taking("request", every=True) if t.name == "rq_merge"]
    # THEN the first counts, or each if every one is asked for
    assert [t.argument for t in first] == [1]
    assert [(t.argument, t.slot) for t in both] == [(1, 1), (2, 2)]
    # AND each is shown with its argument's name
    assert [t.shown for t in both] == ["rq_merge(rq)", "rq_merge(next)"]
    assert [t.shown for t in first] == ["rq_merge"]


def test_a_prototype_has_names_and_types(made: Crafted) -> None:
    # WHEN a tracepoint is asked for by its name, with its system or without
    issue = made.table.prototype("rq_issue")
    assert issue == made.table.prototype("block:rq_issue")
    # THEN its arguments are named and typed as in C
    assert issue is not None
    assert [(a.name, a.text) for a in issue.arguments] == [
        ("rq", "struct request *"),
        ("bytes", "unsigned int"),
        ("what", "unsigned char"),
    ]
    # AND without a function of that prototype there are no names
    nameless = made.table.prototype("rq_nameless")
    assert nameless is not None
    assert [a.name for a in nameless.arguments] == ["", ""]


def test_a_modules_tracepoint_is_found_there(made: Crafted) -> None:
    # THEN its prototype says which module's BTF has the id
    found = made.table.prototype("drv:drv_issue")
    assert found is not None
    assert (found.module, found.btf_id) == ("drv", made.ids["drv_tp"])
    # AND one that nobody has is none
    assert made.table.prototype("drv:drv_nothing") is None


def test_an_unknown_struct_names_near_ones(made: Crafted) -> None:
    # WHEN a struct's name is misspelt  THEN the message has names like it
    with pytest.raises(SiteError, match="no struct requets; near: request"):
        made.table.functions_taking("requets")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is too short"),
        (b"\x12\x34" + bytes(30), "it begins with 0x3412"),
        (BtfBuilder().bytes()[:-1], "it is cut"),
    ],
)
def test_what_is_no_btf_is_one_message(data: bytes, message: str) -> None:
    # GIVEN bytes that are no BTF, or a part of one  THEN there is one message
    with pytest.raises(SiteError, match=message):
        TypeTable(data, {})


def test_a_kind_that_is_not_known_is_one_message() -> None:
    # GIVEN a type of a kind that a later kernel may have, whose length nobody knows
    builder = BtfBuilder()
    builder.add(31, "new", 4)
    # THEN nothing behind it can be read
    with pytest.raises(SiteError, match="kind that is not known"):
        Btf(builder.bytes())


def test_a_reference_to_nowhere_is_one_message() -> None:
    # GIVEN a pointer to a type that is not there
    builder = BtfBuilder()
    builder.pointer(77)
    with pytest.raises(SiteError, match="refers to one that is not there"):
        Btf(builder.bytes())


def test_a_damaged_module_is_as_one_without_btf() -> None:
    # GIVEN a module whose BTF is damaged
    table = TypeTable(BtfBuilder().bytes(), {"bad": lambda: struct.pack("<I", 7)})
    # THEN it has none
    assert table.module("bad") is None


def test_enums_of_64_bits_have_their_values() -> None:
    # GIVEN an enum with values beyond 32 bits and a negative one
    builder = BtfBuilder()
    number = builder.enum64("big", signed=True, FAR=1 << 40, LESS=-2)
    blob = Btf(builder.bytes())
    # THEN they are whole
    assert blob.values(blob.type(number)) == {1 << 40: "FAR", -2: "LESS"}


def test_without_btf_the_message_says_what_to_do(tmp_path: Path) -> None:
    # GIVEN a kernel without BTF  THEN the message names the option that it needs
    with pytest.raises(SiteError, match="CONFIG_DEBUG_INFO_BTF"):
        TypeTable.kernel(tmp_path)


def test_this_kernels_requests_are_found(running: TypeTable) -> None:
    # GIVEN the running kernel
    functions = named(running.functions_taking("request"))
    # THEN functions and tracepoints that every kernel has are found with their argument
    assert functions["blk_mq_start_request"].argument == 0
    assert len(functions) > 100
    tracepoints = named(running.tracepoints_taking("request"))
    assert {"block_rq_issue", "block_rq_complete"} <= set(tracepoints)
    assert running.prototype("block_rq_complete") is not None
