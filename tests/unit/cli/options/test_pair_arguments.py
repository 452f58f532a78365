# SPDX-License-Identifier: Apache-2.0
"""What the words and options of `biotrail pairs` mean."""

from dataclasses import replace

import click
import pytest

from biotrail.cli.pairs import PairArguments
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites.declarations import READY_MADE, read

NOTHING = PairArguments(
    key=None, by=None, where=(), devices=(), device_field=None,
    filters=Filters(), interval=None, duration=None, as_json=False,
    output=None, force=False,
    buffer_size=None, max_open=64, by_values=64, max_cpu=None, quiet=False,
)  # fmt: skip
KNOWN = read(READY_MADE)


def test_two_tracepoints_are_a_pair_by_their_key() -> None:
    # GIVEN two tracepoints and a key of two fields
    asked = replace(NOTHING, key="dev, sector", by="dev", where=("bytes > 0",), devices=("vda",))
    # WHEN they are named
    (found,) = asked.pairs(("block:block_rq_issue", "block_rq_complete"), KNOWN)
    # THEN the pair is theirs, named after both, with the device's usual field
    variant = found.variants[0]
    assert found.name == "block_rq_issue-block_rq_complete"
    assert variant.key == ("dev", "sector")
    assert (variant.by, variant.device, variant.where) == (("dev",), ("dev",), ("bytes > 0",))


def test_declared_pairs_are_named_with_commas() -> None:
    # GIVEN two declared names WHEN they are named THEN both are, as they are declared
    found = NOTHING.pairs(("softirq,block",), KNOWN)
    assert found == [KNOWN.pairs["softirq"], KNOWN.pairs["block"]]


def test_options_change_a_declared_pair() -> None:
    # GIVEN --by and --where WHEN a pair is named THEN each of its variants has them
    (found,) = replace(NOTHING, by="@cpu", where=("vec == 3",)).pairs(("softirq",), KNOWN)
    assert all(one.by == ("@cpu",) for one in found.variants)
    assert all(one.where[-1] == "vec == 3" for one in found.variants)
    # AND names of the declared --by are not those of the other field
    assert found.names == {}


@pytest.mark.parametrize(
    ("asked", "words", "said"),
    [
        (NOTHING, (), "see --list"),
        (NOTHING, ("a:b", "a:c"), "two tracepoints need --key"),
        (replace(NOTHING, key="x"), ("a:b",), "name the end, too"),
        (replace(NOTHING, key="x,y,z"), ("a:b", "a:c"), "one field, or two"),
        (NOTHING, ("a", "b", "c"), "a command goes behind --"),
    ],
)
def test_wrong_use_is_said(asked: PairArguments, words: tuple[str, ...], said: str) -> None:
    # GIVEN words that name no pair WHEN they are read THEN the usage error says what is missing
    with pytest.raises(click.UsageError, match=said):
        asked.pairs(words, KNOWN)


def test_an_undeclared_name_has_near_ones() -> None:
    # GIVEN a misspelt name WHEN it is named THEN the message has what is near
    with pytest.raises(SiteError, match="did you mean softirq"):
        NOTHING.pairs(("sofirq",), KNOWN)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"force": True}, "name it with -o"),
        ({"output": "x", "as_json": True}, "nothing is printed meanwhile"),
        ({"device_field": "dev"}, "is for -d"),
    ],
)
def test_contradicting_options_are_refused(changed: dict[str, object], said: str) -> None:
    # GIVEN options that contradict each other WHEN they are checked THEN one message says so
    with pytest.raises(click.UsageError, match=said):
        replace(NOTHING, **changed).check()
