# SPDX-License-Identifier: Apache-2.0
"""What is in flight on a device, by sectors: trees of ranges, and the questions asked of them.

A tree (a treap) is sorted by first sector, then by age, and knows the largest end below each of its
nodes: so it tells who begins, ends or lies somewhere without a look at all others. Flights that no
question tells apart stand in a row, of which the tree has the oldest: a thousand identical reads
are as one.
Candidates, the oldest of each row, are put on the machine's pile, each list from a place on that
its asker remembers.
"""

import cython

from biotrail.converters.match.doubt import leave_all
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import (
    allocate,
    end_of,
    free_list,
    from_pool,
    grown,
    into_pool,
)
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine

FIRST_BIO = 1 << 38
FIRST_REQUEST = 1 << 54
STEP = 64
"""Identities differ as addresses do, so that they spread over the tables of these."""
SPREAD = 0x9E3779B97F4A7C15
ANYWHERE = 0xFFFFFFFFFFFFFFFF


# --- Trees


def is_before(one: Range, other: Range) -> bint:
    if one.sector != other.sector:
        return one.sector < other.sector
    return one.order < other.order


def lift(t: Range) -> None:
    """Find the largest end at a node and below."""
    t.highest = t.end
    if t.left and t.left.highest > t.highest:
        t.highest = t.left.highest
    if t.right and t.right.highest > t.highest:
        t.highest = t.right.highest


def divide_tree(
    t: Range, by: Range, low: cython.pointer(Range), high: cython.pointer(Range)
) -> None:
    """Divide a tree into what comes before a range and what behind it."""
    if not t:
        low[0] = NULL
        high[0] = NULL
    elif is_before(t, by):
        divide_tree(t.right, by, cython.address(t.right), high)
        lift(t)
        low[0] = t
    else:
        divide_tree(t.left, by, low, cython.address(t.left))
        lift(t)
        high[0] = t


def with_range(t: Range, new: Range) -> Range:
    if not t:
        new.left = new.right = NULL
        new.highest = new.end
        return new
    if new.weight > t.weight:
        divide_tree(t, new, cython.address(new.left), cython.address(new.right))
        lift(new)
        return new
    if is_before(new, t):
        t.left = with_range(t.left, new)
    else:
        t.right = with_range(t.right, new)
    t.highest = max(t.highest, new.end)
    return t


def both(low: Range, high: Range) -> Range:
    """Return one tree of two, of which one comes before the other."""
    if not low:
        return high
    if not high:
        return low
    if low.weight > high.weight:
        low.right = both(low.right, high)
        lift(low)
        return low
    high.left = both(low, high.left)
    lift(high)
    return high


def without_range(t: Range, old: Range) -> Range:
    if t == old:
        return both(t.left, t.right)
    if is_before(old, t):
        t.left = without_range(t.left, old)
    else:
        t.right = without_range(t.right, old)
    lift(t)
    return t


# --- Flights


def number_range(m: Machine, t: Range) -> None:
    m.orders += 1
    t.order = m.orders
    t.weight = cython.cast(uint64, m.orders) * SPREAD


def new_flight(m: Machine, is_bio: bint) -> Flight:
    """Return a new bio or request with the event's range, operation and thread, in no tree yet."""
    f: Flight = cython.cast(Flight, from_pool(m, cython.address(m.free_flights), size_of(Flight)))
    f.is_bio = is_bio
    f.device = m.device
    f.sector = m.from_sector
    f.end = m.to_sector
    f.op = m.op
    f.tid = m.tid
    number_range(m, cython.cast(Range, f))
    f.identity = (FIRST_BIO if is_bio else FIRST_REQUEST) + cython.cast(uint64, f.order) * STEP
    f.doubt = INTERVAL
    f.began = m.ts
    f.first_end = FOREVER
    list_flight(m, f)
    return f


def list_flight(m: Machine, f: Flight) -> None:
    """Have a look at a flight when the event is over: it may be over, too."""
    if not f.listed:
        f.listed = True
        f.next_listed = m.listed
        m.listed = f


def tree_of(f: Flight) -> cython.pointer(Range):
    if f.place == WAITING:
        return cython.address(f.device.waiting)
    if f.place == HELD:
        return cython.address(f.device.held)
    return cython.address(f.device.issued)


