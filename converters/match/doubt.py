# SPDX-License-Identifier: Apache-2.0
"""Which bios and requests may have swapped their events, and so between which times each ended.

Where an event could be of several, any of them may be the one: from then on what happens to one of
them may have happened to another. They form an exchange, which ends when all of them have ended.
Until then each completion of one may be any one's: it ended between the first completion that could
be its own and the last one of the exchange. Bounds wider than a tenth of its latency say no more
than none, so nobody waits for them longer than that.
"""

import cython

from biotrail.converters.match.flights import add_found, add_fresh, oldest_first, several
from biotrail.converters.match.lives import *
from biotrail.converters.match.memory import allocate, entry_of
from biotrail.converters.match.numbers import *
from biotrail.converters.match.state import Machine

# --- Lists of flights: those that have one thing in common with others, in no order


def enter(first: cython.pointer(Flight), f: Flight, of: int64) -> None:
    f.before[of] = NULL
    f.next[of] = first[0]
    if first[0]:
        first[0].before[of] = f
    first[0] = f


def depart(first: cython.pointer(Flight), f: Flight, of: int64) -> None:
    if f.before[of]:
        f.before[of].next[of] = f.next[of]
    else:
        first[0] = f.next[of]
    if f.next[of]:
        f.next[of].before[of] = f.before[of]


# --- Exchanges


def current(x: Exchange) -> Exchange:
    while x.into:
        x = x.into
    return x


def of_flight(f: Flight) -> Exchange:
    x: Exchange = f.exchange
    if x and x.into:
        f.exchange = current(x)
        f.exchange.uses += 1
        drop_exchange(x)
    return f.exchange


def drop_exchange(x: Exchange) -> None:
    """One less refers to an exchange."""
    x.uses -= 1
    if x.uses == 0:
        if x.into:
            drop_exchange(x.into)
        give_up(x)
        free(x)


def join(f: Flight, x: Exchange) -> None:
    """Have a flight be one of an exchange, which is then one with that it was in before."""
    f.doubt = AMBIGUOUS
    if not f.exchange:
        f.exchange = x
        x.uses += 1
    else:
        one_exchange(of_flight(f), x)
    if not f.in_exchange:
        x = of_flight(f)
        f.in_exchange = True
        x.live += 1
        if f.first_end == FOREVER:
            enter(cython.address(x.first_fresh), f, FRESH)


def leave(f: Flight) -> None:
    """It has ended, or another one stands for it."""
    x: Exchange
    if not f.in_exchange:
        return
    x = of_flight(f)
    f.in_exchange = False
    x.live -= 1
    if f.first_end == FOREVER:
        depart(cython.address(x.first_fresh), f, FRESH)


def one_exchange(one: Exchange, other: Exchange) -> None:
    f: Flight
    one = current(one)
    other = current(other)
    if one == other:
        return
    if one.live < other.live:
        one, other = other, one
    other.into = one
    one.uses += 1
    one.live += other.live
    one.is_open = one.is_open or other.is_open
    while other.first_fresh:
        f = other.first_fresh
        depart(cython.address(other.first_fresh), f, FRESH)
        enter(cython.address(one.first_fresh), f, FRESH)
    if other.first_ended:
        if one.last_ended:
            one.last_ended.next_ended = other.first_ended
        else:
            one.first_ended = other.first_ended
        one.last_ended = other.last_ended
    other.first_ended = other.last_ended = NULL


def open_flight(f: Flight) -> None:
    """Have a flight be ambiguous where nothing bounds when the I/O ended."""
    if not f.exchange:
        join(f, cython.cast(Exchange, allocate(1, size_of(Exchange))))
    f.doubt = AMBIGUOUS
    of_flight(f).is_open = True


def open_since(m: Machine, start: int64) -> None:
    """Likewise of all on the pile from a place on."""
    at: int64
    stop: int64 = add_fresh(m, start, OPENED)
    for at in range(stop, m.found):
        open_flight(m.pile[at])
    m.found = stop


def open_event(m: Machine) -> None:
    m.doubt = AMBIGUOUS
    if not m.exchange:
        m.exchange = cython.cast(Exchange, allocate(1, size_of(Exchange)))
        m.exchange.uses = 1
    current(m.exchange).is_open = True


def inherit(f: Flight, doubt: int64, x: Exchange) -> None:
    f.doubt = max(f.doubt, doubt)
    if x:
        join(f, current(x))


def event_inherits(m: Machine, f: Flight) -> None:
    """Have the event be as doubtful as the flight that it is of."""
    m.doubt = max(m.doubt, f.doubt)
    if f.exchange:
        m.doubt = AMBIGUOUS
        if m.exchange:
            one_exchange(m.exchange, f.exchange)
        else:
            m.exchange = of_flight(f)
            m.exchange.uses += 1


