# SPDX-License-Identifier: Apache-2.0
"""The option `record --follow`. Imports only what recording needs."""

from collections.abc import Callable, Mapping
from typing import Any

import click

from biotrail.recorder.probes.sites.follow_options import AUTO, FOLLOWED_IO, FollowOptions
from biotrail.text import units

MOST_AT_ONCE = 4096
"""Objects that can be followed at one time."""
EVERY = (1, (1 << 32) - 1)
"""Range of each N-th, a u32 of the programs."""
_NUMBERS = {
    "every": EVERY,
    "max": (1, MOST_AT_ONCE),
    "lives": (0, units.MOST),
    "max-functions": (1, units.MOST),
}
"""Settings that are whole numbers, with the least and largest value of each."""
_SETTINGS = (*_NUMBERS, "slower", "way")


class FollowValue(click.ParamType[FollowOptions]):
    """The value of --follow: `request` or `bio`, then settings, as `request,every=100`."""

    name = "follow"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> FollowOptions:
        """Return what to follow. Fails with a usage error that says what there is."""
        if isinstance(value, FollowOptions):
            return value
        struct, *parts = str(value).split(",")
        if struct not in FOLLOWED_IO:
            known = " or ".join(FOLLOWED_IO)
            self.fail(
                f"{struct!r} is no I/O of the block layer: give {known}; "
                "biotrail follow follows any struct",
                param,
                ctx,
            )
        given = {}
        for part in parts:
            name, equals, text = part.partition("=")
            if name not in _SETTINGS or not equals:
                known = ", ".join(f"{one}=" for one in _SETTINGS)
                self.fail(f"there is no setting {part!r}: choose of {known}", param, ctx)
            given[name] = text
        return _follow_options(struct, given, lambda message: self.fail(message, param, ctx))


def _follow_options(
    struct: str, given: Mapping[str, str], fail: Callable[[str], Any]
) -> FollowOptions:
    """Return what the settings say; `fail` is called with a message on one that is wrong."""
    from biotrail.recorder.probes.sites.planning import WAYS  # not for each recording

    usual = FollowOptions(struct)
    numbers = {name: _number(name, given[name], fail) for name in _NUMBERS if name in given}
    slower = 0.0
    if "slower" in given:
        slower = units.Duration().convert(given["slower"], None, None)
    way = given.get("way", AUTO)
    if way not in (AUTO, *WAYS):
        fail(f"there is no way {way!r}: choose of {', '.join((AUTO, *WAYS))}")
    return FollowOptions(
        struct,
        numbers.get("every", usual.every),
        numbers.get("max", usual.at_once),
        numbers.get("lives", usual.lives),
        round(slower * 1e9),
        way,
        numbers.get("max-functions", usual.max_functions),
    )


def _number(name: str, text: str, fail: Callable[[str], Any]) -> int:
    """Return a whole number; `fail` is called where it is none, or out of range."""
    least, most = _NUMBERS[name]
    number = units.whole(text, least, most)
    if number is None:
        fail(f"{name}={text}: give a whole number from {least} to {most}")
        return least
    return number
