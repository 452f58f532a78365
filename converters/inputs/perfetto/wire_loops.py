# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Loops over protobuf's wire format (protobuf.dev, "Encoding"), for Cython.

A message is a range of bytes. No loop reads beyond its range, whatever lengths stand in it.
"""

import cython

_VARINT = cython.declare(cython.longlong, 0)
_FIXED64 = cython.declare(cython.longlong, 1)
_BYTES = cython.declare(cython.longlong, 2)
_FIXED32 = cython.declare(cython.longlong, 5)
_NUMBER = cython.declare(cython.longlong, -2)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _varint(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    out: cython.longlong[::1],
) -> cython.longlong:
    """Read a varint at `at` into out[0], as a signed 64-bit number; return where it ends, or -1."""
    value: cython.ulonglong = 0
    shift: cython.int = 0
    byte: cython.ulonglong
    if at < end and data[at] < 0x80:
        out[0] = data[at]
        return at + 1
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        if shift < 64:
            value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            out[0] = _signed(value)
            return at
    return -1


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _signed(value: cython.ulonglong) -> cython.longlong:
    """Return the 64 bits as a signed number."""
    if cython.compiled:
        return cython.cast(cython.longlong, value)
    low = int(value) & 0xFFFFFFFFFFFFFFFF
    return low - (1 << 64) if low >> 63 else low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _fixed(
    data: cython.const[cython.uchar][::1], at: cython.longlong, size: cython.longlong
) -> cython.longlong:
    """Return the little-endian number of `size` bytes at `at`, signed at 64 bits."""
    value: cython.ulonglong = 0
    byte: cython.ulonglong
    i: cython.longlong
    for i in range(size):
        byte = data[at + i]
        value |= byte << (8 * i)
    return _signed(value)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _field(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    out: cython.longlong[::1],
) -> cython.longlong:
    """Read the field at `at`; return where it ends, or -1 if it is none, or ends behind `end`.

    out: [0] is scratch; [1] the field's number; [2] its value, of bytes the position; [3] the
    length of bytes, -2 of a number. Of bytes that end behind `end`, all four are set.
    """
    tag: cython.longlong
    if at < end and data[at] < 0x80:  # as most are; the same as below
        tag = data[at]
        at += 1
    else:
        at = _varint(data, at, end, out)
        if at < 0:
            return -1
        tag = out[0]
    kind: cython.longlong = tag & 7
    out[1] = (tag >> 3) & 0x1FFFFFFFFFFFFFFF
    out[3] = _NUMBER
    if out[1] == 0:
        return -1
    if kind == _VARINT:
        at = _varint(data, at, end, out)
        out[2] = out[0]
        return at
    if kind == _BYTES:
        at = _varint(data, at, end, out)
        if at < 0:
            return -1
        out[2] = at
        out[3] = out[0]
        if out[0] < 0 or out[0] > end - at:
            return -1
        return at + out[0]
    size: cython.longlong = 8 if kind == _FIXED64 else 4 if kind == _FIXED32 else 0
    if size == 0 or at + size > end:
        return -1
    out[2] = _fixed(data, at, size)
    return at + size


def whole_fields(
    data: cython.const[cython.uchar][::1],
    number: cython.longlong,
    begin: cython.longlong[::1],
    end: cython.longlong[::1],
    scratch: cython.longlong[::1],
) -> tuple[cython.longlong, cython.longlong]:
    """Find the fields `number` of bytes in one message that may be cut off at its end.

    Return (how many, where the last whole field of any number ends). begin, end: of each found
    field's bytes; no more are found than these hold. scratch: (4,); after a field that is not
    whole it has what `_field` says, so its length can be known.
    """
    at: cython.longlong = 0
    total: cython.longlong = data.shape[0]
    count: cython.longlong = 0
    after: cython.longlong
    while at < total and count < begin.shape[0]:
        scratch[1] = 0
        scratch[3] = _NUMBER
        after = _field(data, at, total, scratch)
        if after < 0:
            break
        if scratch[1] == number and scratch[3] >= 0:
            begin[count] = scratch[2]
            end[count] = after
            count += 1
        at = after
    return count, at


def repeated_fields(
    data: cython.const[cython.uchar][::1],
    begin: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    number: cython.longlong,
    owner: cython.longlong[::1],
    first: cython.longlong[::1],
    last: cython.longlong[::1],
    scratch: cython.longlong[::1],
) -> cython.longlong:
    """Find every field `number` of bytes of each message begin[i] to end[i]; return how many.

    owner: i of each; first, last: its bytes; there is room for all. scratch: (4,).
    """
    count: cython.longlong = 0
    i: cython.longlong
    at: cython.longlong
    for i in range(begin.shape[0]):
        at = begin[i]
        while at < end[i]:
            at = _field(data, at, end[i], scratch)
            if at < 0:
                break
            if scratch[1] == number and scratch[3] >= 0:
                owner[count] = i
                first[count] = scratch[2]
                last[count] = at
                count += 1
    return count


def single_fields(
    data: cython.const[cython.uchar][::1],
    begin: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    slots: cython.const[cython.longlong][::1],
    value: cython.longlong[:, ::1],
    length: cython.longlong[:, ::1],
    scratch: cython.longlong[::1],
) -> cython.longlong:
    """Read chosen fields of each message begin[i] to end[i]; return how many messages are broken.

    slots: by field number, the field's row in `value` and `length`, or -1. value, length: as of
    `_field`, the last of a field that occurs again; length -1 where it does not occur.
    scratch: (4,).
    """
    broken: cython.longlong = 0
    i: cython.longlong
    at: cython.longlong
    slot: cython.longlong
    for i in range(begin.shape[0]):
        for slot in range(length.shape[0]):
            length[slot, i] = -1
            value[slot, i] = 0
        at = begin[i]
        while at < end[i]:
            at = _field(data, at, end[i], scratch)
            if at < 0:
                broken += 1
                break
            if scratch[1] < slots.shape[0]:
                slot = slots[scratch[1]]
                if slot >= 0:
                    value[slot, i] = scratch[2]
                    length[slot, i] = scratch[3]
    return broken


def ftrace_events(
    data: cython.const[cython.uchar][::1],
    begin: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    heads: cython.longlong[:, ::1],
    scratch: cython.longlong[::1],
) -> cython.void:
    """Read the head of each FtraceEvent begin[i] to end[i].

    heads: (5, n): time (ns; -1 without one), pid (the thread's), number of the event's own message
    (0 without one, or where it is broken), and where that begins and ends. scratch: (4,).
    """
    i: cython.longlong
    at: cython.longlong
    for i in range(begin.shape[0]):
        heads[0, i] = -1
        heads[1, i] = 0
        heads[2, i] = 0
        heads[3, i] = 0
        heads[4, i] = 0
        at = begin[i]
        while at < end[i]:
            at = _field(data, at, end[i], scratch)
            if at < 0:
                heads[2, i] = 0
                break
            if scratch[1] == 1:
                heads[0, i] = scratch[2]
            elif scratch[1] == 2:
                heads[1, i] = scratch[2] & 0xFFFFFFFF
            elif scratch[3] >= 0:
                heads[2, i] = scratch[1]
                heads[3, i] = scratch[2]
                heads[4, i] = at


@cython.cfunc
@cython.exceptval(check=False)
def _event_time(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    scratch: cython.longlong[::1],
) -> cython.longlong:
    """Return the time (ns) of what has the form of an FtraceEvent; -1 of anything else.

    That is a time, a thread, and the event's own message.
    """
    time: cython.longlong
    at = _field(data, at, end, scratch)
    if at < 0 or scratch[1] != 1 or scratch[3] != _NUMBER or scratch[2] < 0:
        return -1
    time = scratch[2]
    at = _field(data, at, end, scratch)
    if at < 0 or scratch[1] != 2 or scratch[3] != _NUMBER:
        return -1
    at = _field(data, at, end, scratch)
    return time if at == end and scratch[3] >= 0 else -1


@cython.cfunc
@cython.exceptval(check=False)
def _is_bundle(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    span: cython.longlong[::1],
    scratch: cython.longlong[::1],
) -> cython.bint:
    """Return whether bytes have the form of an FtraceEventBundle with events; widen `span`."""
    cpus: cython.longlong = 0
    first: cython.longlong = -1
    last: cython.longlong = -1
    time: cython.longlong
    begin: cython.longlong
    while at < end:
        at = _field(data, at, end, scratch)
        if at < 0 or scratch[1] > 64:
            return False
        if scratch[1] == 1:
            cpus += 1
            if scratch[3] != _NUMBER:
                return False
        elif scratch[1] == 2:
            if scratch[3] < 0:
                return False
            begin = scratch[2]
            time = _event_time(data, begin, at, scratch)
            if time < 0:
                return False
            if first < 0:
                first = time
            last = time
    if cpus != 1 or first < 0:
        return False
    if first < span[0]:
        span[0] = first
    if last > span[1]:
        span[1] = last
    return True


def misplaced_bundles(
    data: cython.const[cython.uchar][::1],
    begin: cython.const[cython.longlong][::1],
    end: cython.const[cython.longlong][::1],
    number: cython.longlong,
    span: cython.longlong[::1],
    scratch: cython.longlong[::1],
) -> cython.longlong:
    """Return how many fields but `number`, of each message begin[i] to end[i], are such bundles.

    span: (2,), the first and last time of their events, is widened. scratch: (4,).
    """
    count: cython.longlong = 0
    i: cython.longlong
    at: cython.longlong
    for i in range(begin.shape[0]):
        at = begin[i]
        while at < end[i]:
            at = _field(data, at, end[i], scratch)
            if at < 0:
                break
            if scratch[1] != number and scratch[3] > 0:
                if _is_bundle(data, scratch[2], at, span, scratch):
                    count += 1
    return count


def copy_texts(
    data: cython.const[cython.uchar][::1],
    at: cython.const[cython.longlong][::1],
    length: cython.const[cython.longlong][::1],
    out: cython.uchar[:, ::1],
) -> cython.void:
    """Copy texts of length[i] bytes at at[i] into the rows of `out`, zeros, and cut them there.

    A length below 0 copies nothing.
    """
    i: cython.longlong
    j: cython.longlong
    for i in range(at.shape[0]):
        for j in range(min(length[i], out.shape[1])):
            out[i, j] = data[at[i] + j]
