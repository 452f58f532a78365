# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `lines`: what blkparse prints of a record, from bytes to the record's numbers.

A line has a head, the same for all actions, and what its action tells:

      8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
    DEVICE CPU   NUMBER            TIME   PID  ACTION RWBS SECTOR + SECTORS [THREAD]

Functions that read something return the offset behind it, -1 if it is not there, and pass -1 on.
"""

import cython

# Columns of a line's numbers, as the bits of unsigned words.
TIME = cython.declare(cython.int, 0)  # ns
CPU = cython.declare(cython.int, 1)
NUMBER = cython.declare(cython.int, 2)  # in the order of the CPU's records of the device
PID = cython.declare(cython.int, 3)
DEV = cython.declare(cython.int, 4)  # major << 20 | minor
ACTION = cython.declare(cython.int, 5)  # as in a record: the action, its categories from bit 16 on
SECTOR = cython.declare(cython.int, 6)
BYTES = cython.declare(cython.int, 7)
ERROR = cython.declare(cython.int, 8)  # errno, the low 16 bits count
FIRST = cython.declare(cython.int, 9)  # X: where the rest begins; U: depth; A: the old device
SECOND = cython.declare(cython.int, 10)  # A: the old sector
TEXT_AT = cython.declare(cython.int, 11)  # the thread's name, or a message
TEXT_LENGTH = cython.declare(cython.int, 12)
COMMAND = cython.declare(cython.int, 13)  # of passthrough: the command's hash; A: the new device
START = cython.declare(cython.int, 14)  # offset of the line
LINE = cython.declare(cython.int, 15)  # number of the line in the block
NUMBERS = cython.declare(cython.int, 16)  # columns of a line

# Kinds of lines that are no records, in `others`.
NO_RECORD = cython.declare(cython.int, 0)
BAD_RECORD = cython.declare(cython.int, 1)

# The same for Python: compiled, the names above are C's alone.
COLUMNS = {
    "time": TIME,
    "cpu": CPU,
    "number": NUMBER,
    "pid": PID,
    "dev": DEV,
    "action": ACTION,
    "sector": SECTOR,
    "bytes": BYTES,
    "error": ERROR,
    "first": FIRST,
    "second": SECOND,
    "text_at": TEXT_AT,
    "text_length": TEXT_LENGTH,
    "command": COMMAND,
    "start": START,
    "line": LINE,
}
"""Number of each column."""
WIDTH = int(NUMBERS)
"""Columns of a line."""
KINDS = {"no record": NO_RECORD, "bad record": BAD_RECORD}
"""Kinds of lines that are no records."""

_ALL_BITS = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_PRIME = cython.declare(cython.ulonglong, 0x100000001B3)
_BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
_MOST_DIGITS = cython.declare(cython.longlong, 20)
_SECOND_DIGITS = cython.declare(cython.longlong, 10)
_NS_DIGITS = cython.declare(cython.longlong, 9)
_NS = cython.declare(cython.ulonglong, 1000000000)
_SECTOR_BYTES = cython.declare(cython.ulonglong, 512)
_LATEST = cython.declare(cython.ulonglong, 1 << 62)  # ns, as `foreign.MAX_NS`
_MOST = cython.declare(cython.ulonglong, 0xFFFFFFFF)
_SPACE = cython.declare(cython.int, 32)
_NEWLINE = cython.declare(cython.int, 10)
_RETURN = cython.declare(cython.int, 13)
_OPEN = cython.declare(cython.int, 40)  # (
_CLOSE = cython.declare(cython.int, 41)  # )
_PLUS = cython.declare(cython.int, 43)
_COMMA = cython.declare(cython.int, 44)
_MINUS = cython.declare(cython.int, 45)
_POINT = cython.declare(cython.int, 46)
_SLASH = cython.declare(cython.int, 47)
_ZERO = cython.declare(cython.int, 48)
_NINE = cython.declare(cython.int, 57)
_LESS = cython.declare(cython.int, 60)
_A = cython.declare(cython.int, 65)
_B = cython.declare(cython.int, 66)
_C = cython.declare(cython.int, 67)
_D = cython.declare(cython.int, 68)
_F = cython.declare(cython.int, 70)
_G = cython.declare(cython.int, 71)
_I = cython.declare(cython.int, 73)
_M = cython.declare(cython.int, 77)
_N = cython.declare(cython.int, 78)
_P = cython.declare(cython.int, 80)
_Q = cython.declare(cython.int, 81)
_R = cython.declare(cython.int, 82)
_S = cython.declare(cython.int, 83)
_T = cython.declare(cython.int, 84)
_U = cython.declare(cython.int, 85)
_W = cython.declare(cython.int, 87)
_X = cython.declare(cython.int, 88)
_MESSAGE = cython.declare(cython.int, 109)  # m
_UNTOLD = cython.declare(cython.int, 63)  # ?, of `Layout`: a record whose line does not tell it all
_BRACKET = cython.declare(cython.int, 91)  # [
_BRACKET_END = cython.declare(cython.int, 93)  # ]

# Categories and notes of `blktrace.format`, shifted as in a record's action.
_READ = cython.declare(cython.ulonglong, 1 << 16)
_WRITE = cython.declare(cython.ulonglong, 1 << 17)
_FLUSH = cython.declare(cython.ulonglong, 1 << 18)
_SYNC = cython.declare(cython.ulonglong, 1 << 19)
_OF_DRIVER = cython.declare(cython.ulonglong, 1 << 25)
_NOTIFY = cython.declare(cython.ulonglong, 1 << 26)
_AHEAD = cython.declare(cython.ulonglong, 1 << 27)
_META = cython.declare(cython.ulonglong, 1 << 28)
_DISCARD = cython.declare(cython.ulonglong, 1 << 29)
_FUA = cython.declare(cython.ulonglong, 1 << 31)
_MESSAGE_NOTE = cython.declare(cython.ulonglong, 2)


@cython.cfunc
def _is_digit(byte: cython.int) -> cython.bint:
    return _ZERO <= byte <= _NINE


@cython.cfunc
def _number(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
    column: cython.int,
) -> cython.longlong:
    """Read a number at `at` into row[column]."""
    value: cython.ulonglong = 0
    start: cython.longlong = at
    if at < 0:
        return -1
    while at < end and _is_digit(data[at]):
        value = (value * 10 + (data[at] - _ZERO)) & _ALL_BITS
        at += 1
    if at == start or at - start > _MOST_DIGITS:
        return -1
    row[column] = value
    return at


@cython.cfunc
def _expect(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    byte: cython.int,
) -> cython.longlong:
    """Pass over one byte, which has to be `byte`."""
    if at < 0 or at >= end or data[at] != byte:
        return -1
    return at + 1


@cython.cfunc
def _spaces(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong
) -> cython.longlong:
    """Pass over spaces, if there are any."""
    while 0 <= at < end and data[at] == _SPACE:
        at += 1
    return at


@cython.cfunc
def _gap(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong
) -> cython.longlong:
    """Pass over spaces, one at least."""
    return _spaces(data, _expect(data, at, end, _SPACE), end)


@cython.cfunc
def _device(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
    column: cython.int,
) -> cython.longlong:
    """Read "8,0" into row[column] as the kernel's number, major << 20 | minor."""
    major: cython.ulonglong
    at = _expect(data, _number(data, at, end, row, column), end, _COMMA)
    major = row[column]
    at = _number(data, at, end, row, column)
    if at < 0 or major >= 4096 or row[column] >= 1048576:
        return -1
    row[column] = major << 20 | row[column]
    return at


