# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `encoding`, for Cython: slices as packets, one after the other.

A packet's fields:

    0a LL | 40 dd dd | 50 ss ss | 5a LL | 48 01 | 18 cc | 50 nn | 22 LL 08 aa 18 vv vv | …
    Trace.packet  timestamp  sequence  event  type  category  name  annotation
"""

import cython

FOREVER = cython.declare(cython.longlong, 0x7FFFFFFFFFFFFFFF)


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
    out: cython.uchar[::1],
    at: cython.longlong,
    since: cython.ulonglong,
    sequence: cython.ulonglong,
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
):
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