def put_in(m: Machine, f: Flight, place: int64) -> None:
    tree: cython.pointer(Range)
    like: Flight
    f.place = place
    f.lived_through = place == ISSUED and f.issue_ts <= m.lost_at
    f.flush_before = NEVER
    if place != ISSUED and f.sector == f.end and f.order > f.device.flush_issued:
        f.flush_before = f.device.flush_issued
    tree = tree_of(f)
    like = find_like(tree[0], f)
    if like:
        enter_row(tree, like, f)
    else:
        tree[0] = with_range(tree[0], cython.cast(Range, f))


def take_out(m: Machine, f: Flight) -> None:
    tree: cython.pointer(Range)
    if f.place != NOWHERE:
        tree = tree_of(f)
        if not f.older:
            tree[0] = without_range(tree[0], cython.cast(Range, f))
            if f.younger:
                tree[0] = with_range(tree[0], cython.cast(Range, f.younger))
        if f.row:
            leave_row(f)
    f.place = NOWHERE
    list_flight(m, f)


# --- Rows of those that no question tells apart


def find_like(t: Range, f: Flight) -> Flight:
    """Return the oldest flight of the row in a tree that one belongs to, or NULL."""
    like: Flight
    while t and t.sector != f.sector:
        t = t.left if t.sector > f.sector else t.right
    if not t:
        return NULL
    like = cython.cast(Flight, t)
    if is_like(like, f):
        return like
    like = find_like(t.left, f)
    return like if like else find_like(t.right, f)


def is_like(one: Flight, other: Flight) -> bint:
    """Return whether no question tells two flights apart that begin at one place in one tree."""
    if one.end != other.end or one.op != other.op or one.flags != other.flags:
        return False
    if one.tid != other.tid and one.place != ISSUED and not one.inserted:
        return False
    if one.queued != other.queued or one.joined != other.joined:
        return False
    if one.started != other.started or one.inserted != other.inserted:
        return False
    if one.sequence != other.sequence or one.data_done != other.data_done:
        return False
    if one.lived_through != other.lived_through or one.passed != other.passed:
        return False
    return one.flush_before == other.flush_before


def enter_row(tree: cython.pointer(Range), like: Flight, f: Flight) -> None:
    """Put a flight into a row, which may be of one so far."""
    row: Row = like.row
    older: Flight
    at: int64
    if not row:
        row = cython.cast(Row, allocate(1, size_of(Row)))
        row.first = row.last = like
        row.lost_at = FOREVER
        for at in range(4):
            row.fresh[at] = like
        like.row = row
    older = row.last
    while older and older.order > f.order:
        older = older.older
    f.row = row
    f.older = older
    f.younger = older.younger if older else like
    if older:
        older.younger = f
    else:
        row.first = f
        tree[0] = without_range(tree[0], cython.cast(Range, like))
        tree[0] = with_range(tree[0], cython.cast(Range, f))
    if f.younger:
        f.younger.older = f
    else:
        row.last = f
    for at in range(4):
        if not row.fresh[at] or row.fresh[at].order > f.order:
            row.fresh[at] = f


def leave_row(f: Flight) -> None:
    """Take a flight out of its row; one that is alone then is in none."""
    row: Row = f.row
    at: int64
    if f.older:
        f.older.younger = f.younger
    else:
        row.first = f.younger
    if f.younger:
        f.younger.older = f.older
    else:
        row.last = f.older
    for at in range(4):
        if row.fresh[at] == f:
            row.fresh[at] = f.younger
    f.row = NULL
    f.older = f.younger = NULL
    if row.first == row.last:
        row.first.row = NULL
        free(row)


def several(m: Machine, start: int64) -> bint:
    """Return whether there are several candidates on the pile from a place on."""
    return m.found - start > 1 or (m.found > start and m.pile[start].younger != NULL)


def add_fresh(m: Machine, start: int64, what: int64) -> int64:
    """Add to the pile, of each row on it, the members that were not yet handled for `what`.

    They count as handled now; those that were are stood for by the row's oldest, which is added,
    too. Return where they begin.
    """
    stop: int64 = m.found
    at: int64
    f: Flight
    row: Row
    for at in range(start, stop):
        f = m.pile[at]
        row = f.row
        add_found(m, f)
        if row:
            if row.fresh[what] and row.fresh[what].order > f.order:
                f = row.fresh[what]
            else:
                f = f.younger if row.fresh[what] else NULL
            while f:
                add_found(m, f)
                f = f.younger
            row.fresh[what] = NULL
    return stop


def move(m: Machine, f: Flight, sector: uint64, end: uint64) -> None:
    """Give a flight in a tree another range.

    With its own range it leaves a row that it no longer resembles.
    """
    place: int64 = f.place
    take_out(m, f)
    f.sector = sector
    f.end = end
    put_in(m, f, place)


