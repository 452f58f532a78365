# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Compiled by Cython: stages to their slices, lanes for slices, and all of these as packets."""

import cython

FOREVER = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


def rows_of(
    number: cython.const[cython.longlong][::1],
    owner: cython.const[cython.longlong][::1],
    rows: cython.longlong[::1],
) -> cython.longlong:
    """Fill `rows` with the row in `number` of each owner, or -1; return how many have one.

    -1: `number` or `owner` do not ascend, and `rows` is not to be used.
    """
    i: cython.longlong = 0
    j: cython.longlong
    n: cython.longlong = number.shape[0]
    found: cython.longlong = 0
    for j in range(1, n):
        if number[j] <= number[j - 1]:
            return -1
    for j in range(owner.shape[0]):
        if j and owner[j] < owner[j - 1]:
            return -1
        while i < n and number[i] < owner[j]:
            i += 1
        if i < n and number[i] == owner[j]:
            rows[j] = i
            found += 1
        else:
            rows[j] = -1
    return found


def widen(
    rows: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    first: cython.longlong[::1],
    last: cython.longlong[::1],
) -> cython.void:
    """Lower `first` and raise `last` of each stage's row (-1: none) to its start and end (ns)."""
    j: cython.longlong
    row: cython.longlong
    for j in range(rows.shape[0]):
        row = rows[j]
        if row < 0:
            continue
        first[row] = min(first[row], start[j])
        last[row] = max(last[row], end[j])


def lay(
    rows: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    stage: cython.const[cython.ushort][::1],
    begin: cython.const[cython.longlong][::1],
    stop: cython.const[cython.longlong][::1],
    count: cython.longlong[::1],
    names: cython.ushort[::1],
    starts: cython.longlong[::1],
    ends: cython.longlong[::1],
) -> cython.longlong:
    """Clip stages to their slices, keep those that last, and return how many these are.

    rows: per stage, ascending: its slice, or -1: it has none. start, end (ns), stage: per stage.
    begin, stop: per slice, ns. count: per slice, 0; gets the number of its stages. names, starts,
    ends: get what `stage`, `start` and `end` are of the stages that are kept.
    """
    j: cython.longlong
    row: cython.longlong
    kept: cython.longlong = 0
    one: cython.longlong
    other: cython.longlong
    for j in range(rows.shape[0]):
        row = rows[j]
        if row < 0:
            continue
        one = start[j] if start[j] > begin[row] else begin[row]
        other = end[j] if end[j] > one else one
        other = min(other, stop[row])
        if other > one:
            count[row] += 1
            names[kept] = stage[j]
            starts[kept] = one
            ends[kept] = other
            kept += 1
    return kept


def place_marks(
    row: cython.const[cython.longlong][::1],
    first: cython.const[cython.longlong][::1],
    count: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    at: cython.longlong[::1],
    place: cython.longlong[::1],
) -> cython.void:
    """Fill `place` with the stage before which each mark comes; move a mark to its stage's begin.

    row: per mark, its slice. first, count: per slice, its stages, of which start and end (ns) are
    in order of start. at: per mark, ns; changed where it is within a stage.
    """
    i: cython.longlong
    low: cython.longlong
    high: cython.longlong
    middle: cython.longlong
    begin: cython.longlong
    for i in range(row.shape[0]):
        begin = low = first[row[i]]
        high = low + count[row[i]]
        while low < high:
            middle = (low + high) // 2
            if start[middle] <= at[i]:
                low = middle + 1
            else:
                high = middle
        if low > begin and end[low - 1] > at[i]:
            at[i] = start[low - 1]
        while low > begin and start[low - 1] == at[i]:
            low -= 1
        place[i] = low


def lowest(
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    ends: cython.longlong[::1],
    lanes: cython.longlong,
    most: cython.longlong,
    chosen: cython.longlong[::1],
) -> cython.longlong:
    """Fill `chosen` with the lowest lane that is free at each start; return the number of lanes.

    -1: there are more than `most` lanes, so many that to look through them takes too long.

    start, end: ns, of slices in the order of `start`. ends: until when (ns) each lane is occupied,
    for `lanes` lanes, with room for one more for each slice; changed. A lane is free if its end is
    before the start.
    """
    i: cython.longlong
    lane: cython.longlong
    begins: cython.longlong
    for i in range(start.shape[0]):
        begins = start[i]
        lane = 0
        while lane < lanes and ends[lane] >= begins:
            lane += 1
        if lane == lanes:
            lanes += 1
            if lanes > most:
                return -1
        ends[lane] = end[i]
        chosen[i] = lane
    return lanes


