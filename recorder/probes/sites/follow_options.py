# SPDX-License-Identifier: Apache-2.0
"""What to follow. Imports little: each recording imports it."""

from dataclasses import dataclass

FOLLOWED_IO = ("request", "bio")
"""Structs that can be followed beside the block layer's events, which have their addresses."""
PART = "follow"
"""What the programs that follow are among the programs of a recording, as parts of the path are."""
AUTO = "auto"
"""The first way to attach to functions that this kernel has."""
FUNCTION_WAYS = ("session", "multi", "fentry", "kprobe")
"""Ways to attach to functions, the best first."""
WAYS = (*FUNCTION_WAYS, "typed")
"""Ways that can be asked for, beside AUTO; "typed": to typed tracepoints alone."""
MAX_FUNCTIONS = 2000


@dataclass(frozen=True)
class FollowOptions:
    """What to follow, and which objects of those that are born.

    struct: beside the block layer's events one of FOLLOWED_IO. every: each n-th. at_once: how many
    at one time. lives: how many in all; 0: no limit. slower_ns: only lives that took longer are
    written; 0: all. way: AUTO or one of WAYS. max_functions: more are refused. idle_ns: after so
    long without a hit, a life of a type without deaths is over.
    """

    struct: str
    every: int = 1
    at_once: int = 1000
    lives: int = 0
    slower_ns: int = 0
    way: str = AUTO
    max_functions: int = MAX_FUNCTIONS
    idle_ns: int = 2_000_000_000