def attach(m: Machine, life: Life, old: Life) -> None:
    """Let a life that begins, and what ranges have of it, know of each other.

    old: what lived at its identity before.
    """
    f: Flight = old.flight if old else NULL
    if not f:
        f = m.listed
        while f and f.identity != life.address:
            f = f.next_listed
    if f:
        if f.life:
            f.life.flight = NULL
        f.life = life
        life.flight = f


def doubt_of(life: Life) -> int64:
    if life.flight:
        return max(life.doubt, life.flight.doubt)
    return life.doubt


# --- Questions


def find_in(m: Machine, t: Range, low: uint64, high: uint64, first: uint64, last: uint64) -> None:
    """Find those in a tree that begin within `low` to `high`, and end within `first` to `last`.

    In order of their sectors, then of age. On the pile, those of the event's operation; in a log
    with pointers, bios of any, as `asked_bios`.
    """
    while t and not low <= t.sector <= high:
        t = t.right if t.sector < low else t.left
    if not t or t.highest < first:
        return
    find_in(m, t.left, low, high, first, last)
    if first <= t.end <= last:
        if t.bio:
            add_asked(m, t.bio)
        elif cython.cast(Flight, t).op == m.op:
            add_found(m, cython.cast(Flight, t))
    find_in(m, t.right, low, high, first, last)


def starting(m: Machine, t: Range, sector: uint64) -> None:
    find_in(m, t, sector, sector, 0, ANYWHERE)


def exact(m: Machine, t: Range) -> None:
    find_in(m, t, m.from_sector, m.from_sector, m.to_sector, m.to_sector)


def ending(m: Machine, t: Range, sector: uint64) -> None:
    find_in(m, t, 0, sector, sector, sector)


def sharing(m: Machine, t: Range, within: bint) -> None:
    """Find those with data that share a sector with the event, or lie within its range."""
    start: int64 = m.found
    at: int64
    f: Flight
    if m.to_sector > m.from_sector:
        find_in(m, t, 0, m.to_sector - 1, m.from_sector + 1, ANYWHERE)
    for at in range(start, m.found):
        f = m.pile[at]
        if f.end > f.sector:
            if not within or (f.sector >= m.from_sector and f.end <= m.to_sector):
                m.pile[start] = f
                start += 1
    m.found = start


def add_asked(m: Machine, b: Bio) -> None:
    m.asked_bios = cython.cast(
        cython.pointer(Bio), grown(m.asked_bios, m.asked, cython.address(m.asked_room))
    )
    m.asked_bios[m.asked] = b
    m.asked += 1


def add_found(m: Machine, f: Flight) -> None:
    m.pile = cython.cast(
        cython.pointer(Flight), grown(m.pile, m.found, cython.address(m.found_room))
    )
    m.pile[m.found] = f
    m.found += 1


def oldest_first(m: Machine, start: int64) -> None:
    """Sort what was found since a place of the pile by age."""
    gap: int64 = 1
    at: int64
    to: int64
    f: Flight
    count: int64 = m.found - start
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for at in range(start + gap, m.found):
            f = m.pile[at]
            to = at
            while to >= start + gap and m.pile[to - gap].order > f.order:
                m.pile[to] = m.pile[to - gap]
                to -= gap
            m.pile[to] = f
        gap //= 3


# --- Guesses


def add_guess(m: Machine, kind: int64, start: int64) -> None:
    """Note that the event was given to one of several: where they are, any range may be wrong.

    kind: GUESSES of what waits or is held, PARTIALS of requests. They are on the pile.
    Members of a row that an equally wide earlier guess has are left out: that guess lasts as long.
    """
    g: Guess = cython.cast(Guess, allocate(1, size_of(Guess)))
    one: Guessed
    row: Row
    low: uint64 = m.from_sector
    high: uint64 = m.to_sector
    stop: int64 = m.found
    at: int64
    for at in range(start, stop):
        low = min(low, m.pile[at].sector)
        high = max(high, m.pile[at].end)
    for at in range(start, stop):
        row = m.pile[at].row
        if not row:
            continue
        # What is held can leave and come back (R): then a guess is what it was when it was made.
        if row.first.place == HELD or row.first == row.fresh[GUESSED]:
            row.fresh[GUESSED] = row.first
            row.guess_sector = low
            row.guess_end = high
        elif row.guess_sector > low or row.guess_end < high:
            row.fresh[GUESSED] = row.first
            row.guess_sector = low
            row.guess_end = high
        else:
            row.guess_sector = max(row.guess_sector, low)
            row.guess_end = min(row.guess_end, high)
    stop = add_fresh(m, start, GUESSED)
    for at in range(stop, m.found):
        one = cython.cast(Guessed, allocate(1, size_of(Guessed)))
        one.flight = m.pile[at]
        one.order = one.flight.order
        one.next = g.first
        g.first = one
    m.found = stop
    g.sector = low
    g.end = high
    number_range(m, cython.cast(Range, g))
    d: Device = m.device
    d.guesses[kind] = with_range(d.guesses[kind], cython.cast(Range, g))
    d.guess_count[kind] += 1
    if d.guess_count[kind] > d.guess_most[kind]:
        d.guesses[kind] = sweep(d, d.guesses[kind], NULL, kind)
        d.guess_most[kind] = 2 * d.guess_count[kind] + 64


