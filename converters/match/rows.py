# SPDX-License-Identifier: Apache-2.0
"""The rows of a family: bios, requests, edges; how surely each is known."""

import cython

from biotrail.converters.match.closing import holds, is_piece, request_before_merge
from biotrail.converters.match.doubt import ending_of
from biotrail.converters.match.flights import doubt_of
from biotrail.converters.match.generations import is_passthrough
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import device_of, resized, time_of
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine
from biotrail.recorder.schema.records import NO_SECTOR, NO_TAG, Q_FLAG_OWN

NO_CPU = 0xFFFF


def new_row(m: Machine, table: int64) -> pointer:
    rows: cython.pointer(uint8)
    if m.made[table] == m.room[table]:
        m.room[table] = max(4096, 2 * m.room[table])
        m.rows_of[table] = resized(m.rows_of[table], m.room[table] * m.row_size[table])
    rows = cython.cast(cython.pointer(uint8), m.rows_of[table])
    m.made[table] += 1
    return cython.address(rows[(m.made[table] - 1) * m.row_size[table]])


def write_family(m: Machine) -> None:
    at: int64
    b: Bio
    edge: EdgeRow
    for at in range(m.bios_of - 1, -1, -1):
        b = m.family_bios[at]
        if b.root == b:
            b.number = b.born.number
            if b.born.kind != Q and b.born.kind != A and b.born.kind != X:
                b.number = FIRST_UNRECORDED + b.number * 4096 + b.slot
        if is_piece(b):
            b.next_piece = b.root.first_piece
            b.root.first_piece = b
    own: bint = find_own(m)
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.root == b and not b.sent_on:
            write_bio(m, b)
    for at in range(m.bios_of):
        b = m.family_bios[at]
        if b.request:
            edge = cython.cast(EdgeRow, new_row(m, EDGES))
            edge.bio = b.root.number
            edge.request = b.request.born.number
            edge.sector = b.piece.sector + b.shift
            edge.bytes = max(b.piece_bytes, 0)
            edge.certainty = b.certainty
    for at in range(m.requests_of):
        write_request(m, m.family_requests[at])
    if m.tells_lives or m.tells_events or (own and m.notes_events):
        write_lives(m, own or m.tells_events)


def find_own(m: Machine) -> bint:
    """Find which bios and requests are the recording's own; return whether there are any."""
    at: int64
    other: int64
    depth: int64
    found: bint = False
    b: Bio
    upper: Bio
    r: Request
    for at in range(m.bios_of):
        b = m.family_bios[at]
        found = found or (b.flags & Q_FLAG_OWN) != 0
    if not found:
        return False
    for at in range(m.bios_of):
        b = m.family_bios[at]
        upper = b.root
        b.is_own = (upper.flags & Q_FLAG_OWN) != 0
        depth = 0
        while upper.upper and depth < DEEPEST and not b.is_own:
            upper = upper.upper.root
            b.is_own = (upper.flags & Q_FLAG_OWN) != 0
            depth += 1
    for at in range(m.requests_of):
        r = m.family_requests[at]
        r.is_own = r.first != NULL and not r.last_cut and r.others == 0
        b = r.first
        while b and r.is_own:
            r.is_own = b.is_own
            b = b.sibling
    for at in range(m.requests_of):
        r = m.family_requests[at]
        if r.absorbed_by:
            r.is_own = r.absorbed_by.is_own
            depth = 0
            for other in range(m.bios_of):
                b = m.family_bios[other]
                if request_before_merge(b) == r:
                    r.is_own = b.is_own and (depth == 0 or r.is_own)
                    depth += 1
    for at in range(m.requests_of):
        r = m.family_requests[at]
        r.is_own = r.is_own or (r.above != NULL and r.above.is_own)
    return True


def write_lives(m: Machine, events: bint) -> None:
    """Write whose the family's addresses were, and if it is asked, the events that name each."""
    at: int64
    b: Bio
    r: Request
    for at in range(m.bios_of):
        b = m.family_bios[at]
        write_life(m, cython.cast(Life, b), b.root.number, events)
    for at in range(m.requests_of):
        r = m.family_requests[at]
        write_life(m, cython.cast(Life, r), r.born.number, events)
    if not m.tells_events:
        return
    for at in range(m.bios_of):
        b = m.family_bios[at]
        r = b.request
        if not r:
            continue
        write_had(m, b, r)
        r = r.first_taken
        while r:
            if b.born.number < r.merged.number and holds(cython.address(r.merged), b.piece_begin):
                write_had(m, b, r)
            r = r.next_taken


