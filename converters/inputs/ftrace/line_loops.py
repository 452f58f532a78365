# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The loops of `lines`: events that ftrace, trace-cmd or perf printed, from bytes to numbers.

A line is read from its time backwards (CPU, process, thread) and forwards (event, fields):

    fio-18214   [001] d..1.  1996.596531: block_rq_issue: 7,0 R 4096 () 49032 + 8 be,0,4 [fio]
    fio 18214/18214 [001]  1996.596531:     block:block_rq_issue: 7,0 R 4096 () 49032 + 8 [fio]
    fio-18214   1d..1.  1996.596531: block_rq_issue: 7,0 R 4096 () 49032 + 8 be,0,4 [fio]

Functions that read something return the offset behind it, -1 if it is not there, and pass -1 on.
"""

import cython

# Columns of a line's numbers, as the bits of unsigned words.
TIME = cython.declare(cython.int, 0)  # ns
DECIMALS = cython.declare(cython.int, 1)  # digits of the time behind the point
CPU = cython.declare(cython.int, 2)
PID = cython.declare(cython.int, 3)
TGID = cython.declare(cython.int, 4)  # 0: not printed
DEV = cython.declare(cython.int, 5)
SECTOR = cython.declare(cython.int, 6)
COUNT = cython.declare(cython.int, 7)  # nr_sector; new_sector of splits; nr_rq of unplugs
BYTES = cython.declare(cython.int, 8)
OLD_DEV = cython.declare(cython.int, 9)
OLD_SECTOR = cython.declare(cython.int, 10)
ERROR = cython.declare(cython.int, 11)  # two's complement
RWBS_AT = cython.declare(cython.int, 12)
RWBS_LENGTH = cython.declare(cython.int, 13)
COMM_AT = cython.declare(cython.int, 14)
COMM_LENGTH = cython.declare(cython.int, 15)
EVENT = cython.declare(cython.int, 16)  # index in the table of events
LINE = cython.declare(cython.int, 17)  # number of the line in the block
NUMBERS = cython.declare(cython.int, 18)  # columns of a line

# What follows an event's name.
BIO = cython.declare(cython.int, 1)  # 8,0 R 0 + 8 [fio]
BIO_ERROR = cython.declare(cython.int, 2)  # 8,0 R 0 + 8 [0]
REQUEST = cython.declare(cython.int, 3)  # 8,0 R 4096 () 0 + 8 be,0,4 [fio]
REQUEST_ERROR = cython.declare(cython.int, 4)  # 8,0 R () 0 + 8 be,0,4 [0]
SPLIT = cython.declare(cython.int, 5)  # 8,0 R 0 / 8 [fio]
REMAP = cython.declare(cython.int, 6)  # 8,0 R 0 + 8 <- (8,1) 0, and of requests a number
PLUG = cython.declare(cython.int, 7)  # [fio]
UNPLUG = cython.declare(cython.int, 8)  # [fio] 1

# Kinds of lines that are no events of the table, in `others`.
OTHER_EVENT = cython.declare(cython.int, 0)
NO_EVENT = cython.declare(cython.int, 1)
BAD_EVENT = cython.declare(cython.int, 2)

# The same for Python: compiled, the names above are C's alone.
COLUMNS = {
    "time": TIME,
    "decimals": DECIMALS,
    "cpu": CPU,
    "pid": PID,
    "tgid": TGID,
    "dev": DEV,
    "sector": SECTOR,
    "nr_sector": COUNT,
    "new_sector": COUNT,
    "nr_rq": COUNT,
    "bytes": BYTES,
    "old_dev": OLD_DEV,
    "old_sector": OLD_SECTOR,
    "error": ERROR,
    "rwbs": RWBS_AT,
    "comm": COMM_AT,
    "event": EVENT,
    "line": LINE,
}
"""Number of each column. Texts have two: the offset and, in the next one, the length."""
WIDTH = int(NUMBERS)
"""Columns of a line."""
SHAPES = {
    "bio": BIO,
    "bio error": BIO_ERROR,
    "request": REQUEST,
    "request error": REQUEST_ERROR,
    "split": SPLIT,
    "remap": REMAP,
    "plug": PLUG,
    "unplug": UNPLUG,
}
KINDS = {"other event": OTHER_EVENT, "no event": NO_EVENT, "bad event": BAD_EVENT}
"""Kinds of lines that are no events of the table."""

_ALL_BITS = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_PRIME = cython.declare(cython.ulonglong, 0x100000001B3)
_BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
_COMM_BYTES = cython.declare(cython.longlong, 15)
_MOST_DIGITS = cython.declare(cython.longlong, 20)
_SPACE = cython.declare(cython.int, 32)
_TAB = cython.declare(cython.int, 9)
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
_ONE = cython.declare(cython.int, 49)
_NINE = cython.declare(cython.int, 57)
_COLON = cython.declare(cython.int, 58)
_LESS = cython.declare(cython.int, 60)
_BRACKET = cython.declare(cython.int, 91)  # [
_BRACKET_END = cython.declare(cython.int, 93)  # ]


@cython.ccall
def name_hash(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong
) -> cython.ulonglong:
    """Return the FNV-1a hash (64 bits) of data[at:end]: names are compared by it."""
    value: cython.ulonglong = _BASIS
    while at < end:
        value = ((value ^ data[at]) * _PRIME) & _ALL_BITS
        at += 1
    return value


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
def _word(
    data: cython.const[cython.uchar][::1], at: cython.longlong, end: cython.longlong
) -> cython.longlong:
    """Pass over all that is no space, one byte at least."""
    start: cython.longlong = at
    while 0 <= at < end and data[at] != _SPACE:
        at += 1
    return at if at > start else -1


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
def _error(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "[-5]" into row[ERROR]."""
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
    """Read "[fio]" into COMM_AT and COMM_LENGTH.

    Names may have any byte, so they end at the line's last bracket.
    """
    last: cython.longlong = end - 1
    at = _expect(data, at, end, _BRACKET)
    if at < 0:
        return -1
    while last > at and data[last] != _BRACKET_END:
        last -= 1
    if data[last] != _BRACKET_END:
        return -1
    row[COMM_AT] = at
    row[COMM_LENGTH] = last - at
    return last + 1