def lowest_of_many(
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    tree: cython.longlong[::1],
    chosen: cython.longlong[::1],
) -> cython.bint:
    """Fill `chosen` as `lowest` does, by a tree of ends; return False if there are too few lanes.

    tree: 2n values, n a power of two: those from n on are each lane's end, and value i is the lower
    one of 2i and 2i + 1. Lanes that were never used have the lowest int64. It is changed.
    """
    i: cython.longlong
    node: cython.longlong
    low: cython.longlong
    leaves: cython.longlong = tree.shape[0] // 2
    for i in range(start.shape[0]):
        if tree[1] >= start[i]:
            return False
        node = 1
        while node < leaves:
            node *= 2
            if tree[node] >= start[i]:
                node += 1
        chosen[i] = node - leaves
        tree[node] = end[i]
        while node > 1:
            node //= 2
            low = tree[2 * node] if tree[2 * node] < tree[2 * node + 1] else tree[2 * node + 1]
            if tree[node] == low:
                break
            tree[node] = low
    return True


# A packet's fields:
#
#   0a LL | 40 dd dd | 50 ss ss | 5a LL | 48 01 | 18 cc | 50 nn | 22 LL 08 aa 18 vv vv | …
#   Trace.packet  timestamp  sequence  event  type  category  name  annotation


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def width(value: cython.ulonglong) -> cython.longlong:
    """Return how many bytes a value takes as a varint."""
    count: cython.longlong = 1
    while value > 0x7F:
        value >>= 7
        count += 1
    return count


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put(out: cython.uchar[::1], at: cython.longlong, value: cython.ulonglong) -> cython.longlong:
    """Write a varint at `at`; return the place behind it."""
    while value > 0x7F:
        out[at] = (value & 0x7F) | 0x80
        value >>= 7
        at += 1
    out[at] = value
    return at + 1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_flow(
    out: cython.uchar[::1], at: cython.longlong, value: cython.ulonglong
) -> cython.longlong:
    """Write TrackEvent.flow_ids, ten bytes; return the place behind it."""
    i: cython.longlong
    out[at] = 0xF9
    out[at + 1] = 0x02
    for i in range(8):
        out[at + 2 + i] = value & 0xFF
        value >>= 8
    return at + 10


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_head(
    out: cython.uchar[::1],
    at: cython.longlong,
    event: cython.longlong,
    since: cython.ulonglong,
    sequence: cython.ulonglong,
) -> cython.longlong:
    """Write a packet's begin up to its event's length; return the place behind it.

    event: bytes of the event. since: ns after the packet before. sequence: packet sequence id.
    """
    out[at] = 0x0A
    at = put(out, at + 1, 3 + width(since) + width(sequence) + width(event) + event)
    out[at] = 0x40
    at = put(out, at + 1, since)
    out[at] = 0x50
    at = put(out, at + 1, sequence)
    out[at] = 0x5A
    return put(out, at + 1, event)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_end(
    out: cython.uchar[::1], at: cython.longlong, since: cython.ulonglong, sequence: cython.ulonglong
) -> cython.longlong:
    """Write an END packet; return the place behind it. since, sequence: as in `put_head`."""
    at = put_head(out, at, 2, since, sequence)
    out[at] = 0x48
    out[at + 1] = 0x02
    return at + 2


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def put_begin(
    out: cython.uchar[::1], at: cython.longlong, category: cython.longlong, name: cython.ulonglong
) -> cython.longlong:
    """Write what an event of type BEGIN begins with; return the place behind it."""
    out[at] = 0x48
    out[at + 1] = 0x01
    out[at + 2] = 0x18
    out[at + 3] = category
    out[at + 4] = 0x50
    return put(out, at + 5, name)