def share(m: Machine, start: int64, is_open: bint) -> None:
    """Make one exchange of several candidates, which are on the pile from a place on.

    is_open: they differ in more than their beginning, so that the choice decides which completions
    there are.
    """
    x: Exchange = cython.cast(Exchange, allocate(1, size_of(Exchange)))
    at: int64
    x.uses = 1
    for at in range(start, m.found):
        join(m.pile[at], current(x))
    current(x).is_open = current(x).is_open or is_open
    drop_exchange(x)


def serve(r: Flight, b: Flight) -> None:
    """Have a request, or whole bio, stand for a bio: what ends that one ends it."""
    r.began = min(r.began, b.began)
    if b.first_end < r.first_end:  # a completion then may be this one's
        if r.in_exchange and r.first_end == FOREVER:
            depart(cython.address(of_flight(r).first_fresh), r, FRESH)
        r.first_end = b.first_end
    inherit(r, b.doubt, b.exchange)
    leave(b)
    if b.counts:
        b.counts = False
        if b.parent and b.parent.order == b.parent_order:
            b.parent.unserved -= 1


def end(m: Machine, f: Flight, last: bint) -> None:
    """The event, a completion, was given to a flight; last: it ended it, and not a part of it."""
    x: Exchange = of_flight(f)
    e: Ending
    if not x:
        return
    while x.first_fresh:
        x.first_fresh.first_end = m.ts
        x.first_fresh = x.first_fresh.next[FRESH]
    f.first_end = min(f.first_end, m.ts)
    e = cython.cast(Ending, allocate(1, size_of(Ending)))
    e.number = m.number
    e.first = min(f.first_end, m.ts)
    e.deadline = e.first + max(e.first - f.began, 0) // SHARE
    e.uses = 1
    m.ending = e
    while x.first_ended and x.first_ended.deadline < m.ts:
        drop_ended(x, UNBOUNDED, 0)
    e.uses += 1
    if x.last_ended:
        x.last_ended.next_ended = e
    else:
        x.first_ended = e
    x.last_ended = e
    if last:
        leave(f)
    if x.is_open:
        give_up(x)
    elif x.live == 0:
        while x.first_ended:
            drop_ended(x, KNOWN if m.ts <= x.first_ended.deadline else UNBOUNDED, m.ts)


def drop_ended(x: Exchange, state: int64, last: int64) -> None:
    """Say of the first completion of an exchange what is known of its I/O's end."""
    e: Ending = x.first_ended
    x.first_ended = e.next_ended
    if not x.first_ended:
        x.last_ended = NULL
    e.next_ended = NULL
    e.state = state
    e.last = last
    drop_use(e)


def drop_use(e: Ending) -> None:
    e.uses -= 1
    if e.uses == 0:
        free(e)


def give_up(x: Exchange) -> None:
    """Nothing bounds when those of an exchange ended."""
    while x.first_ended:
        drop_ended(x, UNBOUNDED, 0)


def lose(f: Flight) -> None:
    """It ended, and no completion was recorded."""
    if f.exchange:
        leave(f)
        of_flight(f).is_open = True
        give_up(of_flight(f))


# --- What a life's completions say


def add_ending(m: Machine, life: Life) -> None:
    """Note that the completion at hand of a life may be another one's."""
    e: Ending = m.ending
    if not e:
        e = cython.cast(Ending, allocate(1, size_of(Ending)))
        e.number = m.number
        e.state = UNBOUNDED
    e.uses += 1
    e.next = life.endings
    life.endings = e


def ending_of(life: Life, number: int64) -> Ending:
    """Return what is known of a completion of a life; NULL: it is certainly its own."""
    e: Ending = life.endings
    while e and e.number != number:
        e = e.next
    return e


# --- Tags


def drop_tag(f: Flight, of: int64) -> None:
    """Its tag counts as not recorded from now on."""
    g: Tags = f.tags[of]
    if g:
        g.owners -= 1
        depart(cython.address(g.first), f, of)
        f.tags[of] = NULL
        if g.owners == 0 and g.tags == 0:
            free(g)


def own_tag(g: Tags, f: Flight, of: int64) -> None:
    """Have a request be one of those that have some of these tags, and of no others."""
    drop_tag(f, of)
    g.owners += 1
    f.tags[of] = g
    enter(cython.address(g.first), f, of)


def leave_group(t: Tag) -> None:
    g: Tags = t.group
    if t.before:
        t.before.next = t.next
    else:
        g.first_tag = t.next
    if t.next:
        t.next.before = t.before
    g.tags -= 1
    t.group = NULL


def enter_group(g: Tags, t: Tag) -> None:
    t.group = g
    t.before = NULL
    t.next = g.first_tag
    if t.next:
        t.next.before = t
    g.first_tag = t
    g.tags += 1


def merge_tags(m: Machine, start: int64, of: int64) -> None:
    """Of requests on the pile, one had an event: which of them has which tag is not known then.

    Where the tag of one was not recorded, any of them may be its own: all count as not recorded.
    """
    g: Tags = NULL
    small: Tags
    t: Tag
    known: int64 = 0
    at: int64
    for at in range(start, m.found):
        small = m.pile[at].tags[of]
        if not small:
            continue
        known += 1
        if not g:
            g = small
        elif small != g:
            if small.owners > g.owners:
                small = g
                g = m.pile[at].tags[of]
            while small.first_tag:
                t = small.first_tag
                leave_group(t)
                enter_group(g, t)
            while small.owners > 1:
                own_tag(g, small.first, of)
            own_tag(g, small.first, of)  # with the last one the group is gone
    if g and known < m.found - start:
        while g.owners > 1:
            drop_tag(g.first, of)
        drop_tag(g.first, of)


