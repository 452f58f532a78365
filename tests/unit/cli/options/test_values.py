# SPDX-License-Identifier: Apache-2.0
"""Every option of every command refuses what its field cannot hold, and takes names as bytes."""

import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from biotrail.cli.dump import Kinds
from biotrail.cli.metrics import AddressType
from biotrail.cli.options.cuts import MomentType
from biotrail.cli.options.opening import LabelsFile
from biotrail.cli.options.record_arguments import FollowValue, given
from biotrail.cli.options.record_keeping import TriggerType
from biotrail.cli.record import NOT_PASSED_ON
from biotrail.cli.record import command as record
from biotrail.recorder.probes.maps import admission
from biotrail.text import units
from biotrail.text.values import Name, Percent, Text, as_read
from tests.fuzz.command_options import ALL
from tests.support.cli_runner import Cli

NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "-1", "1" + "0" * 20, "1" + "0" * 20 + "s", "9" * 4301)
"""What is no number that any field holds."""
NO_TEXT = "a\udcff"
"""Bytes that are no UTF-8, as Python has them."""
NAMES = (Name, click.Path)
WORDS = (*NAMES, LabelsFile, Kinds)
"""Also the files of labels, and letters of kinds, which may spell `nan`."""


def parameters(*kinds: type) -> Iterator[object]:
    """(command, parameter) for each of these types, of all commands."""
    for path, command in ALL:
        for one in command.params:
            if isinstance(one.type, kinds):
                yield pytest.param(command, one, id=" ".join((*path, one.opts[0])))


def parsed(command: click.Command, parameter: click.Parameter, value: str) -> object:
    """The parameter's value as the command gets it."""
    with click.Context(command) as context:
        words = [value] if parameter.multiple or parameter.nargs < 0 else value
        return parameter.type_cast_value(context, words)


def of_numbers() -> Iterator[object]:
    """Parameters that are neither text nor names nor one of several words."""
    for found in parameters(click.ParamType):
        _, parameter = found.values  # type: ignore[attr-defined]
        if not isinstance(parameter.type, (Text, click.Choice, click.types.BoolParamType, *WORDS)):
            yield found


def test_each_parameter_has_a_type_with_a_range() -> None:
    # GIVEN all commands THEN no parameter is any text, or any number
    for path, command in ALL:
        for one in command.params:
            where = (*path, *one.opts)
            assert not isinstance(one.type, click.types.StringParamType), where
            assert not isinstance(one.type, click.FloatRange), where
            assert type(one.type) is not click.IntRange, (where, "units.Count has ends")


@pytest.mark.parametrize(("command", "parameter"), list(of_numbers()))
def test_no_option_takes_what_is_no_number(
    command: click.Command, parameter: click.Parameter
) -> None:
    # GIVEN an option with a range WHEN it gets what no field holds THEN that is a usage error
    for value in NO_NUMBERS:
        if value == "-1" and isinstance(parameter.type, MomentType):
            continue  # the last second
        with pytest.raises(click.UsageError):
            parsed(command, parameter, value)


@pytest.mark.parametrize(("command", "parameter"), list(parameters(Text)))
def test_text_is_utf_8(command: click.Command, parameter: click.Parameter) -> None:
    # GIVEN an option that is text WHEN it gets other bytes THEN that is a usage error
    with pytest.raises(click.UsageError, match="is not UTF-8"):
        parsed(command, parameter, NO_TEXT)


@pytest.mark.parametrize(("command", "parameter"), list(parameters(*NAMES)))
def test_names_are_any_bytes(command: click.Command, parameter: click.Parameter) -> None:
    # GIVEN an option that names a file, process or cgroup WHEN it gets any bytes THEN it has them
    assert parsed(command, parameter, NO_TEXT) in (NO_TEXT, (NO_TEXT,))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (FollowValue(), "request,every=4294967296"),
        (FollowValue(), "request,every=18446744073709551616"),
        (FollowValue(), "request,every=nan"),
        (FollowValue(), "request,lives=9223372036854775808"),
        (FollowValue(), "request,slower=100000000000000000000s"),
        (FollowValue(), f"request,max-functions={'9' * 4301}"),
        (TriggerType(), "slow=1e9s"),
        (TriggerType(), "slow=0"),
        (TriggerType(), "depth=2147483648"),
        (TriggerType(), f"depth={'9' * 4301}"),
        (AddressType(), f"127.0.0.1:{'9' * 4301}"),
        (Percent(), "nan"),
        (Percent(50, 99.9), "nan%"),
        (units.Size(), "9999999999G"),
        (units.Duration(), "1000000001s"),
        (units.Duration(units.ABOVE_ZERO), "0"),
        (units.Count(), "9223372036854775808"),
    ],
)
def test_numbers_within_values_have_ranges_too(kind: click.ParamType[object], value: str) -> None:
    # GIVEN a value with a number in it that its field does not hold THEN it is a usage error
    with pytest.raises(click.UsageError):
        kind.convert(value, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("100us", 1e-4), ("0.1ms", 1e-4), ("1000000000", 1e9), (".5s", 0.5)]
)
def test_durations_are_exact(text: str, seconds: float) -> None:
    assert units.Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("ns", [0, 1, 999, 1000, 10_000, 123_456_789, 10**9, 10**18])
def test_durations_become_options_that_read_the_same(ns: int) -> None:
    # GIVEN a duration WHEN it is written as an option's word THEN it is read as the same
    word = units.as_option(ns / 1e9)
    assert "e" not in word
    assert round(units.Duration().convert(word, None, None) * 1e9) == ns


def test_a_task_name_of_any_bytes_is_compared_as_bytes() -> None:
    # GIVEN a name that is no UTF-8 WHEN it is a filter THEN the programs have its bytes
    assert bytes(admission._comm(os.fsdecode(b"a\xff")))[:3] == b"a\xff\0"
    # AND on reading it is what such a name looks like in a log
    assert as_read(os.fsdecode(b"a\xff")) == "a\N{REPLACEMENT CHARACTER}"


def test_a_huge_number_in_the_declarations_is_one_message(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file of declarations with a number of 4301 digits
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "biotrail").mkdir()
    (tmp_path / "biotrail" / "pairs.toml").write_text(f"[pairs.x]\nkey={'9' * 4301}\n")
    # WHEN pairs are listed THEN it is wrong usage, told in a line
    done = cli("pairs", "--list")
    assert done.status == 2
    assert "pairs.toml: is no TOML" in done.err and done.err.count("\n") == 1


def test_an_option_given_without_its_value_reaches_the_recorder() -> None:
    # GIVEN --path without parts WHEN the printer's recorder gets its words THEN it has all parts
    context = record.make_context("record", ["--print", "--path", "--duration", "5s"])
    assert given(context, NOT_PASSED_ON) == ["--duration=5s", "--path=all"]
