# SPDX-License-Identifier: Apache-2.0
"""Functions that a slow I/O's requests, or its bios, passed, as trees."""

from collections.abc import Iterator, Mapping

from biotrail.converters.analysis.slow.slow import Slowest, SlowIO
from biotrail.converters.pipeline import Trace
from biotrail.converters.sites.tables import Following
from biotrail.converters.sites.trees import Life
from biotrail.text import units
from biotrail.text.columns import console
from biotrail.text.sites.tree import life_lines
from biotrail.text.slow.events import request_names

SHOWN_LIVES = 2
"""Most trees of an I/O that are shown without -v."""
_INDENT = 4


def function_lines(
    trace: Trace, lives: Mapping[int, Life], slow: SlowIO, verbose: bool
) -> Iterator[str]:
    """Yield the trees of an I/O's followed lives; without `verbose` the longest SHOWN_LIVES."""
    following = Following(trace.context.header)
    found = [(one.number, lives[one.life]) for one in slow.followed if one.life in lives]
    if not found:
        yield f"  functions: no {following.type} of it was followed"
        return
    shown = found
    if len(found) > SHOWN_LIVES and not verbose:
        yield f"  the longest of {len(found)} followed lives (-v shows all):"
        shown = sorted(found, key=lambda pair: -pair[1].span)[:SHOWN_LIVES]
    names = request_names(slow) if following.type == "request" else {slow.io.number: "the bio"}
    for number, life in shown:
        what = names.get(number, f"{following.type} {number}")
        after = units.duration(max(life.begin - slow.begin_ns, 0))
        yield f"  functions that {what} passed, from {after} after the I/O was queued:"
        width = console().width - _INDENT
        for line in life_lines(life, following, trace.context, trace.start, width):
            yield f"{'':{_INDENT}}{line}"


def followed_line(trace: Trace, slowest: Slowest) -> str:
    """Return a sentence on how many of the shown I/Os were followed; "" where none is to be said.

    That fewer are followed than are recorded is usual: `--follow` takes a choice of them.
    """
    shown = slowest.found
    if slowest.lives is None or not shown:
        return ""
    with_lives = sum(any(one.life in slowest.lives for one in slow.followed) for slow in shown)
    counts = trace.account.followed
    kind = Following(trace.context.header).type
    lives = units.plural(counts.lives, "followed life", "followed lives")
    known = f"{units.count(counts.joined)} of {lives}"
    further = f", {units.count(counts.several)} go on with a later one" if counts.several else ""
    return (
        f"functions: of {with_lives} of these {units.plural(len(shown), 'I/O')}; "
        f"{known} are a recorded {kind}'s{further}"
    )