@cython.cfunc
def _request(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
    with_bytes: cython.bint,
) -> cython.longlong:
    """Pass over a request's bytes, read into BYTES, and its command in parentheses."""
    if with_bytes:
        at = _spaces(data, _number(data, at, end, row, BYTES), end)
    at = _expect(data, at, end, _OPEN)
    while 0 <= at < end and data[at] != _CLOSE:
        at += 1
    return _spaces(data, _expect(data, at, end, _CLOSE), end)


@cython.cfunc
def _old_place(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read "<- (8,1) 0" into OLD_DEV and OLD_SECTOR."""
    at = _expect(data, _expect(data, at, end, _LESS), end, _MINUS)
    at = _expect(data, _spaces(data, at, end), end, _OPEN)
    at = _expect(data, _device(data, at, end, row, OLD_DEV), end, _CLOSE)
    return _number(data, _spaces(data, at, end), end, row, OLD_SECTOR)


@cython.cfunc
def _fields(
    data: cython.const[cython.uchar][::1],
    at: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
    shape: cython.int,
) -> cython.longlong:
    """Read what follows an event's name, of one of the shapes."""
    start: cython.longlong
    at = _spaces(data, at, end)
    if shape == PLUG:
        return _name(data, at, end, row)
    if shape == UNPLUG:
        at = _spaces(data, _name(data, at, end, row), end)
        return _number(data, at, end, row, COUNT)
    start = _spaces(data, _device(data, at, end, row, DEV), end)
    at = _word(data, start, end)
    if at < 0:
        return -1
    row[RWBS_AT] = start
    row[RWBS_LENGTH] = at - start
    at = _spaces(data, at, end)
    if shape == REQUEST or shape == REQUEST_ERROR:
        at = _request(data, at, end, row, shape == REQUEST)
    at = _spaces(data, _number(data, at, end, row, SECTOR), end)
    at = _spaces(data, _expect(data, at, end, _SLASH if shape == SPLIT else _PLUS), end)
    at = _spaces(data, _number(data, at, end, row, COUNT), end)
    if shape == REMAP:
        return _old_place(data, at, end, row)
    if 0 <= at < end and data[at] != _BRACKET:
        at = _spaces(data, _word(data, at, end), end)  # the I/O priority
    if shape == BIO_ERROR or shape == REQUEST_ERROR:
        return _error(data, at, end, row)
    return _name(data, at, end, row)


@cython.cfunc
def _back_over_spaces(
    data: cython.const[cython.uchar][::1], start: cython.longlong, at: cython.longlong
) -> cython.longlong:
    """Return where the spaces begin that end before `at`; -1 if there is none."""
    end: cython.longlong = at
    while at > start and data[at - 1] == _SPACE:
        at -= 1
    return at if 0 <= at < end else -1


@cython.cfunc
def _back_over_word(
    data: cython.const[cython.uchar][::1], start: cython.longlong, at: cython.longlong
) -> cython.longlong:
    """Return where the word begins that ends before `at`."""
    while at > start and data[at - 1] != _SPACE:
        at -= 1
    return at


@cython.cfunc
def _back_over_digits(
    data: cython.const[cython.uchar][::1], start: cython.longlong, at: cython.longlong
) -> cython.longlong:
    """Return where the digits begin that end before `at`; -1 if there is none."""
    end: cython.longlong = at
    while at > start and _is_digit(data[at - 1]):
        at -= 1
    return at if 0 <= at < end else -1


@cython.cfunc
def _time(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read the time that ends before `end` into TIME and DECIMALS; return where it begins."""
    at: cython.longlong = _back_over_digits(data, start, end)
    point: cython.longlong = -1
    places: cython.longlong
    if at > start and data[at - 1] == _POINT:
        point = at
        at = _back_over_digits(data, start, at - 1)
    if at < 0 or (end - point > 10 and point >= 0):
        return -1
    if _number(data, at, end if point < 0 else point - 1, row, TIME) < 0:
        return -1
    if point < 0:
        row[DECIMALS] = 0
        return at
    if row[TIME] > 9000000000:
        return -1
    places = end - point
    row[DECIMALS] = places
    while point < end:
        row[TIME] = row[TIME] * 10 + (data[point] - _ZERO)
        point += 1
    while places < 9:
        row[TIME] = row[TIME] * 10
        places += 1
    return at


@cython.cfunc
def _cpu(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    at: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read the CPU before `at`, with flags behind it or none; return where it begins."""
    word: cython.longlong
    end: cython.longlong = _back_over_spaces(data, start, at)
    if end <= start:
        return -1
    word = _back_over_word(data, start, end)
    if data[end - 1] != _BRACKET_END:
        at = _back_over_spaces(data, start, word)
        if at > start and data[at - 1] == _BRACKET_END:
            end = at
            word = _back_over_word(data, start, end)
        else:
            # The latency format: "1d..1." without brackets.
            at = _number(data, word, end, row, CPU)
            return word if 0 <= at < end else -1
    if data[word] != _BRACKET or _number(data, word + 1, end, row, CPU) != end - 1:
        return -1
    return word


@cython.cfunc
def _thread(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    at: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read thread and process before `at` into PID and TGID; return where the name before ends."""
    end: cython.longlong = _back_over_spaces(data, start, at)
    row[TGID] = 0
    if end > start and data[end - 1] == _CLOSE:
        # "(18214)", or "(-----)" where the process is not known.
        at = _back_over_digits(data, start, end - 1)
        if at >= 0:
            _number(data, at, end - 1, row, TGID)
        at = end - 1
        while at > start and data[at] != _OPEN:
            at -= 1
        end = _back_over_spaces(data, start, at)
        if end < 0:
            end = at  # ftrace writes no space before a long number
    if end < 0:
        return -1
    at = _back_over_digits(data, start, end)
    if at <= start or _number(data, at, end, row, PID) < 0:
        return -1
    if data[at - 1] == _SLASH:
        # perf's "18214/18215": process and thread.
        end = at - 1
        at = _back_over_digits(data, start, end)
        if at <= start or _number(data, at, end, row, TGID) < 0:
            return -1
    if data[at - 1] == _MINUS:
        if end - at == 1 and at - 2 >= start and data[at] == _ONE and data[at - 2] == _SPACE:
            row[PID] = _ALL_BITS  # perf's -1: a thread that had ended
            return _back_over_spaces(data, start, at - 1)
        return at - 1
    return _back_over_spaces(data, start, at)


@cython.cfunc
def _is_name(
    data: cython.const[cython.uchar][::1], start: cython.longlong, end: cython.longlong
) -> cython.bint:
    """Return whether a thread's name can be between: 15 bytes, behind a buffer's name or none."""
    at: cython.longlong = _spaces(data, start, end)
    if end - at <= _COMM_BYTES:
        return True
    # trace-cmd writes "buffer: " before the events of several buffers.
    while at < end and data[at] != _SPACE:
        at += 1
    if data[at - 1] != _COLON:
        return False
    return end - _spaces(data, at, end) <= _COMM_BYTES


@cython.cfunc
def _head(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    end: cython.longlong,
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read thread, CPU and time of a line; return the offset of what follows the time's colon.

    Names may look like a head themselves, and so may what programs write into a trace. So the last
    place is taken that has no more before it than a thread's name.
    """
    at: cython.longlong
    found: cython.longlong = -1
    colon: cython.longlong
    for colon in range(start + 1, end - 1):
        if data[colon] == _COLON and data[colon + 1] == _SPACE and _is_digit(data[colon - 1]):
            at = _cpu(data, start, _time(data, start, colon, row), row)
            at = _thread(data, start, at, row) if at >= 0 else -1
            if at < 0:
                continue
            if not _is_name(data, start, at):
                break
            found = colon
    if found >= 0:  # a later place may have overwritten what was read
        at = _cpu(data, start, _time(data, start, found, row), row)
        _thread(data, start, at, row)
        return found + 1
    return -1


@cython.ccall
def read_lines(
    data: cython.const[cython.uchar][::1],
    hashes: cython.const[cython.ulonglong][::1],
    shapes: cython.const[cython.longlong][::1],
    row: cython.ulonglong[::1],
    events: cython.ulonglong[::1],
    others: cython.longlong[::1],
    counts: cython.longlong[::1],
) -> cython.void:
    """Read the lines of `data`, each of which ends with a newline.

    hashes, shapes: of the events of the table. row: room for NUMBERS. events: filled with NUMBERS
    for each of their lines. others: for each other line that is not empty kind, offset, length and
    line: of OTHER_EVENT the name's, else the line's. counts: is set to the number of events, of
    others, and of lines.
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
        kind = _line(data, start, end, hashes, shapes, row)
        if kind < 0:
            row[LINE] = line
            for column in range(NUMBERS):
                events[found * NUMBERS + column] = row[column]
            found += 1
        elif end > start:
            others[other * 4] = kind
            others[other * 4 + 1] = row[COMM_AT] if kind == OTHER_EVENT else start
            others[other * 4 + 2] = row[COMM_LENGTH] if kind == OTHER_EVENT else end - start
            others[other * 4 + 3] = line
            other += 1
        line += 1
        start = following
    counts[0] = found
    counts[1] = other
    counts[2] = line


@cython.cfunc
def _line(
    data: cython.const[cython.uchar][::1],
    start: cython.longlong,
    end: cython.longlong,
    hashes: cython.const[cython.ulonglong][::1],
    shapes: cython.const[cython.longlong][::1],
    row: cython.ulonglong[::1],
) -> cython.longlong:
    """Read one line into `row`; return -1, or its kind if it is no event of the table.

    The name of another event is put into COMM_AT and COMM_LENGTH.
    """
    name: cython.longlong
    value: cython.ulonglong
    index: cython.longlong
    at: cython.longlong = _head(data, start, end, row)
    if at < 0:
        return NO_EVENT
    name = at = _spaces(data, at, end)
    while at < end and data[at] != _SPACE:
        if data[at] == _COLON and at + 1 < end and data[at + 1] != _SPACE:
            name = at + 1  # perf writes the event's system before the name
        at += 1
    if at > name and data[at - 1] == _COLON:
        at -= 1
    value = name_hash(data, name, at)
    for index in range(hashes.shape[0]):
        if hashes[index] == value:
            row[EVENT] = index
            return -1 if _fields(data, at + 1, end, row, shapes[index]) >= 0 else BAD_EVENT
    row[COMM_AT] = name
    row[COMM_LENGTH] = at - name
    return OTHER_EVENT