def write_had(m: Machine, b: Bio, r: Request) -> None:
    """Write that a request had a bio, whether or not an event says so."""
    row: MentionRow = cython.cast(MentionRow, new_row(m, MENTIONS))
    row.event = b.root.number
    row.what = NEVER
    row.is_bio = 0
    row.number = r.born.number
    row.own = 0


def write_life(m: Machine, life: Life, number: int64, events: bint) -> None:
    """Write from when to when an address was that of a bio or request; its events."""
    life_row: LifeRow
    row: MentionRow
    at: int64
    one: Mention = life.mentions
    if m.tells_lives:
        life_row = cython.cast(LifeRow, new_row(m, LIVES))
        life_row.is_bio = life.is_bio
        life_row.object = life.address
        life_row.first = life.born.ts
        life_row.last = life.told.ts
        life_row.number = number
    if not events:
        return
    while one:
        for at in range(one.count):
            row = cython.cast(MentionRow, new_row(m, MENTIONS))
            row.event = one.number[at]
            row.what = one.what[at]
            row.is_bio = life.is_bio
            row.number = number
            row.own = life.is_own
        one = one.next


def top_of(b: Bio) -> Bio:
    """Return the topmost known bio that a queued bio works for."""
    depth: int64 = 0
    while b.upper and depth < DEEPEST:
        b = b.upper.root
        depth += 1
    return b


def file_of(b: Bio) -> int64:
    """Return the file of a bio, or of the nearest bio above that has one."""
    depth: int64 = 0
    while b.upper and depth < DEEPEST and (b.queue.number < 0 or b.file < 0):
        b = b.upper.root
        depth += 1
    return b.file if b.queue.number >= 0 else -1


