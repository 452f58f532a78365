# SPDX-License-Identifier: Apache-2.0
"""Which request a C without a pointer completes: of data, of a flush sequence, of failures."""

from biotrail.converters.match.ctypes_of import NULL, bint, int64
from biotrail.converters.match.doubt import (
    drop_tag,
    end,
    open_flight,
    open_since,
    pair_flush,
)
from biotrail.converters.match.finder import (
    choose,
    find_ending,
    is_flush_request,
    set_request,
)
from biotrail.converters.match.flights import (
    add_found,
    add_guess,
    all_of,
    exact,
    move,
    new_flight,
    oldest_first,
    overlaps_guess,
    put_back,
    several,
    sharing,
    starting,
    take_out,
)
from biotrail.converters.match.lives import Device, Flight
from biotrail.converters.match.numbers import (
    BIO_COMPLETE,
    HELD,
    ISSUED,
    PARTIALS,
)
from biotrail.converters.match.state import Machine


def find_completed(m: Machine) -> None:
    """C: the request that completed, wholly or in part."""
    start: int64 = m.found
    r: Flight
    if m.from_sector == m.to_sector and not is_flush_request(m):
        find_flush_end(m)
        return
    if not m.bios_end_by_c:
        m.device.takes_requests = True
    find_completing(m)
    if several(m, start) and m.on["finder/lived-through-loss"]:
        pass_over_lost(m, start)
    if m.high != 0 and m.on["finder/fails-before-issue"]:
        find_failing(m, start)
    r = choose(m, start, False)
    if not r:
        find_unknown(m)
        return
    if m.op != m.zone_append:  # its C has another sector than its D
        if m.on["finder/parts-blur"]:
            if overlaps_guess(m, m.device.partials, PARTIALS):
                open_flight(r)
            note_partial(m, start)
    set_request(m, r)
    if r.place == HELD:
        take_out(m, r)
    elif m.op == m.zone_append or r.end == m.to_sector:
        end_data(m, r)
    else:
        move(m, r, m.to_sector, r.end)
    end(m, r, r.place != ISSUED)


def note_partial(m: Machine, start: int64) -> None:
    """A C that fits several requests of several ends: which one it shortened is open."""
    at: int64
    for at in range(start + 1, m.found):
        if m.pile[at].end != m.pile[start].end:
            add_guess(m, PARTIALS, start)
            return


def find_completing(m: Machine) -> None:
    """Find the issued requests that a C may be of, the oldest first: not shorter, data not done.

    Of a zone append those of its size: C has the sector that was written, D the zone's.
    """
    start: int64 = m.found
    at: int64
    left: int64 = start
    f: Flight
    d: Device = m.device
    if m.op == m.zone_append:
        all_of(m, d.issued)
        for at in range(start, m.found):
            f = m.pile[at]
            if f.end - f.sector == m.to_sector - m.from_sector:
                m.pile[left] = f
                left += 1
        m.found = left
        oldest_first(m, start)
        return
    starting(m, d.issued, m.from_sector)
    for at in range(start, m.found):
        f = m.pile[at]
        if f.end >= m.to_sector and not f.data_done:
            m.pile[left] = f
            left += 1
    m.found = left


def pass_over_lost(m: Machine, start: int64) -> None:
    """Leave those on the pile that were issued since records were lost, if there are any.

    The completion of one that was in flight then was likely among these records: a later one of the
    same place is the likelier owner. At first both are in doubt; once it was passed over, no later
    one pays for it.
    """
    divide_rows(m, start)
    at: int64
    left: int64 = start
    stop: int64
    known: bint = True
    f: Flight
    for at in range(start, m.found):
        if m.pile[at].issue_ts > m.lost_at:
            left += 1
        else:
            known = known and m.pile[at].passed
    if left == start or left == m.found:
        return
    if not known:
        open_since(m, start)
    left = start
    stop = m.found
    for at in range(start, stop):
        f = m.pile[at]
        if f.issue_ts > m.lost_at:
            m.pile[left] = f
            left += 1
        else:
            while f and not f.passed:
                add_found(m, f)
                f = f.younger
    for at in range(stop, m.found):
        m.pile[at].passed = True
        put_back(m, m.pile[at])
    m.found = left


