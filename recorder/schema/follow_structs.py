# SPDX-License-Identifier: Apache-2.0
"""The structs and numbers of `biotrail follow` that recorder and BPF programs share (shared.py)."""

from enum import IntEnum

from biotrail.recorder.schema import records
from biotrail.recorder.schema.records import Role
from biotrail.recorder.schema.shared import Member, Struct
from biotrail.recorder.schema.site_structs import VALUE

KEPT_HITS = 512
"""Hits that are kept of one candidate (follow --slower)."""

REFUSED_BITS = 14
"""2^n places for objects that were not chosen."""

SITE_ROLE_SHIFT = 16
"""In the cookie of a followed site, above its index: Role, 2 bits; then the flags below."""
SITE_BIRTH = 1 << 18
"""A life may begin here."""
SITE_DEATH = 1 << 19
"""A life ends here."""
SITE_NEW = 1 << 20
"""An object that passes is always a new one."""
SITE_LAST = 1 << 21
"""What follows at a birth is a new life."""
SITE_PLACE_SHIFT = 32
"""16 bits: index of the argument that is the object; for probes of its register."""
SITE_RESULT_SHIFT = 48
"""16 bits: index of what the function returned, behind its arguments (trampolines)."""

SESSION_HELPER = 173
"""Number of the helper whose calls are replaced by ones of bpf_session_is_return()."""


class Machine(IntEnum):
    """Which registers a function's arguments are in: bt_follow.machine."""

    X86_64 = 1
    AARCH64 = 2


class LifeState(IntEnum):
    """What becomes of a followed object's hits: bt_life.state, with --slower."""

    OPEN = 1
    """Its life goes on, and they are kept."""
    DROPPED = 2
    """It was too short."""
    KEPT = 3
    """It was long: the reader takes them, and frees the slot."""
    TAKEN = 4
    """The reader has taken them: later returns are written at once."""


LIMITS = {
    **{f"BT_{name}": one for name, one in [*globals().items()] if isinstance(one, int)},
    **{f"BT_{name}": getattr(records, name) for name in ("HIT_BORN", "HIT_ENDED", "HIT_CUT")},
    **{f"BT_ROLE_{role.name}": int(role) for role in Role},
    **{f"BT_MACHINE_{machine.name}": int(machine) for machine in Machine},
    **{f"BT_LIFE_{state.name}": int(state) for state in LifeState},
}

FOLLOW = Struct(
    "bt_follow",
    "What is followed (objects.h), beside bt_site_config for devices.",
    (
        Member("detail", VALUE, "of the object, for each hit; BT_FROM_NONE: none"),
        Member("device", VALUE, "the object's device, if devices are chosen"),
        Member("process", VALUE, "process of the object; BT_FROM_NONE: the running one"),
        Member("slower_ns", "u64", "write lives that took longer; 0: all, as they go on"),
        Member("lives", "u64", "follow so many objects; 0: no limit"),
        Member("every", "u32", "follow each n-th; 0 and 1: each"),
        Member("remember", "u32", "objects that were not chosen are remembered (bt_refused)"),
        Member("returns", "u32", "functions' returns are recorded: calls are kept (open_calls.h)"),
        Member("machine", "u32", "BT_MACHINE_…; 0: functions are not attached by probes"),
    ),
)
LIFE = Struct(
    "bt_life",
    "A followed object, or one that was; it has the slot until another takes it.",
    (
        Member("object", "u64", "its address; 0: followed no more"),
        Member("born", "u64", "ns of CLOCK_MONOTONIC"),
        Member("touched", "u64", "ns: its newest hit"),
        Member("hits", "u64", "places for hits that were given out, with --slower"),
        Member("cut", "u64", "hits that found no place"),
        Member("last", "u64", "ns: when it passed a site after which only its release comes"),
        Member("life", "u32", "its number"),
        Member("state", "u32", "BT_LIFE_…"),
    ),
)
FOLLOW_NUMBERS = Struct(
    "bt_follow_numbers",
    "Numbers that all CPUs give out.",
    (
        Member("seen", "u64", "births that the filters let pass, with --every"),
        Member("lives", "u64", "number of the newest life"),
        Member("open", "u64", "1: lives may begin"),
    ),
)
FOLLOW_COUNTS = Struct(
    "bt_follow_counts",
    "Per CPU: what became of lives and calls.",
    (
        Member("born", "u64", "lives that began"),
        Member("ended", "u64", "lives whose end was seen"),
        Member("reused", "u64", "lives that ended as their address was a new object's"),
        Member("quick", "u64", "of both, those that --slower left out"),
        Member("full", "u64", "births while as many objects as --max allows were followed"),
        Member("cut", "u64", "hits of candidates beyond BT_KEPT_HITS"),
        Member("unmatched", "u64", "entries whose return was not seen"),
        Member("too_deep", "u64", "entries whose return could not be waited for"),
        Member("bad_reads", "u64", "births with a device or process that could not be read"),
        Member("runs", "u64", "of programs, about: those in interrupts may be missed"),
        Member("pad", "u64", count="6"),
    ),
)
STRUCTS = (FOLLOW, LIFE, FOLLOW_NUMBERS, FOLLOW_COUNTS)
"""In the order of `bpf/shared.h`."""
