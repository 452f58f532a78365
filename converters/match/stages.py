# SPDX-License-Identifier: Apache-2.0
"""Stages of bios and requests: gapless intervals between the times of their rows."""

import cython

from biotrail.converters.match.ctypes_of import NULL, bint, int64
from biotrail.converters.match.generations import is_passthrough
from biotrail.converters.match.lives import At, Bio, Request, Step
from biotrail.converters.match.memory import time_of
from biotrail.converters.match.numbers import (
    ABSENT,
    BIO_BASED,
    BIO_STAGES,
    D2C,
    FAILED,
    FLUSH,
    G2D,
    G2I,
    I2D,
    M2D,
    M2I,
    MOST_COLUMNS,
    NEVER,
    POST_FLUSH,
    PRE_FLUSH,
    Q2D,
    Q2G,
    Q2M,
    R2D,
    REQUEST_STAGES,
    UNKNOWN,
    D,
    R,
)
from biotrail.converters.match.rows import new_row, put8, put64
from biotrail.converters.match.state import Machine
from biotrail.recorder.schema.records import NO_SECTOR


def bio_stages(
    m: Machine,
    b: Bio,
    r: Request,
    merged: bint,
    joined_inserted: bint,
    unserved: bint,
    failed_early: bint,
    failed: bint,
) -> None:
    """Write the stages of a bio: gapless, from its Q to its end.

    `m.bound` has its times: queue, joined, inserted, issued, data completed, completed.
    failed_early: it failed, on a device that makes requests. failed: its request did, with no byte
    completed.
    """
    complete: int64 = m.bound[5]
    preflush: bint = (b.best.opf & m.preflush) != 0
    sequence: bint = r != NULL and r.sequence
    single: int64 = ABSENT
    without: int64 = UNKNOWN
    if b.bytes == 0 and (preflush or (b.best.opf & 0xFF) == m.flush):
        single = FLUSH
    if unserved:
        single = FAILED if failed_early else BIO_BASED
    if single == ABSENT and not (sequence and m.bound[4] != complete):
        m.bound[5] = NEVER
    m.stage_of[0] = Q2M if merged else Q2G
    m.stage_of[1] = M2I if merged else PRE_FLUSH if preflush else G2I
    if m.bound[2] >= 0 or joined_inserted:
        m.stage_of[2] = I2D
    elif merged:
        m.stage_of[2] = M2D
    else:
        m.stage_of[2] = PRE_FLUSH if preflush else G2D
    m.stage_of[3] = D2C
    m.stage_of[4] = POST_FLUSH
    if failed and m.bound[4] == complete:
        without = PRE_FLUSH if preflush and sequence else FAILED
    flatten(m, True, b.number, single, without, r)


def request_stages(m: Machine, r: Request, start: int64, told: At) -> None:
    """Write the stages of a request, from its start on."""
    issue: int64 = time_of(cython.address(r.issue))
    insert: int64 = time_of(cython.address(r.insert))
    done: int64 = time_of(cython.address(r.complete))
    data: int64 = done
    op: int64 = told.opf & 0xFF
    normal: bint
    alone: bint
    without: int64 = UNKNOWN
    if 0 <= issue < insert:
        insert = NEVER
    if r.sequence and r.data_end >= 0:
        data = r.data_end_ts
    normal = not is_passthrough(m, told.opf) and not (op == m.flush and told.sector == NO_SECTOR)
    alone = r.total <= 0 and r.done == 0 and normal and issue < 0
    alone = alone and (op == m.write or op == m.flush)
    m.bound[0] = start
    m.bound[1] = start
    m.bound[2] = insert
    m.bound[3] = issue
    m.bound[4] = data
    m.bound[5] = done if (r.sequence and data != done) or alone else NEVER
    m.stage_of[0] = ABSENT
    m.stage_of[1] = PRE_FLUSH if r.sequence and insert >= 0 else G2I
    m.stage_of[2] = I2D if insert >= 0 else G2D
    m.stage_of[3] = D2C
    m.stage_of[4] = POST_FLUSH
    if r.status != 0 and r.good == 0 and data == done:
        without = PRE_FLUSH if r.sequence else FAILED
    flatten(m, False, r.born.number, FLUSH if alone else ABSENT, without, r)


def flatten(
    m: Machine, of_bio: bint, owner: int64, single: int64, without: int64, r: Request
) -> None:
    """Write one stage between each two known bounds that follow each other."""
    previous: int64 = 0
    slot: int64
    at: int64
    kind: int64
    begin: int64 = m.bound[0]
    high: int64 = begin
    for slot in range(5):
        if single != ABSENT and slot < 4:
            continue
        at = m.bound[slot + 1]
        if at < 0:
            continue
        high = max(high, at)
        if begin >= 0:
            kind = m.stage_of[slot]
            if (previous == 0 and slot > 0) or (slot == 4 and previous < 3):
                kind = UNKNOWN
            if slot == 3 and previous < 3:
                kind = without
            if previous == 0 and slot == 2:
                kind = Q2D
            if single != ABSENT:
                kind = single
            if kind == D2C and r and r.requeues > 0:
                divide(m, of_bio, owner, begin, high, r)
            elif kind != ABSENT:
                stage(m, of_bio, owner, kind, begin, high)
        begin = high
        previous = slot + 1


def stage(m: Machine, of_bio: bint, owner: int64, kind: int64, begin: int64, end: int64) -> None:
    """Write one stage."""
    table: int64 = BIO_STAGES if of_bio else REQUEST_STAGES
    row: int64 = new_row(m, table)
    put64(m, table * MOST_COLUMNS + 0, row, owner)
    put8(m, table * MOST_COLUMNS + 1, row, kind)
    put64(m, table * MOST_COLUMNS + 2, row, begin)
    put64(m, table * MOST_COLUMNS + 3, row, end)


def divide(m: Machine, of_bio: bint, owner: int64, begin: int64, end: int64, r: Request) -> None:
    """Write D2C divided at requeues: R2D from each R to the next D."""
    first: int64 = begin
    state: int64 = D2C
    turn: int64
    one: Step = r.first_step
    while one:
        turn = state
        if one.at.kind == R:
            turn = R2D
        elif one.at.kind == D:
            turn = D2C
        if turn != state and first <= one.at.ts <= end:
            stage(m, of_bio, owner, state, begin, one.at.ts)
            state = turn
            begin = one.at.ts
        one = one.next
    stage(m, of_bio, owner, state, begin, end)