def sweep(d: Device, t: Range, kept: Range, kind: int64) -> Range:
    """Return a tree of the guesses that may still be wrong, with those of another one."""
    left: Range
    right: Range
    g: Guess = cython.cast(Guess, t)
    if not t:
        return kept
    left = t.left
    right = t.right
    if is_open_guess(g, kind):
        kept = with_range(kept, t)
    else:
        free_list(cython.cast(Pooled, g.first))
        free(g)
        d.guess_count[kind] -= 1
    return sweep(d, right, sweep(d, left, kept, kind), kind)


def is_open_guess(g: Guess, kind: int64) -> bint:
    """Return whether one of the several is still where the guess matters; if not, close the guess.

    An R, which says where its request begins, settles a guess that is of that alone.
    """
    one: Guessed = NULL if g.is_over else g.first
    while one:
        if one.flight.order == one.order:
            if one.flight.place == HELD:
                return True
            if one.flight.place == (WAITING if kind == GUESSES else ISSUED):
                return True
        one = one.next
    g.is_over = True
    return False


def free_device(d: Device) -> None:
    """Give a device back, and what is in flight there."""
    kind: int64
    for kind in range(2):
        free_tree(d.guesses[kind], True)
    free_tree(d.waiting, False)
    free_tree(d.held, False)
    free_tree(d.issued, False)
    free(d.lower)
    free(d)


def free_tree(t: Range, of_guesses: bint) -> None:
    """Free guesses; take the flights of a tree out of all that they are in with others."""
    f: Flight
    if not t:
        return
    free_tree(t.left, of_guesses)
    free_tree(t.right, of_guesses)
    if of_guesses:
        free_list(cython.cast(Pooled, cython.cast(Guess, t).first))
        free(t)
        return
    f = cython.cast(Flight, t)
    free(f.row)
    while f:
        leave_all(f)
        f = f.younger


def near_guess(m: Machine) -> bint:
    """Return whether the event overlaps a guess that may still be wrong.

    One of which all are issued when a further event asks matters no more, even after an R.
    """
    d: Device = m.device
    if not d.guesses[GUESSES]:
        return False
    if d.issued_end > d.issued_sector:
        close_guesses(d.guesses[GUESSES], d.issued_sector, d.issued_end)
        d.issued_sector = d.issued_end = 0
    return overlaps_guess(m, d.guesses[GUESSES], GUESSES)


def close_guesses(t: Range, sector: uint64, end: uint64) -> None:
    """Close the guesses in a range that can't be wrong any more."""
    if not t or t.highest <= sector:
        return
    close_guesses(t.left, sector, end)
    if t.sector < end:
        is_open_guess(cython.cast(Guess, t), GUESSES)
        close_guesses(t.right, sector, end)


def overlaps_guess(m: Machine, t: Range, kind: int64) -> bint:
    """Return whether the event overlaps a guess of a tree that may still be wrong."""
    if not t or t.highest <= m.from_sector:
        return False
    if overlaps_guess(m, t.left, kind):
        return True
    if t.sector >= m.to_sector:
        return False
    if t.end > m.from_sector and is_open_guess(cython.cast(Guess, t), kind):
        return True
    return overlaps_guess(m, t.right, kind)


# --- Bios of a device by their sectors, so that a question does not look at all in flight
#
# While few are, the list of the device serves. The trees are made when a question meets many, and
# kept until few are left.

MANY = 64
FEW = 16


