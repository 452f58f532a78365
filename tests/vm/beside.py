# SPDX-License-Identifier: Apache-2.0
"""Two recordings of one load at once, held against each other: their events, their times."""

from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import RWBS_FLAGS
from biotrail.recorder.schema.records import Kind

KINDS = (
    Kind.Q,
    Kind.G,
    Kind.M,
    Kind.F,
    Kind.X,
    Kind.A,
    Kind.I,
    Kind.D,
    Kind.R,
    Kind.RQ_MERGE,
    Kind.C,
    Kind.BIO_COMPLETE,
)
PLUGS = (Kind.P, Kind.U)
"""What is told of a task, and by blktrace and biotrail of a device too."""
STEPS = ("queue", "getrq", "merge", "insert", "issue", "complete")
FLAGS = ("PREFLUSH", *RWBS_FLAGS.values())
"""Those that letters tell: blktrace and ordinary tracepoints have no others."""

What = tuple[int, int, str]
"""First sector, bytes, operation with flags."""


def _words(context: Context, opf: int) -> str:
    return " ".join([context.op_name(opf), *(f for f in FLAGS if opf & context.flag_mask(f))])


def events(path: Path, dev: int) -> dict[Kind, Counter[What]]:
    """How often a log, or a set of blktrace's files, has which event of a device."""
    found: dict[Kind, Counter[What]] = {kind: Counter() for kind in KINDS}
    trace = Trace(path)
    for window, _ in trace.events():
        for kind, counter in found.items():
            rows = window.rows(kind)
            rows = rows[window.dev[rows] == dev]
            words = (_words(trace.context, opf) for opf in window.opf[rows].tolist())
            where = (window.sector[rows].tolist(), window.bytes[rows].tolist())
            counter.update(zip(*where, words, strict=True))
    return found


def totals(path: Path, dev: int, kinds: tuple[Kind, ...] = KINDS) -> Counter[Kind]:
    counts: Counter[Kind] = Counter()
    for window, _ in Trace(path).events():
        for kind in kinds:
            counts[kind] += int((window.dev[window.rows(kind)] == dev).sum())
    return counts


def in_pairs(one: Bios, other: Bios) -> tuple[Bios, Bios]:
    """Both sorted by place, then time: the same rows are the same I/O."""
    orders = (np.lexsort((bios.queue, bios.bytes, bios.sector)) for bios in (one, other))
    first, second = (bios.take(order) for bios, order in zip((one, other), orders, strict=True))
    assert np.array_equal(first.sector, second.sector)
    assert np.array_equal(first.bytes, second.bytes)
    return first, second


def steps(bios: Bios) -> NDArray[np.int64]:
    """Times of a bio's steps, ns; NEVER: not taken. Shape (bios, steps)."""
    return np.stack([getattr(bios, name) for name in STEPS], axis=1)


def check_times(first: Bios, second: Bios) -> None:
    """Every time of the second recorder's is between two of the first's.

    Both read one clock (CLOCK_MONOTONIC) in the same tracepoint, the one that was attached first
    first. What comes next to a bio comes after both have. A bio in parts has no one order.
    """
    first, second = in_pairs(first, second)
    assert np.array_equal(steps(first) == NEVER, steps(second) == NEVER)
    whole = (first.fragments <= 1) & (first.bytes > 0)
    early, late = steps(first.take(whole)), steps(second.take(whole))
    known = early != NEVER
    assert (late[known] > early[known]).all()
    order = np.argsort(np.where(known, early, np.iinfo(np.int64).max), axis=1, kind="stable")
    early, late, known = (np.take_along_axis(x, order, axis=1) for x in (early, late, known))
    followed = known[:, 1:]
    assert (late[:, :-1][followed] < early[:, 1:][followed]).all()
