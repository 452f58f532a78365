# SPDX-License-Identifier: Apache-2.0
"""Numbers that the recorder and its BPF programs share, by their names in C: LIMITS."""

from enum import IntEnum
from math import isqrt

MAX_FILTERS = 32
"""Devices that one recording can be limited to."""
MAX_COMMS = 8
"""Task names in one recording's filter; the next two likewise."""
MAX_FLAGS = 8
MAX_RANGES = 8
CGROUP_LEVELS = 16
"""Levels of cgroups whose names a path from the kernel has at most."""
CGROUP_NAMES = 2024
"""Bytes for these names: of 7 at their longest, of all as they are."""
CGROUP_RING_BYTES = 128 << 10
"""The ring of cgroups' paths: room for 63."""
OWN_FILES = 8
"""Files that the recorder writes, the newest: write-back reaches the disk up to 30 s later."""
FIRED_SLOTS = 64
"""Slots for fired triggers: CPUs that have the same number modulo this share one."""

CALL_WORDS = 8
"""Words of 64 bits, a bit for each system call's number: those below 512."""
PATH_CPUS = 1024
"""CPUs whose interrupts and calls are told apart; with more, some share a slot."""

MAX_PAIRS = 8
"""Pairs of events in one recording."""
MAX_BEGINS = 4
"""Events that can begin the same pair."""
MAX_CONDITIONS = 4
"""Conditions on one side of a pair."""
MAX_DEVS = 64
"""Device numbers that events of sites can be limited to: disks and their partitions."""
VALUE_STEPS = 6
"""Steps from a program's context to a value: the first, and pointers that are followed."""
HIST_SLOTS = 704
"""Slots of a histogram of latencies: 16 to an octave, up to 2^47 ns (bpf/pairs.h)."""
MEASURE_STAGES = 4
"""Times of a request that are added up in the kernel: measure_structs.STAGES."""
MEASURE_OCTAVE = 9
"""Times below 2^9 ns are in the first bucket; each octave of ns from there on has two bounds."""
MEASURE_BUCKETS = 57
"""Buckets of a time, which end at 2^-20.5 s, 2^-20 s, …, 2^7 s; the last has no end."""
MEASURE_SCALE = 59
"""Octave of the next two in ns; shifted right by n they are the bounds n octaves below."""
MEASURE_HALF = isqrt(2 * 10**18 << 58)
"""2^29.5 s in ns, without the fraction, as are all bounds: times are whole."""
MEASURE_WHOLE = 10**9 << 30
"""2^30 s in ns."""
MEASURE_OTHER = 0xFFFFFFFF
"""Stands for a device or operation that has no figures of its own, in a key of bt_measured."""
COOKIE = 0x5566778811223344
"""A template program's cookie, by which the loader finds the immediate to replace (bpf/sites.h)."""


class Source(IntEnum):
    """Where a value comes from: bt_value.source. at[] are the struct's own."""

    NONE = 0
    FIELD = 1
    """Field of a tracepoint's record; at[0]: its offset in bytes."""
    ARGUMENT = 2
    """Argument of a typed tracepoint or a function; at[0]: its index."""
    TID = 3
    PID = 4
    CPU = 5
    OBJECT = 6
    """The followed object itself."""


class Operator(IntEnum):
    """How a condition compares its value with its operand: bt_condition.operator."""

    EQ = 0
    NE = 1
    LT = 2
    LE = 3
    GT = 4
    GE = 5
    AND = 6
    """Any bit of the operand is set."""


LIMITS: dict[str, int] = {
    **{f"BT_{name}": number for name, number in [*globals().items()] if name.isupper()},
    **{f"BT_FROM_{source.name}": int(source) for source in Source},
    **{f"BT_IS_{operator.name}": int(operator) for operator in Operator},
}
"""The same numbers by their names in C."""