def assign_tag(m: Machine, f: Flight, key: uint64, of: int64) -> int64:
    """Give a request a tag just seen; put requests that must have ended before on the pile.

    The kernel gives a tag again only after blk_mq_put_tag, so its earlier owner has ended, or was
    requeued, without an event. While one of the tags of several that could be confused is in use,
    any of them may have that. Return the place on the pile where they begin, the oldest first.
    """
    entry: Entry = entry_of(m, m.tags, cython.cast(uint64, m.dev) + 1, key)
    if not entry.what:
        entry.what = allocate(1, size_of(Tag))
    t: Tag = cython.cast(Tag, entry.what)
    g: Tags = t.group
    one: Flight
    start: int64 = m.found
    drop_tag(f, of)
    if g:
        leave_group(t)
        if g.tags == 0:
            while g.owners > 0:
                one = g.first
                if one.place == ISSUED or (one.place == HELD and of == LIFE_TAG):
                    add_found(m, one)
                g.tags = 1  # it stays while it is emptied
                drop_tag(one, of)
            free(g)
    g = cython.cast(Tags, allocate(1, size_of(Tags)))
    enter_group(g, t)
    own_tag(g, f, of)
    oldest_first(m, start)
    return start


def free_tags(m: Machine) -> None:
    at: int64
    t: Tag
    g: Tags
    if not m.tags:  # the machine was never complete
        return
    for at in range(m.tags.mask + 1):
        t = cython.cast(Tag, m.tags.entries[at].what)
        if t and t.group:
            g = t.group
            leave_group(t)
            if g.tags == 0:
                free(g)
        free(t)


# --- Flushes


def enter_flushes(g: Flushes, f: Flight) -> None:
    """Add one to those that share completions."""
    f.flushes = g
    g.live += 1
    enter(cython.address(g.first), f, SHARED_FLUSH)


def leave_flushes(f: Flight) -> None:
    g: Flushes = f.flushes
    f.flushes = NULL
    g.live -= 1
    depart(cython.address(g.first), f, SHARED_FLUSH)


def merge_flushes(m: Machine, start: int64) -> Flushes:
    """Return one group of the bios and requests on the pile, and of the groups that they are in."""
    g: Flushes = NULL
    small: Flushes
    one: Flight
    at: int64
    stop: int64 = add_fresh(m, start, PAIRED)
    for at in range(stop, m.found):
        small = m.pile[at].flushes
        if not small or small == g:
            continue
        if not g:
            g = small
            continue
        if small.live > g.live:
            small = g
            g = m.pile[at].flushes
        g.first_end = min(g.first_end, small.first_end)
        g.last_end = max(g.last_end, small.last_end)
        g.count += small.count
        g.unbounded = g.unbounded or small.unbounded
        while small.first:
            one = small.first
            leave_flushes(one)
            enter_flushes(g, one)
        free(small)
    if not g:
        g = cython.cast(Flushes, allocate(1, size_of(Flushes)))
        g.first_end = FOREVER
    for at in range(stop, m.found):
        if not m.pile[at].flushes:
            enter_flushes(g, m.pile[at])
    m.found = stop
    return g


def pair_flush(m: Machine, start: int64, others: bint) -> None:
    """The event ended the first of those on the pile, and could have ended each.

    When the last of a group has ended, its completions are counted, if each was certainly of one of
    it. others: this one may be another's.
    """
    g: Flushes
    apart: int64
    bits: int64 = 0
    if m.found == start:
        return
    if not several(m, start) and not m.pile[start].flushes:
        return
    g = merge_flushes(m, start)
    g.first_end = min(g.first_end, m.ts)
    g.last_end = max(g.last_end, m.ts)
    g.count += 1
    g.unbounded = g.unbounded or others
    if g.live == 1:
        if not g.unbounded:
            apart = g.last_end - g.first_end
            m.pair_count += g.count
            if apart == 0:
                m.pair_same += g.count
            m.pair_most = max(m.pair_most, apart)
            while apart >> bits:
                bits += 1
            m.pair_spans[bits] += g.count
    leave_flushes(m.pile[start])
    if g.live == 0:
        free(g)


def leave_all(f: Flight) -> None:
    """Take a flight out of all that it is in with others: it is over."""
    leave(f)
    if f.exchange:
        drop_exchange(f.exchange)
        f.exchange = NULL
    drop_tag(f, DRIVER_TAG)
    drop_tag(f, LIFE_TAG)
    g: Flushes = f.flushes
    if g:
        g.unbounded = True
        leave_flushes(f)
        if g.live == 0:
            free(g)