def new_spot(m: Machine, b: Bio, at: At) -> Range:
    """Return where a bio stands in a tree, with an event's range."""
    t: Range = cython.cast(Range, from_pool(m, cython.address(m.free_spots), size_of(Range)))
    number_range(m, t)
    t.bio = b
    t.sector = at.sector
    t.end = end_of(at)
    return t


def index_queue(m: Machine, b: Bio) -> None:
    d: Device = b.device
    if b.spot or b.queue.number < 0 or b.queue.dev != d.dev:
        return
    b.spot = new_spot(m, b, cython.address(b.queue))
    if b.queue.size == 0:
        d.empty = with_range(d.empty, b.spot)
    else:
        d.over = with_range(d.over, b.spot)


def index_piece(m: Machine, b: Bio) -> None:
    """Give a bio its place in its device's tree by pieces."""
    d: Device = b.device
    at: At = piece_of(b)
    if b.piece_spot:
        d.pieces = without_range(d.pieces, b.piece_spot)
        into_pool(cython.address(m.free_spots), cython.cast(Pooled, b.piece_spot))
        b.piece_spot = NULL
    if at:
        b.piece_spot = new_spot(m, b, at)
        d.pieces = with_range(d.pieces, b.piece_spot)


def piece_of(b: Bio) -> At:
    """Return the event that tells the range that goes to a bio's own request; NULL: none so far.

    A request's m has all that it had, and names one bio of it.
    """
    if b.request and b.request.merged.number >= 0 and b.request.merged_bio == b:
        return cython.address(b.request.merged)
    if b.joined.number >= 0:
        return cython.address(b.joined)
    if b.got.number >= 0:
        return cython.address(b.got)
    if b.start.number >= 0:
        return cython.address(b.start)
    if b.remap.number > max(b.queue.number, b.front.number):
        return cython.address(b.remap)
    if b.front.number >= 0:
        return cython.address(b.front)
    if b.queue.number >= 0:
        return cython.address(b.queue)
    return NULL


def index_device(m: Machine, d: Device) -> None:
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    d.is_indexed = True
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        index_queue(m, b)
        if b.request or b.joined.number >= 0:
            index_piece(m, b)


def unindex(m: Machine, b: Bio) -> None:
    """Take a bio out of its device's trees; few others left need none."""
    d: Device = b.device
    life: Life
    if b.spot:
        if b.queue.size == 0:
            d.empty = without_range(d.empty, b.spot)
        else:
            d.over = without_range(d.over, b.spot)
        into_pool(cython.address(m.free_spots), cython.cast(Pooled, b.spot))
        b.spot = NULL
    if b.piece_spot:
        d.pieces = without_range(d.pieces, b.piece_spot)
        into_pool(cython.address(m.free_spots), cython.cast(Pooled, b.piece_spot))
        b.piece_spot = NULL
    if d.is_indexed and d.bios < FEW:
        d.is_indexed = False
        life = cython.cast(Life, d.first_bio)
        while life:
            unindex(m, cython.cast(Bio, life))
            life = life.later


def bios_over(m: Machine, d: Device, sector: uint64, end: uint64) -> None:
    """Find a device's bios whose Q covers a range; for one of no bytes, those without bytes."""
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    m.asked = 0
    if d.bios > MANY and not d.is_indexed:
        index_device(m, d)
    if d.is_indexed:
        if sector == end:
            find_in(m, d.empty, 0, ANYWHERE, 0, ANYWHERE)
        else:
            find_in(m, d.over, 0, sector, end, ANYWHERE)
        return
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        if b.queue.number < 0 or b.queue.dev != d.dev:
            continue
        if sector == end:
            if b.queue.size == 0:
                add_asked(m, b)
        elif b.queue.sector <= sector and end_of(cython.address(b.queue)) >= end:
            if b.queue.size > 0:
                add_asked(m, b)


def pieces_in(m: Machine, d: Device, sector: uint64, end: uint64) -> None:
    """Find a device's bios whose piece shares a sector with a range, of those in a request."""
    life: Life = cython.cast(Life, d.first_bio)
    b: Bio
    at: At
    m.asked = 0
    if d.bios > MANY and not d.is_indexed:
        index_device(m, d)
    if d.is_indexed:
        if end > sector:  # not so of a request without data, whose sector is the last number
            find_in(m, d.pieces, 0, end - 1, sector + 1, ANYWHERE)
        return
    while life:
        b = cython.cast(Bio, life)
        life = life.later
        if not b.request and b.joined.number < 0:
            continue
        at = piece_of(b)
        if at and at.sector < end and end_of(at) > sector:
            add_asked(m, b)
