# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of blame, for Cython: others' work beside each I/O, and its time shared by that."""

import cython


def work_beside(
    up: cython.const[cython.longlong][::1],
    down: cython.const[cython.longlong][::1],
    issue: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    slot: cython.const[cython.longlong][::1],
    weight: cython.const[cython.longlong][::1],
    asked: cython.const[cython.longlong][::1],
    times: cython.const[cython.longlong][::1],
    queue: cython.longlong[:, ::1],
    device: cython.longlong[:, ::1],
    levels: cython.longlong[:, ::1],
) -> cython.void:
    """Add each slot's work to `queue` while a bio waits, to `device` while the device has it.

    That is the integral over the time of the weights of the requests that the device has then:
    from Q to D, and from D to C. Sums wrap, so that differences are right wherever they fit.

    up, down: rows of requests by `issue`, and by `end`; an end of the largest int64 never comes.
    slot, weight: by request. asked: 3 * bio + 0 (Q), 1 (D) or 2 (C), by time; times: (3n,), of
    these. levels: (slots, 3), of zeros: level, integral, time of the last change.
    """
    slots: cython.longlong = levels.shape[0]
    i: cython.longlong = 0
    j: cython.longlong = 0
    k: cython.longlong
    p: cython.longlong
    row: cython.longlong
    bio: cython.longlong
    now: cython.longlong
    at: cython.longlong
    change: cython.longlong
    ends: cython.bint
    found: cython.longlong
    which: cython.longlong
    for k in range(asked.shape[0]):
        now = times[asked[k]]
        while True:
            # The next request to begin or end by now; of equal times it begins first.
            ends = j < down.shape[0] and end[down[j]] <= now
            at = end[down[j]] if ends else now
            if i < up.shape[0] and issue[up[i]] <= at:
                row = up[i]
                at = issue[row]
                change = weight[row]
                i += 1
            elif ends:
                row = down[j]
                change = -weight[row]
                j += 1
            else:
                break
            p = slot[row]
            levels[p, 1] += levels[p, 0] * (at - levels[p, 2])
            levels[p, 2] = at
            levels[p, 0] += change
        bio = asked[k] // 3
        which = asked[k] - 3 * bio
        for p in range(slots):
            found = levels[p, 1] + levels[p, 0] * (now - levels[p, 2])
            if which == 0:
                queue[bio, p] -= found
            elif which == 1:
                queue[bio, p] += found
                device[bio, p] -= found
            else:
                device[bio, p] += found


def less_own(
    place: cython.const[cython.longlong][::1],
    slot: cython.const[cython.longlong][::1],
    weight: cython.const[cython.longlong][::1],
    issue: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    times: cython.const[cython.longlong][:, ::1],
    queue: cython.longlong[:, ::1],
    device: cython.longlong[:, ::1],
) -> cython.void:
    """Take the work of own requests, (n,), out of what stands beside their bios, in place.

    place: of each one's bio in `times`, (bios, 3): Q, D and C; in `queue` and in `device`.
    """
    i: cython.longlong
    bio: cython.longlong
    ns: cython.longlong
    for i in range(place.shape[0]):
        bio = place[i]
        ns = min(end[i], times[bio, 1]) - max(issue[i], times[bio, 0])
        if ns > 0:
            queue[bio, slot[i]] -= ns * weight[i]
        ns = min(end[i], times[bio, 2]) - max(issue[i], times[bio, 1])
        if ns > 0:
            device[bio, slot[i]] -= ns * weight[i]


def add_rows(
    place: cython.const[cython.longlong][::1],
    rows: cython.const[cython.longlong][:, ::1],
    sums: cython.longlong[:, ::1],
) -> cython.void:
    """Add each of the rows, (n, m), to the one of `sums` at its place, (n,)."""
    i: cython.longlong
    p: cython.longlong
    for i in range(place.shape[0]):
        for p in range(rows.shape[1]):
            sums[place[i], p] += rows[i, p]


