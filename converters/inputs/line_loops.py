# SPDX-License-Identifier: Apache-2.0
# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, legacy_implicit_noexcept=True
"""The loops of `lines`: what ftrace, trace-cmd, perf and blkparse print, from bytes to numbers.

An event's line is read from its time backwards (CPU, process, thread) and forwards (event, fields):

    fio-18214   [001] d..1.  1996.596531: block_rq_issue: 7,0 R 4096 () 49032 + 8 be,0,4 [fio]
    fio 18214/18214 [001]  1996.596531:     block:block_rq_issue: 7,0 R 4096 () 49032 + 8 [fio]
    fio-18214   1d..1.  1996.596531: block_rq_issue: 7,0 R 4096 () 49032 + 8 be,0,4 [fio]

A record's line, blkparse's, has a head, the same for all actions, and what its action tells:

      8,0    3        1     0.000000000   697  G   W 223490 + 8 [kjournald]
    DEVICE CPU   NUMBER            TIME   PID  ACTION RWBS SECTOR + SECTORS [THREAD]

What reads something returns the offset behind it, -1 if it is not there, and passes -1 on. Nothing
raises, so that no -1 is taken for an exception.
"""

import cython

# Columns of a line's numbers, as the bits of unsigned words.
TIME = cython.declare(cython.int, 0)  # ns
CPU = cython.declare(cython.int, 1)
PID = cython.declare(cython.int, 2)
DEV = cython.declare(cython.int, 3)  # major << 20 | minor
SECTOR = cython.declare(cython.int, 4)
COUNT = cython.declare(cython.int, 5)  # nr_sector; new_sector of splits; nr_rq of unplugs
BYTES = cython.declare(cython.int, 6)
OLD_DEV = cython.declare(cython.int, 7)
OLD_SECTOR = cython.declare(cython.int, 8)
ERROR = cython.declare(cython.int, 9)  # two's complement
TEXT_AT = cython.declare(cython.int, 10)  # the thread's name, or a message
TEXT_LENGTH = cython.declare(cython.int, 11)
LINE = cython.declare(cython.int, 12)  # number of the line in the block
# Of events alone.
DECIMALS = cython.declare(cython.int, 13)  # digits of the time behind the point
TGID = cython.declare(cython.int, 14)  # 0: not printed
RWBS_AT = cython.declare(cython.int, 15)
RWBS_LENGTH = cython.declare(cython.int, 16)
EVENT = cython.declare(cython.int, 17)  # index in the table of events
# Of records alone.
NUMBER = cython.declare(cython.int, 13)  # in the order of the CPU's records of the device
ACTION = cython.declare(cython.int, 14)  # as in a record: the action, its categories from bit 16 on
COMMAND = cython.declare(cython.int, 15)  # of passthrough: the command's hash; A: the new device
START = cython.declare(cython.int, 16)  # offset of the line
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

# Kinds of lines that are no events or records, in `others`.
OTHER_EVENT = cython.declare(cython.int, 0)
NO_EVENT = cython.declare(cython.int, 1)
BAD_EVENT = cython.declare(cython.int, 2)

