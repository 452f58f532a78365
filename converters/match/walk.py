# SPDX-License-Identifier: Apache-2.0
"""The event at hand, and the handler of its kind."""

import cython

from biotrail.converters.match.bios import (
    bio_here,
    on_backing,
    on_bio_complete,
    on_join,
    on_queue,
    on_remap,
    on_split,
)
from biotrail.converters.match.ctypes_of import NULL, int64, uint64
from biotrail.converters.match.finder import end_search, find
from biotrail.converters.match.memory import device_of
from biotrail.converters.match.numbers import (
    BACKING,
    BIO_COMPLETE,
    CHAIN,
    DONE,
    LOW_32,
    RQ_REMAP,
    START,
    TIME_BITS,
    A,
    C,
    D,
    E,
    F,
    G,
    M,
    P,
    Q,
    R,
    U,
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
    elif kind == Q or (G <= kind <= BIO_COMPLETE):
        read_bio(m)
        if m.bio != 0 or kind == M or kind == F or kind == X:
            on_bio(m)
    elif kind == CHAIN:
        on_chain(m)
    elif START <= kind <= E or kind == RQ_REMAP:
        read_request(m)
        if m.address != 0:
            on_event_of_request(m)
        elif m.bio != 0 and kind != R and kind != E:
            bio_here(m, m.bio, kind, NULL, 0)
    elif kind == DONE:
        to_device(m, m.w2[m.row] & LOW_32)
        on_done(m)
    elif kind == BACKING:
        on_backing(m)
    elif kind == P or kind == U:
        to_device(m, m.w1[m.row] & LOW_32)


def on_bio(m: Machine) -> None:
    """Take in an event of a bio."""
    kind: int64 = m.kind
    if kind == Q:
        on_queue(m)
    elif kind == G or kind == M or kind == F:
        on_join(m)
    elif kind == X:
        on_split(m)
    elif kind == A:
        on_remap(m)
    else:
        on_bio_complete(m)


def on_event_of_request(m: Machine) -> None:
    """Take in an event of a request."""
    kind: int64 = m.kind
    if kind == D:
        on_issue(m)
    elif kind == C:
        on_complete(m)
    elif kind == RQ_REMAP:
        on_clone(m)
    elif kind == R or kind == E:
        on_requeue_or_error(m)
    else:
        on_request(m)


def step_by_range(m: Machine) -> None:
    """Take in one event of a log without pointers."""
    kind: int64 = m.kind
    while m.next_loss < m.loss_count and m.losses[m.next_loss] <= m.ts:
        m.lost_at = max(m.lost_at, m.losses[m.next_loss])
        m.next_loss += 1
    if kind == Q or (G <= kind <= BIO_COMPLETE):
        read_bio(m)
    elif kind == CHAIN:
        return
    elif START <= kind < E or kind == RQ_REMAP:
        read_request(m)
    else:
        if kind == E:
            to_device(m, m.w5[m.row] & LOW_32)
        elif kind == DONE:
            to_device(m, m.w2[m.row] & LOW_32)
        elif kind == P or kind == U:
            to_device(m, m.w1[m.row] & LOW_32)
        return
    if find(m):
        if m.kind == Q or (G <= m.kind <= BIO_COMPLETE):
            on_bio(m)
        else:
            on_event_of_request(m)
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
    m.device.counts[m.kind] += 1
