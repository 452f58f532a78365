# SPDX-License-Identifier: Apache-2.0
"""Plans what to follow on this kernel: the struct's declaration, and the best way to attach."""

from collections.abc import Sequence
from difflib import get_close_matches

from biotrail.recorder.probes.capability import require_rights
from biotrail.recorder.probes.kernel import tracefs
from biotrail.recorder.probes.sites.attaching import FUNCTION_WAYS, Way, all_ways
from biotrail.recorder.probes.sites.follow_options import AUTO, MAX_FUNCTIONS
from biotrail.recorder.schema.errors import ProbeError, SiteError
from biotrail.recorder.sites import declarations, following
from biotrail.recorder.sites.following import TYPED, FollowPlan, KernelFunctions
from biotrail.recorder.sites.types import TypeTable

WAYS = (*FUNCTION_WAYS, TYPED)
"""Ways that can be asked for, beside AUTO: the first of them that this kernel has."""


def planned(
    struct: str, way: str = AUTO, max_functions: int = MAX_FUNCTIONS
) -> tuple[FollowPlan, Way]:
    """Return what is to be attached for a struct, and how; nothing is attached yet.

    way: AUTO or one of WAYS. max_functions: more are refused. Takes up to a second. Raises
    TraceError: rights are missing, there is no such struct, or it cannot be followed so.
    """
    require_rights()
    types = TypeTable.kernel()
    known = declarations.load()
    declared = known.type(struct)
    _check_struct(types, struct, list(known.types))
    chosen = _chosen_way(way)
    kernel = None if chosen.name == TYPED else _lists(chosen)
    plan = following.plan(types, declared, chosen.name, kernel, max_functions)
    return plan, chosen if plan.functions else Way(TYPED, "")


def _lists(way: Way) -> KernelFunctions:
    """Return the kernel's lists of functions; kprobes do without them."""
    with tracefs.debugfs() as place:
        lists = KernelFunctions.read(tracefs.find(), blacklist=place / "kprobes" / "blacklist")
    if lists.traceable is None and way.name != "kprobe":
        raise ProbeError(
            f"which functions may be traced is not known ({'; '.join(lists.unread)}): run as root, "
            "or follow tracepoints alone (--way typed)"
        )
    return lists


def _check_struct(types: TypeTable, struct: str, declared: Sequence[str]) -> None:
    try:
        types.struct(struct)
    except SiteError as error:
        near = get_close_matches(struct, declared, 3)
        raise SiteError(f"{error}; ready-made types: {', '.join(near or declared)}") from error


def _chosen_way(name: str) -> Way:
    if name == TYPED:
        return Way(TYPED, "")
    ways = all_ways()
    if name == AUTO:
        return next((way for way in ways if way.works), Way(TYPED, ""))
    way = next(way for way in ways if way.name == name)
    if way.works:
        return way
    there = [each.name for each in ways if each.works] + [TYPED]
    raise ProbeError(f"way {name}: {way.reason}; this kernel has {', '.join(there)}")