# The same for Python: compiled, the names above are C's alone.
COLUMNS = {
    "time": TIME,
    "cpu": CPU,
    "pid": PID,
    "dev": DEV,
    "sector": SECTOR,
    "nr_sector": COUNT,
    "new_sector": COUNT,
    "nr_rq": COUNT,
    "bytes": BYTES,
    "old_dev": OLD_DEV,
    "old_sector": OLD_SECTOR,
    "error": ERROR,
    "comm": TEXT_AT,
    "line": LINE,
    "decimals": DECIMALS,
    "tgid": TGID,
    "rwbs": RWBS_AT,
    "event": EVENT,
    "number": NUMBER,
    "action": ACTION,
    "command": COMMAND,
    "start": START,
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
"""Kinds of lines that are no events or records."""

_ALL_BITS = cython.declare(cython.ulonglong, 0xFFFFFFFFFFFFFFFF)
_PRIME = cython.declare(cython.ulonglong, 0x100000001B3)
_BASIS = cython.declare(cython.ulonglong, 0xCBF29CE484222325)
_COMM_BYTES = cython.declare(cython.longlong, 15)
_MOST_DIGITS = cython.declare(cython.longlong, 20)
_SECOND_DIGITS = cython.declare(cython.longlong, 10)
_NS_DIGITS = cython.declare(cython.longlong, 9)
_NS = cython.declare(cython.ulonglong, 1000000000)
_SECTOR_BYTES = cython.declare(cython.ulonglong, 512)
_LATEST = cython.declare(cython.ulonglong, 1 << 62)  # ns, as `foreign.MAX_NS`
_MOST = cython.declare(cython.ulonglong, 0xFFFFFFFF)

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

# Actions (`blktrace.format.Act`) with a tail of their own.
_REQUEUE = cython.declare(cython.ulonglong, 6)
_COMPLETE = cython.declare(cython.ulonglong, 8)
_PLUGGED = cython.declare(cython.ulonglong, 9)
_UNPLUG_IO = cython.declare(cython.ulonglong, 10)
_UNPLUG_TIMER = cython.declare(cython.ulonglong, 11)
_SPLIT_BIO = cython.declare(cython.ulonglong, 13)
_REMAPPED = cython.declare(cython.ulonglong, 15)


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
    return ord("0") <= byte <= ord("9")


@cython.final
@cython.cclass
class _Line:
    """The line data[start:end], and its numbers in `row`."""

    data: cython.const[cython.uchar][::1]
    row: cython.ulonglong[::1]
    start: cython.longlong
    end: cython.longlong

    @cython.cfunc
    def number(self, at: cython.longlong, column: cython.int) -> cython.longlong:
        """Read a number at `at` into row[column]."""
        value: cython.ulonglong = 0
        start: cython.longlong = at
        if at < 0:
            return -1
        while at < self.end and _is_digit(self.data[at]):
            value = (value * 10 + (self.data[at] - ord("0"))) & _ALL_BITS
            at += 1
        if at == start or at - start > _MOST_DIGITS:
            return -1
        self.row[column] = value
        return at

    @cython.cfunc
    def expect(self, at: cython.longlong, byte: cython.int) -> cython.longlong:
        if at < 0 or at >= self.end or self.data[at] != byte:
            return -1
        return at + 1

    @cython.cfunc
    def spaces(self, at: cython.longlong) -> cython.longlong:
        while 0 <= at < self.end and self.data[at] == ord(" "):
            at += 1
        return at

    @cython.cfunc
    def gap(self, at: cython.longlong) -> cython.longlong:
        """Pass over spaces, one at least."""
        return self.spaces(self.expect(at, ord(" ")))

    @cython.cfunc
    def word(self, at: cython.longlong) -> cython.longlong:
        """Pass over all that is no space, one byte at least."""
        start: cython.longlong = at
        while 0 <= at < self.end and self.data[at] != ord(" "):
            at += 1
        return at if at > start else -1

    @cython.cfunc
    def device(self, at: cython.longlong, column: cython.int) -> cython.longlong:
        """Read "8,0" into row[column] as the kernel's number, major << 20 | minor."""
        major: cython.ulonglong
        at = self.expect(self.number(at, column), ord(","))
        major = self.row[column]
        at = self.number(at, column)
        if at < 0 or major >= 4096 or self.row[column] >= 1048576:
            return -1
        self.row[column] = major << 20 | self.row[column]
        return at

    @cython.cfunc
    def error(self, at: cython.longlong) -> cython.longlong:
        """Read "[0]", "[-5]", or "[65531]", which is -5 without a sign, into row[ERROR]."""
        negative: cython.bint
        at = self.expect(at, ord("["))
        negative = 0 <= at < self.end and self.data[at] == ord("-")
        at = self.number(at + 1 if negative else at, ERROR)
        if negative and at >= 0:
            self.row[ERROR] = (0 - self.row[ERROR]) & _ALL_BITS
        return self.expect(at, ord("]"))

    @cython.cfunc
    def name(self, at: cython.longlong) -> cython.longlong:
        """Read "[fio]" into TEXT_AT and TEXT_LENGTH.

        Names may have any byte, so they end at the line's last bracket.
        """
        last: cython.longlong = self.end - 1
        at = self.expect(at, ord("["))
        if at < 0:
            return -1
        while last > at and self.data[last] != ord("]"):
            last -= 1
        if last < at or self.data[last] != ord("]"):
            return -1
        self.row[TEXT_AT] = at
        self.row[TEXT_LENGTH] = last - at
        return last + 1

    @cython.cfunc
    def old_place(self, at: cython.longlong) -> cython.longlong:
        """Read "<- (8,1) 0" into OLD_DEV and OLD_SECTOR."""
        at = self.expect(self.expect(at, ord("<")), ord("-"))
        at = self.expect(self.spaces(at), ord("("))
        at = self.expect(self.device(at, OLD_DEV), ord(")"))
        return self.number(self.spaces(at), OLD_SECTOR)

    # Events, as ftrace, trace-cmd and perf print them.

    @cython.cfunc
    def fields(self, at: cython.longlong, shape: cython.int) -> cython.longlong:
        """Read what follows an event's name, of one of the shapes."""
        start: cython.longlong
        at = self.spaces(at)
        if shape == PLUG:
            return self.name(at)
        if shape == UNPLUG:
            return self.number(self.spaces(self.name(at)), COUNT)
        start = self.spaces(self.device(at, DEV))
        at = self.word(start)
        if at < 0:
            return -1
        self.row[RWBS_AT] = start
        self.row[RWBS_LENGTH] = at - start
        at = self.spaces(at)
        if shape == REQUEST:
            at = self.spaces(self.number(at, BYTES))
        if shape == REQUEST or shape == REQUEST_ERROR:  # its command, in parentheses
            at = self.expect(at, ord("("))
            while 0 <= at < self.end and self.data[at] != ord(")"):
                at += 1
            at = self.spaces(self.expect(at, ord(")")))
        at = self.spaces(self.number(at, SECTOR))
        at = self.spaces(self.expect(at, ord("/") if shape == SPLIT else ord("+")))
        at = self.spaces(self.number(at, COUNT))
        if shape == REMAP:
            return self.old_place(at)
        if 0 <= at < self.end and self.data[at] != ord("["):
            at = self.spaces(self.word(at))  # the I/O priority
        if shape == BIO_ERROR or shape == REQUEST_ERROR:
            return self.error(at)
        return self.name(at)

    @cython.cfunc
    def back_over_spaces(self, at: cython.longlong) -> cython.longlong:
        """Return where the spaces begin that end before `at`; -1 if there is none."""
        end: cython.longlong = at
        while at > self.start and self.data[at - 1] == ord(" "):
            at -= 1
        return at if 0 <= at < end else -1

    @cython.cfunc
    def back_over_word(self, at: cython.longlong) -> cython.longlong:
        while at > self.start and self.data[at - 1] != ord(" "):
            at -= 1
        return at

    @cython.cfunc
    def back_over_digits(self, at: cython.longlong) -> cython.longlong:
        """Return where the digits begin that end before `at`; -1 if there is none."""
        end: cython.longlong = at
        while at > self.start and _is_digit(self.data[at - 1]):
            at -= 1
        return at if 0 <= at < end else -1

    @cython.cfunc
    def event_time(self, end: cython.longlong) -> cython.longlong:
        """Read the time that ends before `end` into TIME and DECIMALS; return where it begins."""
        at: cython.longlong = self.back_over_digits(end)
        point: cython.longlong = -1
        places: cython.longlong
        if at > self.start and self.data[at - 1] == ord("."):
            point = at
            at = self.back_over_digits(at - 1)
        if at < 0 or (end - point > 10 and point >= 0):
            return -1
        if self.number(at, TIME) < 0:
            return -1
        if point < 0:
            self.row[DECIMALS] = 0
            return at
        if self.row[TIME] > 9000000000:
            return -1
        places = end - point
        self.row[DECIMALS] = places
        while point < end:
            self.row[TIME] = self.row[TIME] * 10 + (self.data[point] - ord("0"))
            point += 1
        while places < 9:
            self.row[TIME] = self.row[TIME] * 10
            places += 1
        return at

    @cython.cfunc
    def cpu(self, at: cython.longlong) -> cython.longlong:
        """Read the CPU before `at`, with flags behind it or none; return where it begins."""
        word: cython.longlong
        end: cython.longlong = self.back_over_spaces(at)
        if end <= self.start:
            return -1
        word = self.back_over_word(end)
        if self.data[end - 1] != ord("]"):
            at = self.back_over_spaces(word)
            if at > self.start and self.data[at - 1] == ord("]"):
                end = at
                word = self.back_over_word(end)
            else:
                # The latency format: "1d..1." without brackets.
                at = self.number(word, CPU)
                return word if 0 <= at < end else -1
        if self.data[word] != ord("[") or self.number(word + 1, CPU) != end - 1:
            return -1
        return word

    @cython.cfunc
    def thread(self, at: cython.longlong) -> cython.longlong:
        """Read thread and process before `at` into PID and TGID; return where the name ends."""
        end: cython.longlong = self.back_over_spaces(at)
        self.row[TGID] = 0
        if end > self.start and self.data[end - 1] == ord(")"):
            # "(18214)", or "(-----)" where the process is not known.
            at = self.back_over_digits(end - 1)
            if at >= 0:
                self.number(at, TGID)
            at = end - 1
            while at > self.start and self.data[at] != ord("("):
                at -= 1
            end = self.back_over_spaces(at)
            if end < 0:
                end = at  # ftrace writes no space before a long number
        if end < 0:
            return -1
        at = self.back_over_digits(end)
        if at <= self.start or self.number(at, PID) < 0:
            return -1
        if self.data[at - 1] == ord("/"):
            # perf's "18214/18215": process and thread.
            end = at - 1
            at = self.back_over_digits(end)
            if at <= self.start or self.number(at, TGID) < 0:
                return -1
        if self.data[at - 1] == ord("-"):
            if end - at == 1 and at - 2 >= self.start:
                if self.data[at] == ord("1") and self.data[at - 2] == ord(" "):
                    self.row[PID] = _ALL_BITS  # perf's -1: a thread that had ended
                    return self.back_over_spaces(at - 1)
            return at - 1
        return self.back_over_spaces(at)

    @cython.cfunc
    def is_name(self, end: cython.longlong) -> cython.bint:
        """Return whether a thread's name can be before `end`: 15 bytes, maybe behind a buffer's."""
        at: cython.longlong = self.start
        while at < end and self.data[at] == ord(" "):
            at += 1
        if end - at <= _COMM_BYTES:
            return True
        # trace-cmd writes "buffer: " before the events of several buffers.
        while at < end and self.data[at] != ord(" "):
            at += 1
        if self.data[at - 1] != ord(":"):
            return False
        while at < end and self.data[at] == ord(" "):
            at += 1
        return end - at <= _COMM_BYTES

    @cython.cfunc
    def event_head(self) -> cython.longlong:
        """Read thread, CPU and time; return the offset of what follows the time's colon.

        Names may look like a head themselves, and so may what programs write into a trace. So the
        last place is taken that has no more before it than a thread's name.
        """
        at: cython.longlong
        found: cython.longlong = -1
        colon: cython.longlong
        for colon in range(self.start + 1, self.end - 1):
            if self.data[colon] != ord(":") or self.data[colon + 1] != ord(" "):
                continue
            if _is_digit(self.data[colon - 1]):
                at = self.cpu(self.event_time(colon))
                at = self.thread(at) if at >= 0 else -1
                if at < 0:
                    continue
                if not self.is_name(at):
                    break
                found = colon
        if found >= 0:  # a later place may have overwritten what was read
            self.thread(self.cpu(self.event_time(found)))
            return found + 1
        return -1

    @cython.cfunc
    def event(
        self,
        hashes: cython.const[cython.ulonglong][::1],
        shapes: cython.const[cython.longlong][::1],
    ) -> cython.longlong:
        """Read the line; return -1, or its kind if it is no event of the table.

        The name of another event is put into TEXT_AT and TEXT_LENGTH.
        """
        name: cython.longlong
        value: cython.ulonglong
        index: cython.longlong
        at: cython.longlong = self.event_head()
        if at < 0:
            return NO_EVENT
        name = at = self.spaces(at)
        while at < self.end and self.data[at] != ord(" "):
            if self.data[at] == ord(":") and at + 1 < self.end and self.data[at + 1] != ord(" "):
                name = at + 1  # perf writes the event's system before the name
            at += 1
        if at > name and self.data[at - 1] == ord(":"):
            at -= 1
        value = name_hash(self.data, name, at)
        for index in range(hashes.shape[0]):
            if hashes[index] == value:
                self.row[EVENT] = index
                return -1 if self.fields(at + 1, shapes[index]) >= 0 else BAD_EVENT
        self.row[TEXT_AT] = name
        self.row[TEXT_LENGTH] = at - name
        return OTHER_EVENT

    # Records, as blkparse prints them.

    @cython.cfunc
    def record_time(self, at: cython.longlong) -> cython.longlong:
        """Read "0.000162302" into TIME; blkparse prints nine digits behind the point."""
        seconds: cython.ulonglong
        start: cython.longlong = at
        at = self.number(at, TIME)
        if at < 0 or at - start > _SECOND_DIGITS:
            return -1
        seconds = self.row[TIME]
        start = self.expect(at, ord("."))
        at = self.number(start, TIME)
        if at - start != _NS_DIGITS:
            return -1
        self.row[TIME] = (seconds * _NS + self.row[TIME]) & _ALL_BITS
        return at

    @cython.cfunc
    def categories(self, at: cython.longlong) -> cython.longlong:
        """Read RWBS, such as "FWFSM", as categories of ACTION.

        F before the direction is a flush, behind it FUA. B, of kernels with barriers, says no more
        than the flush that a barrier is made of.
        """
        byte: cython.int
        found: cython.ulonglong = 0
        if 0 <= at < self.end and self.data[at] == ord("F"):
            found = _FLUSH
            at += 1
        if at < 0 or at >= self.end:
            return -1
        byte = self.data[at]
        if byte == ord("W"):
            found |= _WRITE
        elif byte == ord("D"):
            found |= _DISCARD | _WRITE
        elif byte == ord("R") or byte == ord("N"):
            found |= _READ
        else:
            return -1
        at += 1
        while at < self.end and self.data[at] != ord(" "):
            byte = self.data[at]
            if byte == ord("F"):
                found |= _FUA
            elif byte == ord("A"):
                found |= _AHEAD
            elif byte == ord("S"):
                found |= _SYNC
            elif byte == ord("M"):
                found |= _META
            elif byte == ord("B"):
                found |= _FLUSH
            else:
                return -1
            at += 1
        self.row[ACTION] |= found
        return at

    @cython.cfunc
    def record_head(self) -> cython.longlong:
        """Read the line up to its thread's id; return where its action's letter is."""
        at: cython.longlong = self.gap(self.device(self.spaces(self.start), DEV))
        at = self.gap(self.number(at, CPU))
        at = self.gap(self.number(at, NUMBER))
        at = self.gap(self.record_time(at))
        at = self.gap(self.number(at, PID))
        if self.row[CPU] > 65535:
            return -1
        return at if at < self.end else -1

    @cython.cfunc
    def parentheses(self, at: cython.longlong) -> cython.longlong:
        """Pass over "(…)", if it is there: a command, hashed into COMMAND, or a duration."""
        start: cython.longlong = at
        if at < 0 or at >= self.end or self.data[at] != ord("("):
            return at
        while at < self.end and self.data[at] != ord(")"):
            at += 1
        self.row[COMMAND] = name_hash(self.data, start, at)
        return self.spaces(self.expect(at, ord(")")))

    @cython.cfunc
    def place(self, at: cython.longlong) -> cython.longlong:
        """Read "223490 + 8" into SECTOR and BYTES, and pass over the spaces behind."""
        at = self.spaces(self.number(at, SECTOR))
        at = self.spaces(self.expect(at, ord("+")))
        at = self.spaces(self.number(at, BYTES))
        self.row[BYTES] = (self.row[BYTES] * _SECTOR_BYTES) & _ALL_BITS
        return at

    @cython.cfunc
    def started(self, at: cython.longlong) -> cython.longlong:
        """Read what stands behind RWBS of all actions but those below.

        "223490 + 8 [fio]"; without data "[fio]"; passthrough "36 (12 00 00 ..) [fio]". With -t the
        time since the action before stands in parentheses.
        """
        here: cython.longlong = at
        if 0 <= at < self.end and _is_digit(self.data[at]):
            at = self.place(here)
            if at < 0:
                at = self.spaces(self.number(here, BYTES))
                self.row[SECTOR] = 0
                self.row[ACTION] |= _OF_DRIVER
        return self.name(self.parentheses(at))

    @cython.cfunc
    def ended(self, at: cython.longlong) -> cython.longlong:
        """Read what stands behind RWBS of C and R.

        "223490 + 8 [0]"; without data "223490 [0]"; passthrough "(12 00 00 ..) [0]" or "[0]".
        """
        here: cython.longlong = at
        if 0 <= at < self.end and _is_digit(self.data[at]):
            at = self.place(here)
            if at < 0:
                at = self.spaces(self.number(here, SECTOR))
                self.row[BYTES] = 0
        else:
            self.row[ACTION] |= _OF_DRIVER
        return self.error(self.parentheses(at))

    @cython.cfunc
    def split(self, at: cython.longlong) -> cython.longlong:
        """Read "223490 / 223494 [fio]": BYTES are those of the front piece.

        Of the sector at which the rest begins blkparse prints the lower 32 bits.
        """
        at = self.spaces(self.number(at, SECTOR))
        at = self.spaces(self.expect(at, ord("/")))
        at = self.spaces(self.number(at, COUNT))
        if at < 0:
            return -1
        front: cython.ulonglong = (self.row[COUNT] - self.row[SECTOR]) & 0xFFFFFFFF
        self.row[COUNT] = (self.row[SECTOR] + front) & _ALL_BITS
        self.row[BYTES] = (front * _SECTOR_BYTES) & 0xFFFFFFFF
        return self.name(at)

    @cython.cfunc
    def message(self, at: cython.longlong) -> cython.longlong:
        """Read a message, "m   N cfq1 alloced": its text goes into TEXT_AT and TEXT_LENGTH."""
        at = self.expect(self.gap(self.expect(at, ord("m"))), ord("N"))
        at = self.expect(at, ord(" "))
        if at < 0:
            return -1
        self.row[ACTION] = _NOTIFY | _MESSAGE_NOTE
        self.row[TEXT_AT] = at
        self.row[TEXT_LENGTH] = self.end - at
        return self.end

    @cython.cfunc
    def cgroup(self, at: cython.longlong) -> cython.longlong:
        """Pass over the cgroup of a message ("1a,1 "), if there is one before its m."""
        here: cython.longlong = at
        comma: cython.bint = False
        while here < self.end and self.data[here] != ord(" "):
            comma = comma or self.data[here] == ord(",")
            here += 1
        return self.spaces(here) if comma else at

    @cython.cfunc
    def record(self, acts: cython.const[cython.uchar][::1]) -> cython.longlong:
        """Read the line; return -1, or its kind if it is no record."""
        act: cython.ulonglong
        at: cython.longlong = self.record_head()
        self.row[START] = self.start
        if at < 0:
            return NO_EVENT
        at = self.cgroup(at)
        if at < self.end and self.data[at] == ord("m"):
            return -1 if self.message(at) >= 0 else BAD_EVENT
        act = acts[self.data[at]] if at < self.end else 0
        at += 1
        if act == _UNPLUG_IO and at < self.end and self.data[at] == ord("T"):
            act = _UNPLUG_TIMER  # UT, an unplug by the scheduler
            at += 1
        self.row[ACTION] = act
        at = self.gap(self.categories(self.gap(at)))
        if not act or at < 0:
            return BAD_EVENT
        if act == _COMPLETE or act == _REQUEUE:
            at = self.ended(at)
        elif act == _PLUGGED:
            at = self.name(at)
        elif act == _UNPLUG_IO or act == _UNPLUG_TIMER:
            at = self.number(self.gap(self.name(at)), COUNT)
        elif act == _SPLIT_BIO:
            at = self.split(at)
        elif act == _REMAPPED:
            self.row[COMMAND] = self.row[DEV]  # which may be changed later
            at = self.old_place(self.place(at))
        else:
            at = self.started(at)
        if at != self.end or self.row[TIME] > _LATEST or self.row[BYTES] > _MOST:
            return BAD_EVENT
        return -1 if self.row[PID] <= _MOST and self.row[NUMBER] <= _MOST else BAD_EVENT


@cython.ccall
def read_lines(
    data: cython.const[cython.uchar][::1],
    hashes: cython.const[cython.ulonglong][::1],
    shapes: cython.const[cython.longlong][::1],
    acts: cython.const[cython.uchar][::1],
    row: cython.ulonglong[::1],
    events: cython.ulonglong[::1],
    others: cython.longlong[::1],
    counts: cython.longlong[::1],
) -> cython.void:
    """Read the lines of `data`, each of which ends with a newline.

    hashes, shapes: of the events of the table. acts: (256,) the actions of records by their
    letters, 0: none; empty: the lines are of events. row: room for NUMBERS. events: filled with
    NUMBERS for each line of an event or record. others: for each other line that is not empty kind,
    offset, length and line: of OTHER_EVENT the name's, else the line's. counts: is set to the
    number of events, of others, and of lines.
    """
    one: _Line = _Line()
    start: cython.longlong = 0
    end: cython.longlong
    following: cython.longlong
    size: cython.longlong = data.shape[0]
    line: cython.longlong = 0
    found: cython.longlong = 0
    other: cython.longlong = 0
    kind: cython.longlong
    column: cython.longlong
    one.data = data
    one.row = row
    while start < size:
        end = start
        while end < size and data[end] != ord("\n"):
            end += 1
        following = end + 1
        while end > start and (data[end - 1] == ord("\r") or data[end - 1] == ord(" ")):
            end -= 1
        for column in range(NUMBERS):
            row[column] = 0
        one.start = start
        one.end = end
        kind = one.record(acts) if acts.shape[0] else one.event(hashes, shapes)
        if kind < 0:
            row[LINE] = line
            for column in range(NUMBERS):
                events[found * NUMBERS + column] = row[column]
            found += 1
        elif end > start:
            others[other * 4] = kind
            others[other * 4 + 1] = row[TEXT_AT] if kind == OTHER_EVENT else start
            others[other * 4 + 2] = row[TEXT_LENGTH] if kind == OTHER_EVENT else end - start
            others[other * 4 + 3] = line
            other += 1
        line += 1
        start = following
    counts[0] = found
    counts[1] = other
    counts[2] = line