@cython.cfunc
def _time(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "0.000162302" into row[TIME]; blkparse prints nine digits behind the point."""
    seconds: cython.ulonglong
    start: cython.longlong = at
    at = _number(data, at, end, row, TIME)
    if at < 0 or at - start > _SECOND_DIGITS:
        return -1
    seconds = row[TIME]
    start = _expect(data, at, end, _POINT)
    at = _number(data, start, end, row, TIME)
    if at - start != _NS_DIGITS:
        return -1
    row[TIME] = (seconds * _NS + row[TIME]) & _ALL_BITS
    return at


@cython.cfunc
def _categories(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read RWBS, such as "FWFSM", as categories of row[ACTION].

    F before the direction is a flush, behind it FUA. B, of kernels with barriers, says no more than
    the flush that a barrier is made of.
    """
    byte: cython.int
    found: cython.ulonglong = 0
    if 0 <= at < end and data[at] == _F:
        found = _FLUSH
        at += 1
    if at < 0 or at >= end:
        return -1
    byte = data[at]
    if byte == _W:
        found |= _WRITE
    elif byte == _D:
        found |= _DISCARD | _WRITE
    elif byte == _R or byte == _N:
        found |= _READ
    else:
        return -1
    at += 1
    while at < end and data[at] != _SPACE:
        byte = data[at]
        if byte == _F:
            found |= _FUA
        elif byte == _A:
            found |= _AHEAD
        elif byte == _S:
            found |= _SYNC
        elif byte == _M:
            found |= _META
        elif byte == _B:
            found |= _FLUSH
        else:
            return -1
        at += 1
    row[ACTION] |= found
    return at


@cython.cfunc
def _act(letter: cython.int) -> cython.ulonglong:
    """Return the number of an action (`blktrace.format.Act`) by its letter; 0 if there is none."""
    if letter == _Q:
        return 1
    if letter == _M:
        return 2
    if letter == _F:
        return 3
    if letter == _G:
        return 4
    if letter == _S:
        return 5
    if letter == _R:
        return 6
    if letter == _D:
        return 7
    if letter == _C:
        return 8
    if letter == _P:
        return 9
    if letter == _U:
        return 10
    if letter == _T:
        return 11
    if letter == _I:
        return 12
    if letter == _X:
        return 13
    if letter == _B:
        return 14
    if letter == _A:
        return 15
    if letter == _UNTOLD:
        return 255
    return 0


@cython.cfunc
def _head(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read a line up to its thread's id; return where its action's letter is."""
    at = _gap(data, _device(data, _spaces(data, at, end), end, row, DEV), end)
    at = _gap(data, _number(data, at, end, row, CPU), end)
    at = _gap(data, _number(data, at, end, row, NUMBER), end)
    at = _gap(data, _time(data, at, end, row), end)
    at = _gap(data, _number(data, at, end, row, PID), end)
    if row[CPU] > 65535:
        return -1
    return at if at < end else -1


@cython.cfunc
def _error(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "[0]", "[-5]", or "[65531]", which is -5 without a sign, into row[ERROR]."""
    negative: cython.bint
    at = _expect(data, at, end, _BRACKET)
    negative = 0 <= at < end and data[at] == _MINUS
    at = _number(data, at + 1 if negative else at, end, row, ERROR)
    if negative and at >= 0:
        row[ERROR] = (0 - row[ERROR]) & _ALL_BITS
    return _expect(data, at, end, _BRACKET_END)


@cython.cfunc
def _name(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "[fio]" into TEXT_AT and TEXT_LENGTH.

    Names may have any byte, so they end at the line's last bracket.
    """
    last: cython.longlong = end - 1
    at = _expect(data, at, end, _BRACKET)
    if at < 0:
        return -1
    while last > at and data[last] != _BRACKET_END:
        last -= 1
    if last < at or data[last] != _BRACKET_END:
        return -1
    row[TEXT_AT] = at
    row[TEXT_LENGTH] = last - at
    return last + 1


@cython.cfunc
def _parentheses(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Pass over "(…)", if it is there: a command, which is hashed into COMMAND, or a duration."""
    value: cython.ulonglong = _BASIS
    if at < 0 or at >= end or data[at] != _OPEN:
        return at
    while at < end and data[at] != _CLOSE:
        value = ((value ^ data[at]) * _PRIME) & _ALL_BITS
        at += 1
    row[COMMAND] = value
    return _spaces(data, _expect(data, at, end, _CLOSE), end)


@cython.cfunc
def _place(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "223490 + 8" into SECTOR and BYTES, and pass over the spaces behind."""
    at = _spaces(data, _number(data, at, end, row, SECTOR), end)
    at = _spaces(data, _expect(data, at, end, _PLUS), end)
    at = _spaces(data, _number(data, at, end, row, BYTES), end)
    row[BYTES] = (row[BYTES] * _SECTOR_BYTES) & _ALL_BITS
    return at


@cython.cfunc
def _started(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read what stands behind RWBS of all actions but those below.

    "223490 + 8 [fio]"; without data "[fio]"; passthrough "36 (12 00 00 ..) [fio]". With -t the time
    since the action before stands in parentheses.
    """
    here: cython.longlong = at
    if 0 <= at < end and _is_digit(data[at]):
        at = _place(data, here, end, row)
        if at < 0:
            at = _spaces(data, _number(data, here, end, row, BYTES), end)
            row[SECTOR] = 0
            row[ACTION] |= _OF_DRIVER
    return _name(data, _parentheses(data, at, end, row), end, row)


@cython.cfunc
def _ended(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read what stands behind RWBS of C and R.

    "223490 + 8 [0]"; without data "223490 [0]"; passthrough "(12 00 00 ..) [0]" or "[0]".
    """
    here: cython.longlong = at
    if 0 <= at < end and _is_digit(data[at]):
        at = _place(data, here, end, row)
        if at < 0:
            at = _spaces(data, _number(data, here, end, row, SECTOR), end)
            row[BYTES] = 0
    else:
        row[ACTION] |= _OF_DRIVER
    return _error(data, _parentheses(data, at, end, row), end, row)


@cython.cfunc
def _remapped(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "223490 + 8 <- (8,1) 223427": the old place goes into FIRST and SECOND."""
    row[COMMAND] = row[DEV]
    at = _expect(data, _place(data, at, end, row), end, _LESS)
    at = _spaces(data, _expect(data, at, end, _MINUS), end)
    at = _device(data, _expect(data, at, end, _OPEN), end, row, FIRST)
    at = _spaces(data, _expect(data, at, end, _CLOSE), end)
    return _number(data, at, end, row, SECOND)


@cython.cfunc
def _split(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "223490 / 223494 [fio]": BYTES are those of the front piece.

    Of the sector at which the rest begins blkparse prints the lower 32 bits.
    """
    at = _spaces(data, _number(data, at, end, row, SECTOR), end)
    at = _spaces(data, _expect(data, at, end, _SLASH), end)
    at = _spaces(data, _number(data, at, end, row, FIRST), end)
    if at < 0:
        return -1
    row[FIRST] = (row[SECTOR] + ((row[FIRST] - row[SECTOR]) & 0xFFFFFFFF)) & _ALL_BITS
    row[BYTES] = ((row[FIRST] - row[SECTOR]) * _SECTOR_BYTES) & 0xFFFFFFFF
    return _name(data, at, end, row)


@cython.cfunc
def _message(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read a message, "m   N cfq1 alloced": its text goes into TEXT_AT and TEXT_LENGTH."""
    at = _expect(data, _gap(data, _expect(data, at, end, _MESSAGE), end), end, _N)
    at = _expect(data, at, end, _SPACE)
    if at < 0:
        return -1
    row[ACTION] = _NOTIFY | _MESSAGE_NOTE
    row[TEXT_AT] = at
    row[TEXT_LENGTH] = end - at
    return end


@cython.cfunc
def _cgroup(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong
) -> cython.longlong:
    """Pass over the cgroup of a message ("1a,1 "), which stands before its m, if it is there."""
    here: cython.longlong = at
    comma: cython.bint = False
    while here < end and data[here] != _SPACE:
        comma = comma or data[here] == _COMMA
        here += 1
    return _spaces(data, here, end) if comma else at


@cython.cfunc
def _line(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read one line into `row`; return -1, or its kind if it is no record."""
    act: cython.ulonglong
    at = _head(data, at, end, row)
    if at < 0:
        return NO_RECORD
    at = _cgroup(data, at, end)
    if at < end and data[at] == _MESSAGE:
        return -1 if _message(data, at, end, row) >= 0 else BAD_RECORD
    act = _act(data[at]) if at < end else 0
    at += 1
    if act == 10 and at < end and data[at] == _T:  # UT, an unplug by the scheduler
        act = 11
        at += 1
    row[ACTION] = act
    at = _gap(data, _categories(data, _gap(data, at, end), end, row), end)
    if not act or at < 0:
        return BAD_RECORD
    if act == 8 or act == 6:
        at = _ended(data, at, end, row)
    elif act == 9:
        at = _name(data, at, end, row)
    elif act == 10 or act == 11:
        at = _number(data, _gap(data, _name(data, at, end, row), end), end, row, FIRST)
    elif act == 13:
        at = _split(data, at, end, row)
    elif act == 15:
        at = _remapped(data, at, end, row)
    else:
        at = _started(data, at, end, row)
    if at != end or row[TIME] > _LATEST or row[BYTES] > _MOST:
        return BAD_RECORD
    return -1 if row[PID] <= _MOST and row[NUMBER] <= _MOST else BAD_RECORD


@cython.ccall
def read_lines(
    data: cython.const[cython.uchar][::1],
    row: cython.ulonglong[::1],
    records: cython.ulonglong[::1],
    others: cython.longlong[::1],
    counts: cython.longlong[::1],
) -> cython.void:
    """Read the lines of `data`, each of which ends with a newline.

    row: room for NUMBERS. records: filled with NUMBERS for each line of a record. others: for each
    other line that is not empty kind, offset, length and line. counts: is set to the number of
    records, of others, and of lines.
    """
    start: cython.longlong = 0
    end: cython.longlong
    following: cython.longlong
    size: cython.longlong = data.shape[0]
    line: cython.longlong = 0
    found: cython.longlong = 0
    other: cython.longlong = 0
    kind: cython.longlong
    column: cython.longlong
    while start < size:
        end = start
        while end < size and data[end] != _NEWLINE:
            end += 1
        following = end + 1
        while end > start and (data[end - 1] == _RETURN or data[end - 1] == _SPACE):
            end -= 1
        for column in range(NUMBERS):
            row[column] = 0
        kind = _line(data, start, end, row)
        if kind < 0:
            row[START] = start
            row[LINE] = line
            for column in range(NUMBERS):
                records[found * NUMBERS + column] = row[column]
            found += 1
        elif end > start:
            others[other * 4] = kind
            others[other * 4 + 1] = start
            others[other * 4 + 2] = end - start
            others[other * 4 + 3] = line
            other += 1
        line += 1
        start = following
    counts[0] = found
    counts[1] = other
    counts[2] = line
