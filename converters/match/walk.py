# SPDX-License-Identifier: Apache-2.0
"""The event at hand, and the handler of its kind."""

import cython

from biotrail.converters.match.bios import (
    on_bio_complete,
    on_join,
    on_queue,
    on_remap,
    on_split,
)
from biotrail.converters.match.ctypes_of import int64, uint64
from biotrail.converters.match.finder import end_search, find
from biotrail.converters.match.memory import device_of
from biotrail.converters.match.numbers import (
    BIO_COMPLETE,
    CHAIN,
    DONE,
    LOW_32,
    RQ_MERGE,
    RQ_REMAP,
    START,
    TIME_BITS,
    A,
    C,
    D,
    E,
    F,
    G,
    I,
    M,
    Q,
    R,
    X,
)
from biotrail.converters.match.requests import (
    on_chain,
    on_clone,
    on_complete,
    on_done,
    on_issue,
    on_request,
    on_requeue_or_error,
)
from biotrail.converters.match.state import Machine


def step(m: Machine) -> None:
    """Take in one event."""
    word: uint64 = m.w0[m.row]
    kind: int64 = word >> 56
    m.kind = kind
    m.ts = word & TIME_BITS
    if m.by_range:
        step_by_range(m)
    elif kind == Q:
        read_bio(m)
        on_queue(m)
    elif kind == D:
        read_request(m)
        on_issue(m)
    elif kind == C:
        read_request(m)
        on_complete(m)
    elif kind == START or kind == I or kind == RQ_MERGE:
        read_request(m)
        on_request(m)
    elif kind == G or kind == M or kind == F:
        read_bio(m)
        on_join(m)
    elif kind == DONE:
        on_done(m)
    elif kind == CHAIN:
        on_chain(m)
    elif kind == X:
        read_bio(m)
        on_split(m)
    elif kind == A:
        read_bio(m)
        on_remap(m)
    elif kind == BIO_COMPLETE:
        read_bio(m)
        on_bio_complete(m)
    elif kind == R or kind == E:
        read_request(m)
        on_requeue_or_error(m)
    elif kind == RQ_REMAP:
        read_request(m)
        on_clone(m)


def step_by_range(m: Machine) -> None:
    """Take in one event of a log without pointers."""
    kind: int64 = m.kind
    while m.next_loss < m.loss_count and m.losses[m.next_loss] <= m.ts:
        m.lost_at = max(m.lost_at, m.losses[m.next_loss])
        m.next_loss += 1
    if kind == Q or kind == G or kind == M or kind == F or kind == X or kind == A:
        read_bio(m)
    elif kind == BIO_COMPLETE:
        read_bio(m)
    elif kind in (START, I, R, RQ_MERGE, D, C, RQ_REMAP):
        read_request(m)
    else:
        return
    if find(m):
        kind = m.kind
        if kind == Q:
            on_queue(m)
        elif kind == D:
            on_issue(m)
        elif kind == C:
            on_complete(m)
        elif kind == START or kind == I or kind == RQ_MERGE:
            on_request(m)
        elif kind == G or kind == M or kind == F:
            on_join(m)
        elif kind == X:
            on_split(m)
        elif kind == A:
            on_remap(m)
        elif kind == BIO_COMPLETE:
            on_bio_complete(m)
        elif kind == R:
            on_requeue_or_error(m)
        else:
            on_clone(m)
    end_search(m)


def read_bio(m: Machine) -> None:
    """Read the record of a bio: Q, G, M, F, X, A or c."""
    word: uint64
    m.bio = m.w1[m.row]
    m.sector = m.w2[m.row]
    word = m.w3[m.row]
    m.size = word & LOW_32
    m.opf = word >> 32
    word = m.w4[m.row]
    m.high = word >> 32
    m.end = m.sector + cython.cast(uint64, m.size >> 9)
    to_device(m, word & LOW_32)


def read_request(m: Machine) -> None:
    """Read the record of a request: s, I, R, m, D, C, E or a."""
    word: uint64
    m.address = m.w1[m.row]
    m.bio = m.w2[m.row]
    m.sector = m.w3[m.row]
    word = m.w4[m.row]
    m.size = word & LOW_32
    m.opf = word >> 32
    word = m.w5[m.row]
    m.high = word >> 32
    m.end = m.sector + cython.cast(uint64, m.size >> 9)
    to_device(m, word & LOW_32)


def to_device(m: Machine, dev: uint64) -> None:
    """Have the event's device at hand."""
    m.dev = dev
    if not m.device or m.device.dev != dev:
        m.device = device_of(m, dev)
