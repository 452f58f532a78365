# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `columns`, for Cython: records in the ring's layout to columns, and back.

Compiled by Cython where a compiler was there at installation; the same file runs uncompiled, for
tests. `columns` draws the layout, and packs by numpy where this is not compiled. While a
chunk is encoded other threads of Python run.
"""

import cython

COMPILED = cython.compiled
"""Whether this runs compiled; uncompiled it takes microseconds for a record."""

_TIME_MASK = cython.declare(cython.longlong, 0xFFFFFFFFFFFFFF)
_BLOCK_WORDS = cython.declare(cython.longlong, 512)
_PAD = cython.declare(cython.longlong, 255)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def top(kind: cython.longlong) -> cython.longlong:
    """Return a word with the kind in its top byte; negative from 128 on."""
    return (kind - ((kind & 128) << 1)) << 56


@cython.cfunc
@cython.inline
@cython.nogil
@cython.exceptval(check=False)
def words_at(
    kind: cython.longlong, size: cython.longlong, place: cython.longlong, left: cython.longlong
) -> cython.longlong:
    """Return the words of the record at `place` of a ring; 0: none has that many there.

    size: words of a record of its kind. left: words from there on.
    """
    room: cython.longlong = _BLOCK_WORDS - place % _BLOCK_WORDS
    if room > left:
        room = left
    if kind == _PAD:
        return room
    return size if size <= room else 0


def count_records(
    words: cython.const[cython.longlong][::1],
    position: cython.longlong,
    sizes: cython.const[cython.longlong][::1],
    counts: cython.longlong[::1],
) -> cython.longlong:
    """Count the records of each kind; return how many there are, or -1 if they do not fill `words`.

    words: of a ring, from `position` (in words) on. sizes: words of a record by kind, 0 unknown.
    counts: (256,), to which the counts are added.
    """
    total: cython.longlong = words.shape[0]
    at: cython.longlong = 0
    count: cython.longlong = 0
    kind: cython.longlong
    step: cython.longlong
    with cython.nogil:
        while at < total:
            kind = (words[at] >> 56) & 0xFF
            step = words_at(kind, sizes[kind], position + at, total - at)
            if step == 0:
                count = -1
                break
            counts[kind] += 1
            count += 1
            at += step
    return count


def find_records(
    words: cython.const[cython.longlong][::1],
    position: cython.longlong,
    sizes: cython.const[cython.longlong][::1],
    wanted: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
) -> cython.longlong:
    """Find the records of some kinds; return how many, or -1 if records do not fill `words`.

    words, position, sizes: as of `count_records`. wanted: (256,) by kind, 0 or 1. starts: gets the
    index of each one's first word; as long as there can be such records.
    """
    total: cython.longlong = words.shape[0]
    at: cython.longlong = 0
    found: cython.longlong = 0
    kind: cython.longlong
    step: cython.longlong
    while at < total:
        kind = (words[at] >> 56) & 0xFF
        step = words_at(kind, sizes[kind], position + at, total - at)
        if step == 0:
            return -1
        if wanted[kind]:
            starts[found] = at
            found += 1
        at += step
    return found


def fill_columns(
    words: cython.const[cython.longlong][::1],
    position: cython.longlong,
    sizes: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    places: cython.longlong[::1],
    state: cython.longlong[::1],
    columns: cython.longlong[::1],
    kinds: cython.uchar[::1],
    planes: cython.uchar[:, ::1],
    wanted: cython.const[cython.uchar][::1],
    starts: cython.longlong[::1],
) -> cython.longlong:
    """Write records that `count_records` counted as columns, behind those of earlier calls.

    counts: (256,) of all calls' records. places: (256,) where in `columns` the next record of each
    kind goes; changed. state: (3,) records so far, those with a time, and the last time; changed.
    kinds: (n,), planes: (7, n less PADs), the upper four of zeros. starts: gets the index of the
    first word of each record of a `wanted` kind, (256,) 0 or 1, not PAD; returns how many.
    """
    total: cython.longlong = words.shape[0]
    at: cython.longlong = 0
    record: cython.longlong = state[0]
    timed: cython.longlong = state[1]
    found: cython.longlong = 0
    kind: cython.longlong
    step: cython.longlong
    place: cython.longlong
    stride: cython.longlong
    word: cython.longlong
    time: cython.longlong
    before: cython.longlong = state[2]
    delta: cython.longlong
    with cython.nogil:
        while at < total:
            kind = (words[at] >> 56) & 0xFF
            time = words[at] & _TIME_MASK
            kinds[record] = kind
            record += 1
            place = places[kind]
            places[kind] = place + 1
            if kind == _PAD:
                step = words_at(kind, 0, position + at, total - at)
                columns[place] = time
                columns[place + counts[kind]] = step
                at += step
                continue
            if wanted[kind]:
                starts[found] = at
                found += 1
            step = sizes[kind]
            stride = counts[kind]  # kept here: a store to `columns` may change it, to the compiler
            for word in range(1, step):
                columns[place] = words[at + word]
                place += stride
            at += step
            delta = time - before
            before = time
            planes[0, timed] = delta & 0xFF
            planes[1, timed] = (delta >> 8) & 0xFF
            planes[2, timed] = (delta >> 16) & 0xFF
            delta >>= 24
            if delta != 0:  # seldom: records 17 ms apart, or not in the order of time
                for word in range(3, 7):
                    planes[word, timed] = delta & 0xFF
                    delta >>= 8
            timed += 1
    state[0] = record
    state[1] = timed
    state[2] = before
    return found


def fill_records(
    kinds: cython.const[cython.uchar][::1],
    widths: cython.const[cython.longlong][::1],
    counts: cython.const[cython.longlong][::1],
    places: cython.longlong[::1],
    columns: cython.const[cython.longlong][::1],
    planes: cython.const[cython.uchar][:, ::1],
    words: cython.longlong[::1],
    left: cython.longlong[::1],
) -> cython.longlong:
    """Write columns as records into `words`, which is zeroed; return the words used, or -1.

    -1: the columns do not fit together, or need more words. widths, counts: by kind, words of a
    record and number of records. places: by kind, where in `columns` its columns begin; changed,
    as is `left`, a copy of `counts`.
    """
    total: cython.longlong = words.shape[0]
    times: cython.longlong = planes.shape[1]
    at: cython.longlong = 0
    timed: cython.longlong = 0
    record: cython.longlong
    kind: cython.longlong
    place: cython.longlong
    word: cython.longlong
    step: cython.longlong
    time: cython.longlong = 0
    for record in range(kinds.shape[0]):
        kind = cython.cast(cython.longlong, kinds[record])
        if left[kind] == 0:
            return -1
        left[kind] -= 1
        place = places[kind]
        places[kind] = place + 1
        if kind == _PAD:
            step = columns[place + counts[kind]]
            if step <= 0 or step > _BLOCK_WORDS or step > total - at:
                return -1
            words[at] = (columns[place] & _TIME_MASK) | top(kind)
            at += step
            continue
        step = widths[kind]
        if timed >= times or step > total - at:
            return -1
        time += cython.cast(cython.longlong, planes[0, timed])
        time += cython.cast(cython.longlong, planes[1, timed]) << 8
        time += cython.cast(cython.longlong, planes[2, timed]) << 16
        time += cython.cast(cython.longlong, planes[3, timed]) << 24
        time += cython.cast(cython.longlong, planes[4, timed]) << 32
        time += cython.cast(cython.longlong, planes[5, timed]) << 40
        time += cython.cast(cython.longlong, planes[6, timed]) << 48
        time &= _TIME_MASK
        timed += 1
        words[at] = time | top(kind)
        for word in range(1, step):
            words[at + word] = columns[place]
            place += counts[kind]
        at += step
    for record in range(256):
        if left[record] != 0:
            return -1
    return at
