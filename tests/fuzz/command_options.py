# SPDX-License-Identifier: Apache-2.0
"""Command lines of all options of all commands, as click itself lists them."""

from collections.abc import Iterator

import click
from hypothesis import strategies as st

from biotrail.cli.main import cli

NUMERALS = (
    "nan", "inf", "-inf", "1e999", "1e-400", "-1", "0", "3", "1.5", "4294967296", "2147483648",
    "9223372036854775808", "18446744073709551616", "1" + "0" * 20, "1" + "0" * 400, "9" * 4301,
    "0x" + "f" * 20, "²", "٣", "1_000", "-0", "+1", "0" * 30 + "1",
)  # fmt: skip
"""Numbers, near the ends of what fields hold and beyond, and what looks like one."""
BEFORE = (
    "", "last ", "-", "slow=", "depth=", "request,every=", "request,max=", "request,lives=",
    "request,slower=", "bio,max-functions=", ":", "127.0.0.1:", "[::1]:", "7:", "1,", "0-",
    "vec == ", "a[", "a:", "2026-01-31T", "Q,",
)  # fmt: skip
BEHIND = ("", "", "s", "ns", "d", "min", "K", "G", "MiB", "%", "B", ":0", ",1", "-", "]")
ODD = (
    "", " ", "a\udcff", "\udcff", "vec == 'a\udcff'", "Ω", "\x1b[2J", ",", "=", "*", "%s",
    "a" * 300, "@", "-", ".", "out", "out.pftrace", "out.parquet", "out.csv", "out.svg", "missing",
    "loop0", "softirq", "request", "sk_buff", "sched:sched_switch", "all", "read", "Q2C",
)  # fmt: skip
"""Texts, among them bytes that are no UTF-8; @ is the file."""


def commands(
    group: click.Group = cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(words, command) of each command, those of groups among them."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name), command


ALL = list(commands())


@st.composite
def values(draw: st.DrawFn, parameter: click.Parameter) -> str:
    kind = draw(st.sampled_from(["number", "odd", "fit"]))
    if kind == "number":
        parts = (st.sampled_from(one) for one in (BEFORE, NUMERALS, BEHIND))
        return "".join(draw(part) for part in parts)
    if kind == "fit" and isinstance(parameter.type, click.Choice):
        return str(draw(st.sampled_from(list(parameter.type.choices))))
    if kind == "fit" and isinstance(parameter.default, str | int | float):
        return str(parameter.default)
    return draw(st.sampled_from(ODD))


@st.composite
def option(draw: st.DrawFn, options: list[click.Option]) -> list[str]:
    """The words of one option: a flag, or a name and value, in one word or two, or without one."""
    chosen = draw(st.sampled_from(options))
    name = draw(st.sampled_from([*chosen.opts, *chosen.secondary_opts]))
    if chosen.is_flag or not draw(st.integers(0, 19)):
        return [name]
    value = draw(values(chosen))
    return [f"{name}={value}"] if draw(st.booleans()) and name[:2] == "--" else [name, value]


@st.composite
def words(draw: st.DrawFn) -> list[str]:
    """A command with options of its own, and arguments."""
    path, command = draw(st.sampled_from(ALL))
    options = [one for one in command.params if isinstance(one, click.Option)]
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    found = [word for one in draw(st.lists(option(options), max_size=4)) for word in one]
    for one in arguments:
        most = 2 if one.nargs < 0 else 1
        drawn = st.just("@") | values(one)
        found += draw(st.lists(drawn, min_size=int(one.required), max_size=most))
    return [*path, *found]
