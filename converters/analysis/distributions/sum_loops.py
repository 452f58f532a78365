# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of sums over I/Os, for Cython: values counted, depths followed."""

import cython

_SHIFT = cython.declare(cython.longlong, 45)
"""`sketch._SHIFT`; the next ones are its `_ZERO`, and the bits of a float64's mantissa."""
_ZERO = cython.declare(cython.longlong, 130943)
_MANTISSA = cython.declare(cython.longlong, 52)
_BIAS = cython.declare(cython.longlong, 1023)
_LAST = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


def sum_of(
    place: cython.const[cython.longlong][::1],
    values: cython.const[cython.longlong][::1],
    sums: cython.longlong[::1],
) -> cython.void:
    """Add each value to the sum of its place."""
    row: cython.longlong
    for row in range(values.shape[0]):
        sums[place[row]] += values[row]


def count_values(
    place: cython.const[cython.longlong][::1],
    values: cython.const[cython.longlong][::1],
    bits: cython.const[cython.longlong][::1],
    figures: cython.longlong[:, ::1],
    counts: cython.longlong[:, ::1],
    negative: cython.longlong,
) -> cython.void:
    """Count values of their places by bucket; negative ones count as 0 if `negative`, else not.

    bits: the values as float64. figures: (places, 4), gets number, sum, least (from _LAST) and
    greatest (from 0). counts: (places, buckets).
    """
    row: cython.longlong
    at: cython.longlong
    value: cython.longlong
    bucket: cython.longlong
    for row in range(values.shape[0]):
        value = values[row]
        if value < 0:
            if negative == 0:
                continue
            value = 0
        bucket = (bits[row] >> _SHIFT) - _ZERO
        bucket = max(bucket, 0)
        at = place[row]
        figures[at, 0] += 1
        figures[at, 1] += value
        figures[at, 2] = min(figures[at, 2], value)
        figures[at, 3] = max(figures[at, 3], value)
        counts[at, bucket] += 1


def owners(
    numbers: cython.const[cython.longlong][::1],
    owner: cython.const[cython.longlong][::1],
    rows: cython.longlong[::1],
) -> cython.longlong:
    """Fill `rows` with the row in `numbers` of each owner; return how many were found so.

    numbers: ascending. Ends at the first owner that is not found, or below the one before.
    """
    total: cython.longlong = numbers.shape[0]
    row: cython.longlong = 0
    i: cython.longlong
    for i in range(owner.shape[0]):
        while row < total and numbers[row] < owner[i]:
            row += 1
        if row == total or numbers[row] != owner[i]:
            return i
        rows[i] = row
    return owner.shape[0]


def sum_octaves(
    place: cython.const[cython.longlong][::1],
    latency: cython.const[cython.longlong][::1],
    bits: cython.const[cython.longlong][::1],
    beside: cython.const[cython.longlong][::1],
    sums: cython.longlong[:, :, ::1],
    octaves: cython.longlong[::1],
) -> cython.void:
    """Add I/Os to sums by place and octave of latency; rows without place or latency are left out.

    place: -1 for none. latency, beside: -1 for not known. bits: the latency, at least 1, as
    float64. sums: (places, octaves, 4): number, ns, number with `beside` known, bytes beside.
    octaves: (n,) gets `place * octaves + octave` or -1.
    """
    row: cython.longlong
    at: cython.longlong
    octave: cython.longlong
    for row in range(place.shape[0]):
        at = place[row]
        octaves[row] = -1
        if at < 0 or latency[row] < 0:
            continue
        octave = (bits[row] >> _MANTISSA) - _BIAS
        octaves[row] = at * sums.shape[1] + octave
        sums[at, octave, 0] += 1
        sums[at, octave, 1] += latency[row]
        if beside[row] >= 0:
            sums[at, octave, 2] += 1
            sums[at, octave, 3] += beside[row]


def sum_stages(
    octaves: cython.const[cython.longlong][::1],
    owner: cython.const[cython.longlong][::1],
    stage: cython.const[cython.uchar][::1],
    ns: cython.const[cython.longlong][::1],
    sums: cython.longlong[:, ::1],
) -> cython.void:
    """Add stages' times to sums by octave and stage. octaves: by owner; -1: left out."""
    row: cython.longlong
    at: cython.longlong
    for row in range(owner.shape[0]):
        at = octaves[owner[row]]
        if at >= 0:
            sums[at, stage[row]] += ns[row]


