# SPDX-License-Identifier: Apache-2.0
"""Structs that the recorder shares with programs at sites chosen at run time (`bpf/sites.h`)."""

from biotrail.recorder.schema.shared import Member, Struct

VALUE = Struct(
    "bt_value",
    "A value that a program takes from its event (sites.h).",
    (
        Member("source", "u32", "BT_FROM_…"),
        Member("size", "u32", "bytes that the last step reads or keeps: 1, 2, 4, 8"),
        Member("steps", "u32", "how many of `at` are used"),
        Member("shift", "u32", "position of a bit field in these bytes"),
        Member("bits", "u32", "its width; 0: no bit field"),
        Member("is_signed", "u32"),
        Member(
            "at",
            "u32",
            "where the first step finds it; then offsets in what the step before points to",
            "BT_VALUE_STEPS",
        ),
    ),
)
CONDITION = Struct(
    "bt_condition",
    "An event is taken only if this holds: value operator operand.",
    (
        Member("value", VALUE),
        Member("operand", "u64"),
        Member("operator", "u32", "BT_IS_…"),
        Member("reserved", "u32"),
    ),
)
SIDE = Struct(
    "bt_side",
    "One of a pair's two events: what is taken from it, and when it counts (pairs.h).",
    (
        Member("key", VALUE, "the second's source is BT_FROM_NONE if there is one", "2"),
        Member("by", VALUE, "BT_FROM_NONE: not from this side"),
        Member("dev", VALUE, "its device; BT_FROM_NONE: not on this side"),
        Member("process", VALUE, "for --pid; BT_FROM_NONE: the running one"),
        Member("conditions", CONDITION, "", "BT_MAX_CONDITIONS"),
        Member("nr_conditions", "u32"),
        Member("choosing", "u32", "how many of them, the first, say which events count at all"),
    ),
)
PAIR_SITES = Struct(
    "bt_pair_sites",
    "A pair of events: any of `begins` begins it. A program's cookie is the pair's index, and that "
    "of its begin << 8.",
    (Member("begins", SIDE, "", "BT_MAX_BEGINS"), Member("end", SIDE)),
)
SITE_CONFIG = Struct(
    "bt_site_config",
    "What all sites have in common (sites.h), beside bt_config for tasks and cgroups.",
    (
        Member("record", "u32", "pairs: write a PAIR record for each"),
        Member("count", "u32", "pairs: add each to its histogram"),
        Member("unified", "u32", "cgroups are of v2's hierarchy, not of v1's"),
        Member("nr_devs", "u32", "0: every device"),
        Member("devs", "u32", "dev_t", "BT_MAX_DEVS"),
    ),
)
SITE_COUNTS = Struct(
    "bt_site_counts",
    "Per CPU: what sites could not take.",
    (
        Member("lost", "u64", "records for which the ring was full, by kind", "64"),
        Member("bad_reads", "u64", "events with a value whose read faulted"),
    ),
)
PAIR_KEY = Struct(
    "bt_pair_key",
    "A begin that waits for its end.",
    (Member("key", "u64", count="2"), Member("pair", "u64")),
)
PAIR_BEGUN = Struct(
    "bt_pair_begun",
    "What is known of a begin.",
    (Member("now", "u64", "ns of CLOCK_MONOTONIC"), Member("by", "u64")),
)
PAIR_BY = Struct(
    "bt_pair_by",
    "Key of a histogram of bt_pair_by_hists.",
    (Member("by", "u64"), Member("pair", "u64")),
)
PAIR_HIST = Struct(
    "bt_pair_hist",
    "Per CPU: latencies of a pair, or of those with one value of --by (pairs.h).",
    (
        Member("count", "u64"),
        Member("sum", "u64", "ns"),
        Member("max", "u64", "ns: the largest of these", "4"),
        Member("slots", "u64", "", "BT_HIST_SLOTS"),
    ),
)
PAIR_COUNTS = Struct(
    "bt_pair_counts",
    "Per CPU: a pair's events that became none.",
    (
        Member("no_begin", "u64", "ends without a begin"),
        Member("overwritten", "u64", "begins replaced by another with the same key"),
        Member("full", "u64", "begins for which bt_begun had no room"),
        Member("bad_begin", "u64", "begins with a value whose read faulted"),
        Member("bad_end", "u64", "ends"),
        Member("left_begin", "u64", "begins left out by conditions and filters"),
        Member("left_end", "u64", "pairs left out by conditions on the end"),
        Member("pad", "u64", "a cache line"),
    ),
)
STRUCTS = (
    *(VALUE, CONDITION, SIDE, PAIR_SITES, SITE_CONFIG, SITE_COUNTS),
    *(PAIR_KEY, PAIR_BEGUN, PAIR_BY, PAIR_HIST, PAIR_COUNTS),
)
"""In the order of `bpf/shared.h`."""
