# SPDX-License-Identifier: Apache-2.0
"""Which variant of a declared pair a kernel has; the ready-made ones on stock kernels."""

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import READY_MADE, Pair, parse, read
from biotrail.recorder.sites.expressions import NO_VALUE
from biotrail.recorder.sites.resolving import resolve
from tests.support.named_scopes import KERNELS, kernel_names, scopes_of

READY = read(READY_MADE)
NOT_IN_5_10 = {
    "nvme": "5.10 has no types of modules; its format is not among the data",
    **dict.fromkeys(("ext4-fsync", "ext4-writepages", "jbd2-commit"), "likewise"),
    **dict.fromkeys(("f2fs-fsync", "scsi", "fuse"), "likewise"),
    **dict.fromkeys(("xfs-buffer", "xfs-buffer-lock", "xfs-log-space"), "likewise"),
    "lock": "since 5.19",
    "mmap-lock": "since 5.11",
}
ABSENT = {
    "5.10": {"iopf", *NOT_IN_5_10},
    "6.1": {"iopf", "fuse"},
    "6.12": {"iopf"},
    "7.2": {"iopf"},
}
"""iopf is of a module that Debian does not have; fuse's tracepoints came with 6.11."""
FAKE = {
    "a:begin": {"typed": ["rq", "count"], "format": ["dev", "sector"]},
    "a:again": {"typed": ["rq"], "format": ["dev", "sector", "why"]},
    "a:end": {"typed": ["rq", "error"], "format": ["dev", "sector", "status"]},
    "a:plain": {"format": ["dev"]},
}


def pair(**table: object) -> Pair:
    made = {"begin": "a:begin", "end": "a:end", **table}
    return parse({"pairs": {"p": made}}, "here").pairs["p"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", READY.pairs)
def test_ready_made_pairs_are_found_on_stock_kernels(kernel: str, name: str) -> None:
    # GIVEN the names of a kernel's tracepoints, their arguments and fields
    scopes = scopes_of(kernel_names(kernel))
    # THEN a pair is there, but for those that the kernel is known not to have
    if name in ABSENT[kernel]:
        with pytest.raises(SiteError, match=f"pair {name}: "):
            resolve(READY.pairs[name], scopes)
    else:
        assert resolve(READY.pairs[name], scopes).end.keys


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (kernel, name)
        for kernel in KERNELS
        for name, ready in READY.pairs.items()
        if name not in ABSENT[kernel] and any(v.way != "typed" for v in ready.variants)
    ],
)
def test_variants_by_format_are_found_where_the_format_is_known(kernel: str, name: str) -> None:
    # GIVEN a kernel whose types cannot be used
    known = {e: {"format": w["format"]} for e, w in kernel_names(kernel).items() if "format" in w}
    # THEN pairs that have a variant by format are there
    assert resolve(READY.pairs[name], scopes_of(known)).way == "format"


def test_the_first_variant_that_works_is_taken() -> None:
    # GIVEN a pair whose first variant has a field that is not there
    made = pair(variants=[{"way": "typed", "key": "cmd"}, {"way": "format", "key": "sector"}])
    # THEN it is the second
    found = resolve(made, scopes_of(FAKE))
    assert (found.way, found.variant) == ("format", made.variants[1])


def test_without_a_way_types_come_before_the_format() -> None:
    # GIVEN keys that mean something by types, by the format, or by neither
    assert resolve(pair(key="rq"), scopes_of(FAKE)).way == "typed"
    assert resolve(pair(key="sector"), scopes_of(FAKE)).way == "format"
    # THEN of what is missing there are the reasons of each way
    with pytest.raises(SiteError, match=r"pair p: typed: .*no field tag.*; format: .*no field tag"):
        resolve(pair(key="tag"), scopes_of(FAKE))


def test_a_missing_tracepoint_is_said_once() -> None:
    with pytest.raises(SiteError) as caught:
        resolve(pair(begin="a:gone", key="rq"), scopes_of(FAKE))
    assert str(caught.value) == "pair p: this kernel has no tracepoint a:gone"


def test_a_way_that_a_tracepoint_lacks_is_said() -> None:
    made = pair(begin="a:plain", key="dev", way="typed")
    with pytest.raises(SiteError, match=r"a:plain has no types \(BTF\) on this kernel"):
        resolve(made, scopes_of(FAKE))


def test_several_begins_have_their_own_keys_and_conditions() -> None:
    # GIVEN a pair that two events can begin, the second with a condition of its own
    made = pair(
        begin=["a:begin", {"event": "a:again", "where": ["why == 1"], "key": ["dev"]}],
        key="sector|status",
    )
    found = resolve(made, scopes_of(FAKE))
    # THEN each has its key, and the condition is the second's alone
    assert [side.event for side in found.begins] == ["a:begin", "a:again"]
    assert [side.keys[0].text for side in found.begins] == ["sector", "dev"]
    assert [len(side.conditions) for side in found.begins] == [0, 1]
    assert [side.choosing for side in found.begins] == [0, 1]
    assert found.end.keys[0].text == "status"


def test_by_and_device_are_the_first_alternatives_that_a_side_has() -> None:
    # GIVEN alternatives: of `by` the begin has the second, of `device` only the end the first
    made = pair(key="rq", by=["nothing", "count"], device=["error"], where=["error != 0"])
    found = resolve(made, scopes_of(FAKE))
    # THEN each is taken from the side that has it, the condition too
    assert (found.by, found.device) == ("count", "error")
    assert found.begins[0].by.text == "count"
    assert found.end.by is NO_VALUE
    assert found.begins[0].device is NO_VALUE
    assert found.end.device.text == "error"
    assert [len(found.begins[0].conditions), len(found.end.conditions)] == [0, 1]


def test_by_may_have_a_label() -> None:
    # GIVEN alternatives of which one has a label, and names of its values
    made = pair(key="rq", by=["x=nothing", "how many = count"], names={"1": "one"})
    found = resolve(made, scopes_of(FAKE))
    # THEN it is shown by the label
    assert (found.by, found.begins[0].by.text) == ("how many", "count")
    assert found.begins[0].by.names == {1: "one"}


def test_what_no_side_has_is_said() -> None:
    for wrong in ({"by": "x"}, {"device": ["x", "y"]}, {"where": "x == 1"}):
        with pytest.raises(SiteError, match=r"no field [xy]"):
            resolve(pair(key="rq", way="typed", **wrong), scopes_of(FAKE))


def test_names_and_form_are_those_of_by_and_of_the_same_key() -> None:
    # GIVEN names of values, and another form
    found = resolve(
        pair(key=["rq", "count|error"], by="count", names={"1": "one"}, show="symbol"),
        scopes_of(FAKE),
    )
    # THEN `by` and the key of the same name have them, other values not
    side = found.begins[0]
    assert (side.by.names, side.by.format) == ({1: "one"}, "symbol")
    assert (side.keys[1].names, side.keys[0].format) == ({1: "one"}, "dec")


def test_the_process_of_a_pair_may_be_a_field() -> None:
    # GIVEN a pair whose process is not the one that runs
    found = resolve(pair(key="rq", process="rq->tgid|error"), scopes_of(FAKE))
    # THEN each side has its expression
    assert (found.begins[0].process.text, found.end.process.text) == ("rq->tgid", "error")