def write_bio(m: Machine, b: Bio) -> None:
    p: Bio
    r: Request
    final: Bio = NULL
    pieces: int64 = 0
    served: int64 = 0
    open_pieces: int64 = 0
    sent: int64 = 0
    good: int64 = 0
    status: int64 = 0
    requeues: int64 = 0
    sureness: int64 = b.certainty
    certainty: int64
    piece_lost: bint = False
    reused: bint = False
    p = b.first_piece
    while p:
        r = p.request
        pieces += 1
        if p.end < 0:
            open_pieces += 1
            if r and r.again >= 0 and r.merged.number < 0:
                reused = True
        sent += max(p.piece_bytes, 0)
        good += p.good
        if p.status != 0:
            status = p.status
        piece_lost = piece_lost or p.completion_lost
        sureness = max(sureness, p.certainty)
        if r and r.counted != b:
            r.counted = b
            served += 1
            requeues += r.requeues
        if not final or ends_later(p, final):
            final = p
        p = p.next_piece
    own_end: At = cython.address(b.last_ended)
    end: int64 = NEVER
    complete: int64 = NEVER
    by_pieces: bint = pieces > 0 and open_pieces == 0 and sent >= b.bytes
    if by_pieces:
        end = final.end
        complete = final.end_ts
    if own_end.number > end:
        end = own_end.number
        complete = own_end.ts
    if own_end.number >= 0:
        if own_end.status != 0:
            status = own_end.status
        elif pieces == 0:
            good = max(b.bytes, 0)
    lost: bint = False
    if end < 0:
        lost = b.again >= 0 and m.on["lost completions/address-reused"]
        lost = lost or (piece_lost and m.on["lost completions/piece-lost"])
        lost = lost or (reused and m.on["lost completions/request-reused"])
    if own_end.number >= 0 and open_pieces > 0 and m.on["lost completions/ended-before-pieces"]:
        lost = True
    # Times of the piece that ended last.
    r = final.request if final else NULL
    getrq: int64 = NEVER
    merge: int64 = NEVER
    insert: int64 = NEVER
    issue: int64 = NEVER
    before: Request = NULL
    if final:
        merge = time_of(cython.address(final.joined))
        if merge < 0:
            getrq = time_of(cython.address(final.got))
            if getrq < 0:
                getrq = time_of(cython.address(final.start))
        before = request_before_merge(final)
        if before:
            insert = time_of(cython.address(before.insert))
        elif r:
            insert = time_of(cython.address(r.insert))
        if r:
            issue = first_issue(final, r, before)
    joined_inserted: bint = merge >= 0 and 0 <= insert < merge
    if max(merge, getrq) < 0 or insert < max(merge, getrq) or 0 <= issue < insert:
        insert = NEVER
    # What is behind its end is of other I/O at the address, whose start was not recorded.
    after: int64 = complete if complete >= 0 else FOREVER
    getrq = NEVER if getrq > after else getrq
    merge = NEVER if merge > after else merge
    insert = NEVER if insert > after else insert
    issue = NEVER if issue > after else issue
    sequence: bint = r != NULL and r.sequence
    data_end: int64 = complete
    if sequence:
        data_end = r.data_end_ts if r.data_end >= 0 else time_of(cython.address(r.complete))
    device: Device = b.device
    if device.dev != b.best.dev:
        device = device_of(m, b.best.dev)
    request_based: bint = device.requests_since < (end if end >= 0 else b.born.number)
    queue: int64 = time_of(cython.address(b.queue))
    certainty = bio_certainty(m, b, final, sureness, complete, issue, merge, lost)
    if own_end.number >= 0 and request_based and b.first_front and certainty < AMBIGUOUS:
        if fronts_elsewhere(m, b):
            certainty = LOST
    gone: int64 = NEVER
    gone_at: int64 = b.again
    if end < 0:
        gone = b.again_ts if b.again >= 0 else NEVER
        if pieces == 1 and r and r.merged.number < 0 and r.again >= 0:
            if gone_at < 0 or r.again < gone_at:
                gone = r.again_ts
    queued: bint = queue >= 0
    b.complete = end >= 0
    row: BioRow = cython.cast(BioRow, new_row(m, BIOS))
    row.number = b.number
    row.dev = b.best.dev
    row.part = b.part if queued else b.best.dev
    row.sector = b.best.sector
    row.bytes = max(b.bytes, 0)
    row.opf = b.best.opf
    row.tid = b.tid
    row.cgroup = b.cgroup
    row.ioprio = b.ioprio
    row.hint = b.hint
    row.flags = b.flags
    row.stack = b.stack if queued else NEVER
    row.file = file_of(b)
    row.cpu = b.cpu if queued else NO_CPU
    row.queue = queue
    row.getrq = getrq
    row.merge = merge
    row.insert = insert
    row.issue = issue
    row.complete = complete
    row.gone = gone
    row.fragments = pieces
    row.requests = served
    row.requeues = requeues
    row.status = status
    row.done_bytes = good
    row.request = r.born.number if r else NEVER
    row.parent = b.upper.root.number if b.upper else NEVER
    row.family = top_of(b).number
    row.certainty = certainty
    row.doubtful = bio_doubtful(b, queue, by_pieces, sureness)
    row.queued_at = b.queue.number
    row.own = b.is_own
    failed: bint = r != NULL and r.status != 0 and r.good == 0
    m.bound[0] = queue
    m.bound[1] = merge if merge >= 0 else getrq
    m.bound[2] = insert
    m.bound[3] = issue
    m.bound[4] = data_end
    m.bound[5] = complete
    bio_stages(
        m, b, r, merge >= 0, joined_inserted, pieces == 0, status != 0 and request_based, failed
    )


def bio_doubtful(b: Bio, queue: int64, by_pieces: bint, sureness: int64) -> bint:
    """Return whether a bio's latency is in doubt: it may be off by more than a tenth.

    by_pieces: its pieces end it. sureness: of the bio and its pieces.
    """
    first: int64 = NEVER
    last: int64 = NEVER
    shared: bint = False
    e: Ending
    p: Bio
    if b.last_ended.number >= 0:
        first = last = b.last_ended.ts
        e = ending_of(cython.cast(Life, b), b.last_ended.number)
        if e and e.state != KNOWN:
            return True
        if e:
            shared = True
            first = e.first
            last = e.last
    p = b.first_piece if by_pieces else NULL
    while p:
        e = NULL
        if p.end >= 0 and p.request:
            e = ending_of(cython.cast(Life, p.request), p.end)
        if e and e.state != KNOWN:
            return True
        if e:
            shared = True
            first = max(first, e.first)
            last = max(last, e.last)
        else:
            first = max(first, p.end_ts)
            last = max(last, p.end_ts)
        p = p.next_piece
    return is_doubtful(first, last, queue, shared, sureness)


def is_doubtful(first: int64, last: int64, begin: int64, shared: bint, sureness: int64) -> bint:
    """Return whether bounds of an end leave the time since its beginning open by over a tenth.

    sureness: one that is ambiguous though its end is its own is not bounded.
    """
    if last < 0:
        return False
    if not shared and sureness == AMBIGUOUS:
        return True
    return last - first > max(first - begin, 0) // SHARE