def place_arguments(
    rows: cython.const[cython.longlong][::1],
    values: cython.const[cython.ulonglong][::1],
    argument: cython.longlong,
    cursor: cython.longlong[::1],
    arguments: cython.longlong[::1],
    placed: cython.ulonglong[::1],
) -> cython.void:
    """Put a column of arguments where its slices have them.

    rows: index of each argument's slice. values: the arguments'. argument: what is to be stored of
    each. cursor: per slice, where its next argument goes; changed. arguments, placed: filled.
    """
    i: cython.longlong
    at: cython.longlong
    for i in range(rows.shape[0]):
        at = cursor[rows[i]]
        cursor[rows[i]] = at + 1
        arguments[at] = argument
        placed[at] = values[i]


def encode(
    begin: cython.longlong,
    stop: cython.longlong,
    categories: cython.const[cython.longlong][::1],
    start: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    name: cython.const[cython.ulonglong][::1],
    stream: cython.const[cython.longlong][::1],
    sequences: cython.const[cython.ulonglong][::1],
    last: cython.longlong[::1],
    family: cython.const[cython.ulonglong][::1],
    in_family: cython.const[cython.uchar][::1],
    callstack: cython.const[cython.ulonglong][::1],
    arguments_end: cython.const[cython.longlong][::1],
    arguments: cython.const[cython.longlong][::1],
    values: cython.const[cython.ulonglong][::1],
    flow_first: cython.const[cython.longlong][::1],
    flow_count: cython.const[cython.longlong][::1],
    flow_id: cython.const[cython.ulonglong][::1],
    stage_first: cython.const[cython.longlong][::1],
    stage_count: cython.const[cython.longlong][::1],
    stage_name: cython.const[cython.ushort][::1],
    stage_start: cython.const[cython.longlong][::1],
    stage_end: cython.const[cython.longlong][::1],
    stage_flow: cython.const[cython.ulonglong][::1],
    out: cython.uchar[::1],
) -> cython.longlong:
    """Write the packets of slices `begin` to `stop` (exclusive) to `out`; return their bytes.

    categories: interned ids of the slices' category, of stages' and of marks'. start, end (ns;
    FOREVER: no END is written), name: per slice. stream: index of its lane in `sequences` (packet
    sequence ids) and `last` (ns of the last packet; changed). family, callstack: per slice,
    or empty: none has one; in_family: which have a family, or empty: all. arguments_end: per slice,
    where its arguments end in `arguments` (interned id of the name, and from bit 8 on the first
    byte of the value's tag: 0x88, of an interned string, is followed by 1) and `values`; they begin
    where those of the slice before end. flow_…: ids of flows, stage_…: stages, as in Flows
    and StageColumns; empty where no slice has any. out: has room.
    """
    at: cython.longlong = 0
    i: cython.longlong
    j: cython.longlong
    k: cython.longlong
    lane: cython.longlong
    size: cython.longlong
    event: cython.longlong
    now: cython.longlong
    begins: cython.longlong
    ends: cython.longlong
    first: cython.longlong
    sequence: cython.ulonglong
    value: cython.ulonglong
    families: cython.bint = family.shape[0] > 0
    masked: cython.bint = in_family.shape[0] > 0
    stacks: cython.bint = callstack.shape[0] > 0
    flows: cython.bint = flow_first.shape[0] > 0
    staged: cython.bint = stage_first.shape[0] > 0
    arrows: cython.bint = stage_flow.shape[0] > 0
    related: cython.bint
    for i in range(begin, stop):
        lane = stream[i]
        sequence = sequences[lane]
        now = start[i]
        first = arguments_end[i - 1] if i else 0
        related = families and (not masked or in_family[i] != 0)
        event = 5 + width(name[i])
        if related:
            event += 2 + width(family[i])
        if stacks and callstack[i] > 0:
            event += 2 + width(callstack[i])
        for j in range(first, arguments_end[i]):
            event += 5 + width(values[j]) + (arguments[j] >> 15)
        if flows:
            event += 10 * flow_count[i]
        at = put_head(out, at, event, now - last[lane], sequence)
        at = put_begin(out, at, categories[0], name[i])
        if related:
            out[at] = 0xA0
            out[at + 1] = 0x03
            at = put(out, at + 2, family[i])
        if stacks and callstack[i] > 0:
            out[at] = 0xC0
            out[at + 1] = 0x03
            at = put(out, at + 2, callstack[i])
        for j in range(first, arguments_end[i]):
            value = values[j]
            k = arguments[j] >> 8
            out[at] = 0x22
            out[at + 1] = 3 + width(value) + (k >> 7)
            out[at + 2] = 0x08
            out[at + 3] = arguments[j] & 0x7F
            out[at + 4] = k
            if k == 0x88:
                out[at + 5] = 0x01
                at += 1
            at = put(out, at + 5, value)
        if flows:
            for j in range(flow_first[i], flow_first[i] + flow_count[i]):
                at = put_flow(out, at, flow_id[j])
        if staged:
            for j in range(stage_first[i], stage_first[i] + stage_count[i]):
                begins = stage_start[j] if stage_start[j] > now else now
                ends = stage_end[j] if stage_end[j] > begins else begins
                size = 5 + width(stage_name[j])
                related = arrows and stage_flow[j] > 0
                at = put_head(out, at, size + 10 if related else size, begins - now, sequence)
                # What has a flow and no length is a mark, from which an arrow leads on.
                k = 2 if related and ends == begins else 1
                at = put_begin(out, at, categories[k], stage_name[j])
                if related:
                    at = put_flow(out, at, stage_flow[j])
                at = put_end(out, at, ends - begins, sequence)
                now = ends
        if end[i] != FOREVER:
            at = put_end(out, at, end[i] - now, sequence)
            now = end[i]
        last[lane] = now
    return at


