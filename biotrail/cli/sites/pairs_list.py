# SPDX-License-Identifier: Apache-2.0
"""`biotrail pairs --list`: the declared pairs, and why a pair is not there on this kernel."""

from collections.abc import Iterator

from biotrail.recorder.probes.sites.tracepoints import Tracepoints
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import Declarations, Pair
from biotrail.recorder.sites.resolving import Scopes, resolve
from biotrail.recorder.sites.types import TypeTable


def lines(known: Declarations, scopes: Scopes | None) -> Iterator[str]:
    """Yield the lines of the list: name, what it is, events, the user's own with their file.

    scopes: what names mean at this kernel's tracepoints; None: that cannot be known.
    """
    width = max(map(len, known.pairs), default=0)
    for name, pair in sorted(known.pairs.items()):
        own = "" if pair.origin == str(declarations.READY_MADE) else f"  ({pair.origin})"
        yield f"{name:<{width}}  {pair.about}{own}"
        first = pair.variants[0]
        begins = " or ".join(dict.fromkeys(event.event for event in first.begins))
        yield f"{'':<{width}}    {begins} to {first.end.event}"
        if scopes is not None and (reason := _absence(pair, scopes)):
            yield f"{'':<{width}}    not here: {reason}"


def kernel_scopes() -> tuple[Scopes | None, str]:
    """Return what names mean at this kernel's tracepoints; None, and why this user cannot know."""
    try:
        return Tracepoints(TypeTable.kernel()).scopes, ""
    except ProbeError as error:
        return None, str(error)


def _absence(pair: Pair, scopes: Scopes) -> str:
    """Return why the kernel cannot time a pair; "": it can."""
    try:
        resolve(pair, scopes)
    except SiteError as error:
        return str(error).removeprefix(f"pair {pair.name}: ")
    return ""
