# SPDX-License-Identifier: Apache-2.0
"""What numpy does faster by a table than by comparing."""

import numpy as np

from biotrail.converters.events.tables import I64, U8, U64, Bool

_DIGIT_BITS = 16


def is_in(values: U8, *members: int) -> Bool:
    """Whether each value is one of `members`."""
    table = np.zeros(256, dtype=np.bool_)
    table[list(members)] = True
    return table[values]


def stable_order(keys: U64) -> I64:
    """Like `np.argsort(keys, kind="stable")`, two to three times as fast on kernel pointers.

    By digits of 16 bits, which numpy counts. Only those in which the keys differ cost anything;
    pointers of one slab differ in two.
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