def beside(
    queue: cython.const[cython.longlong][::1],
    place: cython.const[cython.longlong][::1],
    size: cython.const[cython.longlong][::1],
    queued: cython.const[cython.longlong][::1],
    ended: cython.const[cython.longlong][::1],
    ends: cython.const[cython.longlong][::1],
    device: cython.const[cython.longlong][::1],
    flight: cython.longlong[::1],
    devices: cython.longlong[::1],
    found: cython.longlong[::1],
) -> cython.void:
    """Fill `found` with the bytes of other operations in flight on each bio's device at its Q.

    queue: ns of Q. place: number of the bio's device and operation; device: number of the device
    of each place. size: bytes. queued: rows that count, by Q; ended: such rows by their end, whose
    times are `ends`. flight, devices: zeros, by place and by device.
    """
    done: cython.longlong = 0
    i: cython.longlong = 0
    last: cython.longlong = queued.shape[0]
    j: cython.longlong
    row: cython.longlong
    at: cython.longlong
    now: cython.longlong
    while i < last:
        now = queue[queued[i]]
        j = i
        # All that begin at this time are in flight, then those that end now are not.
        while j < last and queue[queued[j]] == now:
            row = queued[j]
            at = place[row]
            flight[at] += size[row]
            devices[device[at]] += size[row]
            j += 1
        while done < last and ends[done] <= now:
            row = ended[done]
            at = place[row]
            flight[at] -= size[row]
            devices[device[at]] -= size[row]
            done += 1
        while i < j:
            row = queued[i]
            at = place[row]
            found[row] = devices[device[at]] - flight[at]
            i += 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def stretch(
    sums: cython.longlong[:, ::1],
    at: cython.longlong,
    level: cython.longlong,
    ns: cython.longlong,
) -> cython.void:
    """Add a stretch of constant depth to sums: ns, depth times ns, ns above 0, greatest depth."""
    level = max(level, 0)
    sums[at, 0] += ns
    sums[at, 1] += level * ns
    if level > 0:
        sums[at, 2] += ns
    sums[at, 3] = max(sums[at, 3], level)


def depth(
    begin: cython.longlong,
    end: cython.longlong,
    level: cython.longlong,
    up: cython.const[cython.longlong][::1],
    down: cython.const[cython.longlong][::1],
    edges: cython.const[cython.longlong][::1],
    sums: cython.longlong[:, ::1],
    met: cython.longlong[::1],
) -> cython.longlong:
    """Follow the depth from `begin` to `end` (ns); return it at the end.

    level: depth before. up, down: ns of beginnings and ends, ascending; any before `begin` count at
    it. edges:
    where the next row of `sums` begins: ascending, after `begin`, one less than rows. sums: (rows,
    4), as `stretch`; greatest depth from -1. met: (ups,), gets the depth before each beginning. The
    time goes on to the last beginning or end, where that is later than `end`.
    """
    i: cython.longlong = 0
    j: cython.longlong = 0
    part: cython.longlong = 0
    at: cython.longlong = begin
    now: cython.longlong
    stretch(sums, 0, level, 0)
    while i < up.shape[0] or j < down.shape[0]:
        # An I/O that ends when another one begins is not in flight any more.
        if j < down.shape[0] and (i == up.shape[0] or down[j] <= up[i]):
            now = down[j]
        else:
            now = up[i]
        while part < edges.shape[0] and edges[part] <= now:
            stretch(sums, part, level, edges[part] - at)
            at = edges[part]
            part += 1
            if at < now:
                stretch(sums, part, level, 0)
        if now > at:
            stretch(sums, part, level, now - at)
            at = now
        if j < down.shape[0] and down[j] == now and (i == up.shape[0] or now <= up[i]):
            level -= 1
            j += 1
        else:
            met[i] = level
            level += 1
            i += 1
        stretch(sums, part, level, 0)
    while part < edges.shape[0]:
        stretch(sums, part, level, edges[part] - at)
        at = edges[part]
        part += 1
        stretch(sums, part, level, 0)
    if end > at:
        stretch(sums, part, level, end - at)
    return level
