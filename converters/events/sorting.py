# SPDX-License-Identifier: Apache-2.0
"""Membership tests and sorting of integers, faster than numpy's general functions."""

import numpy as np

from biotrail.converters.events.tables import I64, U8, U64, Bool

_DIGIT_BITS = 16


def is_in(values: U8, *members: int) -> Bool:
    """Return whether each value is one of `members` (0 to 255), by a table of 256 entries."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(members)] = True
    return table[values]


def stable_order(keys: U64) -> I64:
    """Return `np.argsort(keys, kind="stable")` as int64, two to three times as fast for pointers.

    A radix sort by 16-bit digits, each by numpy's counting sort. Digits in which no keys differ are
    skipped; pointers of one slab differ in two.
    """
    order = np.arange(len(keys), dtype=np.int64)
    if not len(keys):
        return order
    varying = int(np.bitwise_or.reduce(keys ^ keys[0]))
    for shift in range(0, 64, _DIGIT_BITS):
        if varying >> shift & 0xFFFF:
            digit = (keys >> np.uint64(shift)).astype(np.uint16)
            order = order[np.argsort(digit[order], kind="stable")]
    return order