def divide_rows(m: Machine, start: int64) -> None:
    """Part those of each row on the pile that were issued since records were lost from others."""
    stop: int64 = m.found
    at: int64
    f: Flight
    for at in range(start, stop):
        f = m.pile[at]
        if f.row and f.row.lost_at != m.lost_at:
            f.row.lost_at = m.lost_at
            while f:
                if f.issue_ts <= m.lost_at and not f.lived_through:
                    add_found(m, f)
                f = f.younger
    if m.found > stop:
        for at in range(stop, m.found):
            put_back(m, m.pile[at])
        m.found = start
        find_completing(m)


def find_failing(m: Machine, start: int64) -> None:
    """Add the held requests with the range of a failed C, which may have failed before their issue.

    A bio that waits there may have a request that was not recorded: then all are in doubt.
    """
    stop: int64
    exact(m, m.device.held)
    stop = m.found
    sharing(m, m.device.waiting)
    if m.found > stop:
        open_since(m, start)
    m.found = stop


def end_data(m: Machine, r: Flight) -> None:
    """A request's data is complete; a flush sequence goes on until its C of no bytes.

    blk_kick_flush lends its driver's tag to the flush request.
    """
    if r.sequence:
        r.data_done = True
        put_back(m, r)
        drop_tag(r, True)
    else:
        take_out(m, r)


def find_unknown(m: Machine) -> None:
    """A C that fits no request: of one from before the log.

    blktrace has one letter for the end of bios and of requests: where no request of the device was
    seen it is of a bio that waits.
    """
    start: int64 = m.found
    b: Flight = NULL
    if m.bios_end_by_c and not m.device.takes_requests and m.on["finder/bios-end-by-c"]:
        find_ending(m)
        b = choose(m, start, False)
    if not b:
        m.address = new_flight(m, False).identity
        return
    take_out(m, b)
    end(m, b, True)
    m.bio = b.identity
    m.kind = BIO_COMPLETE


def find_flush_end(m: Machine) -> None:
    """A C of no bytes ends a flush sequence whose data is done, or what has no data.

    That is in flight since before the newest flush: a flush ends only what was queued when it was
    issued (blk_kick_flush). In doubt where the data of another one may have ended unseen.
    """
    start: int64 = m.found
    stop: int64
    at: int64
    left: int64 = start
    f: Flight
    d: Device = m.device
    rivals: bint
    starting(m, d.issued, m.from_sector)
    for at in range(start, m.found):
        f = m.pile[at]
        if f.data_done or f.end == f.sector:
            m.pile[left] = f
            left += 1
    m.found = left
    exact(m, d.held)
    before_flush(m, left)
    stop = m.found
    unknown_flushes(m)
    if m.on["finder/data-may-have-ended"]:
        left = m.found
        starting(m, d.issued, m.from_sector)
        for at in range(left, m.found):
            f = m.pile[at]
            if f.sequence and not f.data_done and f.end != f.sector:
                m.pile[left] = f
                left += 1
        m.found = left
    rivals = m.found > stop
    if rivals and stop > start:
        open_since(m, start)
    m.found = stop
    f = choose(m, start, False)
    pair_flush(m, start, rivals)
    if not f:
        end_unknown_flush(m)
        return
    set_request(m, f)
    take_out(m, f)
    end(m, f, True)


def before_flush(m: Machine, start: int64) -> None:
    """Leave on the pile what is older than the newest flush that was issued."""
    at: int64
    left: int64 = start
    for at in range(start, m.found):
        if m.pile[at].order < m.device.flush_issued or not m.on["finder/flush-ends-those-before"]:
            m.pile[left] = m.pile[at]
            left += 1
    m.found = left


def unknown_flushes(m: Machine) -> None:
    """Find the waiting bios without data that a C of no bytes may be of.

    Only where no G or s is recorded: else such a C is the first event of its request.
    """
    start: int64 = m.found
    at: int64
    left: int64 = start
    if m.device.tells_allocations:
        return
    exact(m, m.device.waiting)
    for at in range(start, m.found):
        if m.pile[at].flags & m.preflush:
            m.pile[left] = m.pile[at]
            left += 1
    m.found = left
    before_flush(m, start)


def end_unknown_flush(m: Machine) -> None:
    """A C of no bytes that is of no request: of a waiting flush, which gets its request here."""
    start: int64 = m.found
    b: Flight
    unknown_flushes(m)
    b = choose(m, start, False)
    pair_flush(m, start, False)
    if not b:
        find_unknown(m)
        return
    take_out(m, b)
    end(m, b, True)
    m.address = new_flight(m, False).identity
    m.bio = b.identity