def encode_ends(
    since: cython.const[cython.longlong][::1],
    sequence: cython.const[cython.ulonglong][::1],
    out: cython.uchar[::1],
) -> cython.longlong:
    """Write an END packet per row to `out`; return their bytes. since, sequence: as of `put_head`.

    out: has room.
    """
    at: cython.longlong = 0
    i: cython.longlong
    for i in range(since.shape[0]):
        at = put_end(out, at, since[i], sequence[i])
    return at


def encode_samples(
    since: cython.const[cython.longlong][::1],
    sequence: cython.ulonglong,
    values: cython.const[cython.ulonglong][::1],
    out: cython.uchar[::1],
) -> cython.longlong:
    """Write a counter's packets to `out`; return their bytes. since: as of `put_head`."""
    at: cython.longlong = 0
    i: cython.longlong
    for i in range(since.shape[0]):
        at = put_head(out, at, 4 + width(values[i]), since[i], sequence)
        out[at] = 0x48
        out[at + 1] = 0x04
        out[at + 2] = 0xF0
        out[at + 3] = 0x01
        at = put(out, at + 4, values[i])
    return at


def encode_block_io(
    times: cython.const[cython.longlong][::1],
    done: cython.const[cython.uchar][::1],
    device: cython.const[cython.ulonglong][::1],
    sector: cython.const[cython.ulonglong][::1],
    size: cython.const[cython.ulonglong][::1],
    out: cython.uchar[::1],
) -> cython.longlong:
    """Write FtraceEventBundle.event of requests to `out`; return their bytes.

    times: ns of BOOTTIME. done: whether it is block_io_done, else block_io_start. device: as
    new_encode_dev. size: bytes.
    """
    at: cython.longlong = 0
    i: cython.longlong
    inner: cython.longlong
    for i in range(times.shape[0]):
        inner = 4 + width(device[i]) + width(sector[i]) + width(size[i] >> 9) + width(size[i])
        out[at] = 0x12
        at = put(out, at + 1, 5 + width(times[i]) + width(inner) + inner)
        out[at] = 0x08
        at = put(out, at + 1, times[i])
        out[at] = 0x10  # pid 0
        out[at + 1] = 0
        out[at + 2] = 0x9A if done[i] else 0x92
        out[at + 3] = 0x22
        at = put(out, at + 4, inner)
        out[at] = 0x08
        at = put(out, at + 1, device[i])
        out[at] = 0x10
        at = put(out, at + 1, sector[i])
        out[at] = 0x18
        at = put(out, at + 1, size[i] >> 9)
        out[at] = 0x20
        at = put(out, at + 1, size[i])
    return at
