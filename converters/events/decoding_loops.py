# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `decoding`, for Cython: a chunk's records found, and brought into order of time."""

import cython

_TIME_MASK = cython.declare(cython.longlong, 0xFFFFFFFFFFFFFF)
_HALF = cython.declare(cython.longlong, 0x80000000000000)
_WHOLE = cython.declare(cython.longlong, 0x100000000000000)
_BLOCK_WORDS = cython.declare(cython.longlong, 512)
_PAD = cython.declare(cython.longlong, 255)
_G = cython.declare(cython.longlong, 2)
_RQ_MERGE = cython.declare(cython.longlong, 11)
_LAST = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


def find_records(
    words: cython.const[cython.longlong][::1],
    position: cython.longlong,
    sizes: cython.const[cython.longlong][::1],
    known: cython.const[cython.uchar][::1],
    now: cython.longlong,
    at_word: cython.longlong,
    found: cython.longlong[::1],
    times: cython.longlong[::1],
    count: cython.longlong,
    unknown: cython.longlong[::1],
) -> tuple[cython.longlong, cython.longlong]:
    """Find a segment's records; return (how many in all, words that are no record of the schema).

    words: of the ring, from `position` (in words) on. sizes: by kind, 0 for none and PAD. known:
    by kind, whether to take it; others are counted in `unknown` by kind. now: CLOCK_MONOTONIC (ns)
    to which the 56-bit times are nearest. at_word: what is added to a record's index. found: index
    of each record's first word; times: ns; both are filled from `count` on.
    """
    total: cython.longlong = words.shape[0]
    at: cython.longlong = 0
    end: cython.longlong
    kind: cython.longlong
    size: cython.longlong
    low: cython.longlong = now & _TIME_MASK
    distance: cython.longlong
    unread: cython.longlong = 0
    while at < total:
        end = at + _BLOCK_WORDS - (position + at) % _BLOCK_WORDS
        if end > total:
            end = total
        while at < end:
            kind = (words[at] >> 56) & 0xFF
            size = sizes[kind]
            if size == 0 or at + size > end:
                if kind != _PAD:
                    unread += end - at
                break
            if known[kind]:
                distance = ((words[at] & _TIME_MASK) - low) & _TIME_MASK
                if distance >= _HALF:
                    distance -= _WHOLE
                found[count] = at_word + at
                times[count] = now + distance
                count += 1
            else:
                unknown[kind] += 1
            at += size
        at = end
    return count, unread


def is_sorted(times: cython.const[cython.longlong][::1]) -> cython.int:
    """Return whether times do not descend."""
    i: cython.longlong
    for i in range(1, times.shape[0]):
        if times[i] < times[i - 1]:
            return False
    return True


def merge(
    times: cython.const[cython.longlong][::1],
    starts: cython.longlong[::1],
    ends: cython.const[cython.longlong][::1],
    order: cython.longlong[::1],
) -> cython.void:
    """Fill `order` with the rows by (time, run). Each run [start, end) is sorted; starts change.

    As long as a run is before all others its rows are taken without a look at these.
    """
    runs: cython.longlong = starts.shape[0]
    out: cython.longlong = 0
    run: cython.longlong
    best: cython.longlong
    row: cython.longlong
    least: cython.longlong
    bound: cython.longlong
    after: cython.longlong
    while True:
        best = -1
        least = 0
        bound = _LAST
        after = runs
        for run in range(runs):
            if starts[run] < ends[run]:
                if best < 0 or times[starts[run]] < least:
                    if best >= 0:
                        bound = least
                        after = best
                    best = run
                    least = times[starts[run]]
                elif times[starts[run]] < bound:
                    bound = times[starts[run]]
                    after = run
        if best < 0:
            return
        row = starts[best]
        while row < ends[best] and (times[row] < bound or (times[row] == bound and best < after)):
            order[out] = row
            out += 1
            row += 1
        if row == starts[best]:  # equal to the end of time
            order[out] = row
            out += 1
            row += 1
        starts[best] = row


def sort(
    found: cython.const[cython.longlong][::1],
    order: cython.const[cython.longlong][::1],
    cpus: cython.const[cython.ushort][::1],
    times: cython.const[cython.longlong][::1],
    found_out: cython.longlong[::1],
    cpu_out: cython.ushort[::1],
    time_out: cython.longlong[::1],
) -> cython.void:
    """Bring what is known of each record into `order`."""
    i: cython.longlong
    row: cython.longlong
    for i in range(order.shape[0]):
        row = order[i]
        found_out[i] = found[row]
        cpu_out[i] = cpus[row]
        time_out[i] = times[row]


def gather(
    words: cython.const[cython.longlong][::1],
    found: cython.const[cython.longlong][::1],
    raw: cython.longlong[:, ::1],
    first: cython.longlong,
) -> cython.void:
    """Copy the records at the words `found` into columns, eight words each, from row `first` on.

    words: with seven more behind the last record.
    """
    record: cython.longlong
    i: cython.longlong
    at: cython.longlong
    kind: cython.longlong
    for record in range(found.shape[0]):
        at = found[record]
        i = first + record
        kind = (words[at] >> 56) & 0xFF
        raw[0, i] = words[at]
        raw[1, i] = words[at + 1]
        raw[2, i] = words[at + 2]
        raw[3, i] = words[at + 3]
        raw[4, i] = words[at + 4]
        # Events.rq and RQ_MERGE read these words, which lie past the record: what is there belongs
        # to the next record. Interval association fills them in.
        raw[5, i] = 0 if kind == _G else words[at + 5]
        raw[6, i] = 0 if kind == _RQ_MERGE else words[at + 6]
        raw[7, i] = words[at + 7]