def fronts_elsewhere(m: Machine, b: Bio) -> bint:
    """Return whether some front of a bio went to no known request: one of what is left has it."""
    at: int64
    for at in range(m.bios_of):
        if m.family_bios[at].root == b and m.family_bios[at] != b:
            if not is_piece(m.family_bios[at]):
                return True
    return False


def ends_later(one: Bio, other: Bio) -> bint:
    """Return whether a piece ends later than another one; one without an end does."""
    if one.end < 0 or other.end < 0:
        if one.end < 0 and other.end < 0:
            return one.born.number >= other.born.number
        return one.end < 0
    if one.end != other.end:
        return one.end > other.end
    return one.born.number >= other.born.number


def first_issue(b: Bio, r: Request, before: Request) -> int64:
    """Return when the first D carried a bio: one that names it, or its request's next one."""
    joined: int64
    taken: Request
    one: Step = r.first_step
    if b.issue >= 0:
        return b.issue_ts
    joined = max(max(b.joined.number, b.born.number), max(b.got.number, b.start.number))
    if before:
        joined = max(joined, before.merged.number)
    if r.requeues > 0:
        taken = r.first_taken
        while taken:
            if b.born.number < taken.merged.number:
                if holds(cython.address(taken.merged), b.piece_begin):
                    joined = max(joined, taken.merged.number)
            taken = taken.next_taken
    if not one and r.issue.number >= joined:
        return r.issue.ts
    while one:
        if one.at.number >= joined and one.at.kind == D:
            return one.at.ts
        one = one.next
    return NEVER


def needs_issue(m: Machine, size: int64, opf: uint32) -> bint:
    """Return whether something can succeed only if it is issued: anything but an empty flush."""
    op: int64 = opf & 0xFF
    return size > 0 or not (op == m.write or op == m.flush)


def unissued(m: Machine, r: Request) -> int64:
    """Return an event that implies a D of the request that was not recorded; NEVER: none does."""
    first: int64 = r.first_complete
    if not m.counts_losses and r.requeue >= 0 and (first < 0 or r.requeue < first):
        first = r.requeue
    return max(first if first >= 0 and r.issue.number > first else NEVER, r.implied)


def bio_certainty(
    m: Machine,
    b: Bio,
    final: Bio,
    sureness: int64,
    complete: int64,
    issue: int64,
    merge: int64,
    lost: bint,
) -> int64:
    """Return how surely a bio is known. A rule further down counts more."""
    queued: bint = b.queue.number >= 0
    in_doubt: bint = sureness == AMBIGUOUS and queued
    certainty: int64 = sureness
    r: Request = final.request if final else NULL
    if r:
        if complete >= 0 and issue < 0 and queued and needs_issue(m, b.bytes, b.best.opf):
            if r.status == 0 or r.good > 0 or (r.sequence and r.completions > 1):
                if m.on["certainty of bios/completed-without-issue"]:
                    certainty = LOST
        if unissued(m, r) > b.born.number and m.on["certainty of bios/issue-implied"]:
            certainty = LOST
        if issue < 0 and merge >= 0 and r.born.kind == C and final.joined.kind == M:
            if m.on["certainty of bios/behind-failed-head"]:
                certainty = LOST
    if not in_doubt:
        if (not queued or complete < 0) and m.on["certainty of bios/outside-the-log"]:
            certainty = INCOMPLETE
        if lost and queued and m.on["certainty of bios/completion-lost"]:
            certainty = LOST
    return certainty