def divide(
    amount: cython.const[cython.longlong][::1],
    vectors: cython.const[cython.longlong][:, ::1],
    shares: cython.longlong[:, ::1],
    left: cython.longlong[::1],
) -> cython.void:
    """Divide amounts, (n,), as their vectors, (n, m); what rounding leaves has the largest part.

    shares: (n, m), zeros. left: gets the amounts whose vectors say nothing, else 0: without a
    positive sum, or with parts that cancel each other to less than an eighth of the largest.
    """
    i: cython.longlong
    p: cython.longlong
    total: cython.longlong
    rest: cython.longlong
    one: cython.longlong
    most: cython.longlong
    least: cython.longlong
    factor: cython.double
    for i in range(amount.shape[0]):
        total = 0
        most = 0
        least = 0
        for p in range(vectors.shape[1]):
            total += vectors[i, p]
            if vectors[i, p] > vectors[i, most]:
                most = p
            least = min(least, vectors[i, p])
        if total <= 0 or amount[i] <= 0 or max(vectors[i, most], -least) // 8 > total:
            left[i] = amount[i]
            continue
        factor = cython.cast(cython.double, amount[i]) / total
        rest = amount[i]
        for p in range(vectors.shape[1]):
            if vectors[i, p] != 0:
                one = cython.cast(cython.longlong, vectors[i, p] * factor)
                shares[i, p] = one
                rest -= one
        shares[i, most] += rest


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def share(
    part: cython.longlong,
    base: cython.longlong,
    calm: cython.longlong,
    tell: cython.longlong,
    bio: cython.longlong,
    mine: cython.longlong,
    work: cython.longlong[:, ::1],
    own: cython.const[cython.uchar][:, ::1],
    cells: cython.longlong[:, ::1],
    factors: cython.double[:, :, ::1],
    pair: cython.longlong,
    of_part: cython.longlong,
) -> cython.void:
    """Share one part of a bio's time (queue or device) among the cells of its row.

    cells: (n, slots + 3): I/O of each slot, own service, device alone, unknown. factors: (pairs,
    slots, 4): sums of `part` times share, and of shares, of queue and device.
    """
    slots: cython.longlong = work.shape[1]
    p: cython.longlong
    most: cython.longlong = -1
    total: cython.double = 0
    fraction: cython.double
    one: cython.longlong
    excess: cython.longlong
    left: cython.longlong
    for p in range(slots):
        if work[bio, p] > 0:
            total += work[bio, p]
            if most < 0 or work[bio, p] > work[bio, most]:
                most = p
    if most < 0:
        one = part
        if part > calm:
            one = base
        cells[bio, slots] += one
        cells[bio, slots + 1] += part - one
        return
    excess = part - base
    cells[bio, slots] += base
    left = excess
    for p in range(slots):
        if work[bio, p] > 0 and p != most:
            fraction = work[bio, p] / total
            one = cython.cast(cython.longlong, excess * fraction)
            left -= one
            if tell == 0 and own[mine, p] == 0:
                cells[bio, slots + 2] += one
            else:
                cells[bio, p] += one
                if pair >= 0:
                    factors[pair, p, of_part] += part * fraction
                    factors[pair, p, of_part + 1] += fraction
    if tell == 0 and own[mine, most] == 0:
        cells[bio, slots + 2] += left
    else:
        cells[bio, most] += left
        if pair >= 0:
            fraction = work[bio, most] / total
            factors[pair, most, of_part] += part * fraction
            factors[pair, most, of_part + 1] += fraction


def share_all(
    queued: cython.const[cython.longlong][::1],
    served: cython.const[cython.longlong][::1],
    queue_base: cython.const[cython.longlong][::1],
    device_base: cython.const[cython.longlong][::1],
    tell: cython.const[cython.longlong][::1],
    victim: cython.const[cython.longlong][::1],
    pair: cython.const[cython.longlong][::1],
    bucket: cython.const[cython.longlong][::1],
    queue: cython.longlong[:, ::1],
    device: cython.longlong[:, ::1],
    own: cython.const[cython.uchar][:, ::1],
    cells: cython.longlong[:, ::1],
    factors: cython.double[:, :, ::1],
    sums: cython.longlong[:, ::1],
    free: cython.longlong[:, :, ::1],
    times_calm: cython.longlong,
) -> cython.void:
    """Share the time of bios, (n,), before D and after it, by others' work beside them.

    queued, served: ns from Q to D, from D to C. queue_base, device_base: of each bio's class. tell:
    0 where others' part cannot be told. pair: row of `factors`; -1: none. bucket: of Q2C. queue,
    device: (n, slots), the work. own: (victims, slots), 1: the slot is the victim's own I/O. cells:
    zeros. sums: (victims, slots + 3), gets the cells' sums. free: (victims, slots + 1, buckets),
    counts Q2C of bios without work of the slot, and at last of all. times_calm: a bio alone that
    takes more than so many times its base has the rest from the device.
    """
    i: cython.longlong
    p: cython.longlong
    for i in range(queued.shape[0]):
        share(
            queued[i], queue_base[i], times_calm * queue_base[i], tell[i], i, victim[i],
            queue, own, cells, factors, pair[i], 0,
        )  # fmt: skip
        share(
            served[i], device_base[i], times_calm * device_base[i], tell[i], i, victim[i],
            device, own, cells, factors, pair[i], 2,
        )  # fmt: skip
        for p in range(queue.shape[1]):
            if queue[i, p] <= 0 and device[i, p] <= 0:
                free[victim[i], p, bucket[i]] += 1
        free[victim[i], queue.shape[1], bucket[i]] += 1
        for p in range(cells.shape[1]):
            sums[victim[i], p] += cells[i, p]