def write_request(m: Machine, r: Request) -> None:
    b: Bio = r.first
    starts: bint = r.start.number >= 0
    allocated: int64 = FOREVER
    known_bytes: int64 = 0
    reused: int64 = 0
    all_over: int64 = NEVER
    all_over_ts: int64 = NEVER
    while b:
        if b.got.number >= 0 or (b.root.queue.number >= 0 and b.joined.number < 0):
            starts = True
        if b.got.number >= 0 and r.start.number < 0 and not request_before_merge(b):
            allocated = min(allocated, b.got.ts)
        known_bytes += b.piece_bytes
        reused += b.again >= 0
        if b.root.complete or b.root.again < 0:
            all_over = FOREVER
        elif b.root.again > all_over:
            all_over = b.root.again
            all_over_ts = b.root.again_ts
        b = b.sibling
    if r.bios == 0 and (r.issue.number >= 0 or r.insert.number >= 0):
        starts = True
    start: int64 = r.start.ts if r.start.number >= 0 else min(r.born.ts, allocated)
    told: At = cython.address(r.issue)
    if told.number < 0:
        told = cython.address(r.born)
    merged: bint = r.merged.number >= 0
    freed: bint = r.again >= 0 or (r.bios > 0 and reused == r.bios)
    certainty: int64 = doubt_of(cython.cast(Life, r)) if m.by_range else EXACT
    if starts:
        if r.issue.number < 0 and r.finished:
            if r.total > 0 or r.good > 0 or needs_issue(m, 0, told.opf):
                if r.status == 0 or r.good > 0 or r.completions > 1:
                    if m.on["certainty of requests/completed-without-issue"]:
                        certainty = LOST
        if r.issue.number < 0 and r.complete.number >= 0 and r.bios > 0 and known_bytes < r.done:
            if m.on["certainty of requests/failed-with-unknown-bios"]:
                certainty = LOST
        if unissued(m, r) >= 0 and m.on["certainty of requests/issue-implied"]:
            certainty = LOST
    if not r.finished and not merged and m.on["certainty of requests/not-ended"]:
        certainty = INCOMPLETE
    if not starts and not merged and m.on["certainty of requests/start-not-recorded"]:
        certainty = INCOMPLETE
    if not r.finished and not merged and starts and (freed or r.absorbed_by):
        if m.on["certainty of requests/completion-lost"]:
            certainty = LOST
    if merged and not r.absorbed_by and m.on["certainty of requests/absorbed-by-unknown"]:
        certainty = INCOMPLETE
    upper: Request = r.above if r.above else r
    complete: int64 = time_of(cython.address(r.complete))
    gone: int64 = NEVER
    if complete < 0 and not merged:
        gone = r.again_ts if r.again >= 0 else NEVER
        if 0 <= all_over < FOREVER and (r.again < 0 or all_over < r.again):
            gone = all_over_ts
    row: RequestRow = cython.cast(RequestRow, new_row(m, REQUESTS))
    row.number = r.born.number
    row.dev = told.dev
    row.sector = told.sector
    row.bytes = told.size
    row.opf = told.opf
    row.tag = r.tag if r.issue.number >= 0 else NO_TAG
    row.sched_tag = r.sched_tag if r.issue.number >= 0 else NO_TAG
    row.hctx = r.hctx if r.issue.number >= 0 else NO_TAG
    row.start = start
    row.insert = time_of(cython.address(r.insert))
    row.issue = time_of(cython.address(r.issue))
    row.complete = complete
    row.gone = gone
    row.bios = r.bios
    row.others = r.others
    row.requeues = r.requeues
    row.status = r.status
    row.done_bytes = min(r.good, LOW_32)
    row.absorbed_by = r.absorbed_by.born.number if r.absorbed_by else NEVER
    row.parent = r.above.born.number if r.above else NEVER
    row.family = top_of(upper.first.root).number if upper.first else upper.born.number
    row.certainty = certainty
    row.completed_at = r.complete.number
    row.own = r.is_own
    row.doubtful = request_doubtful(m, r, start, certainty)
    request_stages(m, r, start, told)


def request_doubtful(m: Machine, r: Request, start: int64, certainty: int64) -> bint:
    """Return whether a request's latency is in doubt, as a bio's, or as a part is missing."""
    e: Ending
    if r.complete.number < 0:
        return False
    if m.by_range and not r.finished and r.last_issue.number >= 0 and r.last_issue.size > 0:
        return True
    e = ending_of(cython.cast(Life, r), r.complete.number)
    if e:
        return e.state != KNOWN or is_doubtful(e.first, e.last, start, True, certainty)
    return is_doubtful(r.complete.ts, r.complete.ts, start, False, certainty)


# --- Stages: gapless intervals between the times of their rows


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
    """Write one stage between each two known bounds that follow each other.

    Slot i lies between bounds i and i + 1. previous: the last known bound; 0: the first alone, so
    that only Q2D, or what is not known, can follow. without: kind where no request was issued yet.
    """
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
    table: int64 = BIO_STAGES if of_bio else REQUEST_STAGES
    row: StageRow = cython.cast(StageRow, new_row(m, table))
    row.owner = owner
    row.stage = kind
    row.start = begin
    row.end = end


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
