# SPDX-License-Identifier: Apache-2.0
"""blkparse's text as a Source: its lines become blktrace's records again."""

import os
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

import numpy as np

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, SECTOR_BYTES, U64, Bool
from biotrail.converters.inputs.beginning import PathOrStream
from biotrail.converters.inputs.blkparse.layouts import Layout, layout_of
from biotrail.converters.inputs.blktrace.files import RecordBatch
from biotrail.converters.inputs.blktrace.format import (
    ACT_MASK,
    CATEGORY_SHIFT,
    HEAD,
    REMAP,
    Act,
    Category,
)
from biotrail.converters.inputs.blktrace.source import LETTERS, Numbers, RecordSource, kept_of
from biotrail.converters.inputs.foreign import MAX_NS, ForeignSource
from biotrail.converters.inputs.line_loops import COLUMNS, KINDS
from biotrail.converters.inputs.lines import Examples, LineReader, Lines, TextFile, texts
from biotrail.converters.inputs.translate import (
    COMM_BYTES,
    THREAD_NAMES,
    ThreadNames,
    TracepointRows,
    translate,
)

NOT_TOLD = 255
"""Action of a record whose line, in a layout of the user's, does not tell it all (`?`)."""
ACTS = bytearray(256)
"""Number of an action by its letter in a line; 0: there is none."""
for _number, _letter in enumerate(b"QMFGSRDCPUTIXBA", 1):
    ACTS[_letter] = _number
ACTS[ord("?")] = NOT_TOLD
_NO_NAMES = (b"(null)", b"unknown")
_NUMBER_WORD = np.dtype(">u8")
_HEAD_NAMES = {"number": "sequence", "dev": "device"}


@dataclass
class RecordLines(Lines):
    @property
    def act(self) -> I64:
        """Each record's action (`Act`), (n,); of a message -1."""
        act = (self.column("action") & np.uint64(ACT_MASK)).astype(np.int64)
        act[self.is_message] = -1
        return act

    @property
    def is_message(self) -> Bool:
        bit = np.uint64(int(Category.NOTIFY) << CATEGORY_SHIFT)
        found: Bool = (self.column("action") & bit) != 0
        return found


def batch_of(lines: RecordLines) -> RecordBatch:
    """Return the records as blktrace's would be, with payloads as far as the text has them.

    The action has no category of FS, and an A is of the device in column dev.
    """
    head = np.zeros(len(lines), HEAD)
    for name in ("number", "time", "sector", "bytes", "action", "pid", "dev", "cpu"):
        head[_HEAD_NAMES.get(name, name)] = lines.column(name)
    head["error"] = lines.column("error").astype(np.uint16).view(np.int16)
    # Payloads of X, U and A, 16 bytes for each record; a message's is in the text itself.
    act = lines.act
    words = np.zeros((len(lines), REMAP.itemsize), np.uint8)
    length = np.zeros(len(lines), np.uint16)
    one = np.isin(act, (Act.SPLIT, Act.UNPLUG_IO, Act.UNPLUG_TIMER))
    first = lines.column("new_sector")[one].astype(_NUMBER_WORD)
    words[one, :8] = first.view(np.uint8).reshape(-1, 8)
    length[one] = 8
    remap = act == Act.REMAP
    where = np.zeros(int(np.count_nonzero(remap)), REMAP)
    where["device_from"] = lines.column("old_dev")[remap]
    where["device_to"] = lines.column("command")[remap]
    where["sector_from"] = lines.column("old_sector")[remap]
    words[remap] = where.view(np.uint8).reshape(-1, REMAP.itemsize)
    length[remap] = REMAP.itemsize
    messages = np.flatnonzero(lines.is_message)
    at = np.arange(len(lines)) * REMAP.itemsize
    at[messages] = words.size + lines.column("comm")[messages].view(np.int64)
    length[messages] = np.minimum(lines.table[COLUMNS["comm"] + 1][messages], 0xFFFF)
    head["pdu_len"] = length
    data = np.concatenate([words.ravel(), np.frombuffer(lines.data, np.uint8)])
    return RecordBatch(data, "<", head, at, [])


_FEW_GAPS = 8
"""Gaps in the numbers of the first block, and of so many records one may follow a gap; where more
do, lines were selected."""
_TAIL_BYTES = 1 << 12
_MOST_CARRIED = 1 << 14
_OF_REQUEST = np.uint64(int(Category.FS) << CATEGORY_SHIFT)
_NAMED = re.compile(rb"^Events \(([^)\n]+)\): ", re.MULTILINE)


class BlkparseSource(RecordSource):
    """The text of blkparse or btrace. reached: newest time met (ns since the first event)."""

    def __init__(self, path: PathOrStream) -> None:
        """Open the text, read its first block, and make a log's header of what is there."""
        super().__init__(path, "blktrace")
        self.header["created_by"] = "blkparse"
        self.header["events"]["letters"] = list(LETTERS)
        self.end = {"reason": "end of blkparse's text"}
        self._text = TextFile(path, self)
        self.reached = -1
        self._reader = LineReader(RecordLines, acts=bytes(ACTS))
        self._requests = Requests()
        self._names = ThreadNames()
        self._traced: set[int] = set()
        self._last: dict[int, int] = {}
        self._cpus: set[int] = set()
        self._unnumbered_repeats = 0
        self._lines = 0
        self._bad_lines = Examples()
        self._other_lines = Examples()
        self.summary = Summary(self)
        blocks = self._text.blocks()
        first = next(blocks, b"")
        self._layout: Layout | None = layout_of(first, self.name)
        if self._layout is not None:
            first = self._layout.rewritten(first)
            blocks = map(self._layout.rewritten, blocks)
            for remark in self._layout.remarks:
                self.remark(remark)
        self._blocks = chain([first], blocks)
        self._judge_beginning(path, self._reader.read(first))

    def _judge_beginning(self, path: PathOrStream, lines: RecordLines) -> None:
        if not len(lines):
            return
        no_remap = lines.act != Act.REMAP
        _, steps = Numbers().check(batch_of(lines).head[no_remap])
        gaps = sum(step.missing > 0 for step in steps)
        if gaps > _FEW_GAPS and gaps * _FEW_GAPS > len(lines):
            self.numbers_tell = False
            self.remark(
                "the numbers of its records have gaps everywhere: lines were selected, by blkparse "
                "-a or grep; what the trace lost is not known"
            )
        devices = np.unique(lines.column("dev")[no_remap]).tolist()
        names: set[bytes] = set()
        if isinstance(path, str | os.PathLike):
            with suppress(OSError), open(path, "rb") as stream:
                stream.seek(max(os.fstat(stream.fileno()).st_size - _TAIL_BYTES, 0))
                names = set(_NAMED.findall(stream.read()))
        if len(devices) == 1 and len(names) == 1 and b"," not in (name := names.pop()):
            text = name.decode("utf-8", "replace")
            self.header["devices"] = [{"dev": devices[0], "name": text}]

    def pieces(self) -> Iterator[tuple[Events, int, int]]:
        """Yield each block's events, when the first time of what follows them is known."""
        held: Events | None = None
        carried = b""
        for block in self._blocks:
            lines = self._reader.read(carried + block)
            lines, carried = self._with_devices(lines)
            first = int(lines.column("time").min(initial=np.uint64(MAX_NS)))
            if held is not None:
                yield held, min(self.reached, first), self._text.offset
            held = self._events(lines)
        last = [] if held is None else [held]
        if carried:
            last.append(self._events(self._reader.read(carried)))
        self._report()
        if not self._met:
            raise self.without_block_events()
        yield Events.join(last), max(self.reached, 0), max(self._text.offset, 0)

    def _with_devices(self, lines: RecordLines) -> tuple[RecordLines, bytes]:
        """Return (lines whose remaps are of the device that was traced, text that has to wait).

        blkparse prints a remap with the device that it goes to, which may be a partition. The
        remap is of the device whose Q the thread records next; without one yet, it waits.
        """
        act = lines.act
        others = act != Act.REMAP
        self._traced.update(np.unique(lines.column("dev")[others & (act >= 0)]).tolist())
        asked = ~others & ~np.isin(lines.column("dev"), list(self._traced))
        if not asked.any():
            return lines, b""
        # The next record of each record's CPU and thread that is no remap or message; -1: none.
        key: U64 = lines.column("cpu") << np.uint64(32) | lines.column("pid")
        order = np.argsort(key, kind="stable")
        count = len(order)
        place = np.where((others & (act >= 0))[order], np.arange(count), count)
        behind = np.minimum.accumulate(place[::-1])[::-1]
        there = behind < count
        there[there] = key[order][behind[there]] == key[order][there]
        following = np.full(count, -1, np.int64)
        following[order[there]] = order[behind[there]]
        known = asked & (following >= 0)
        known[known] = act[following[known]] == Act.QUEUE
        dev = lines.column("dev")
        dev[known] = dev[following[known]]
        open_rows = np.flatnonzero(asked & (following < 0))
        if not len(open_rows):
            return lines, b""
        start = int(lines.column("start")[open_rows[0]])
        if len(lines.data) - start > _MOST_CARRIED or not open_rows[0]:
            return lines, b""
        row, line = int(open_rows[0]), int(lines.line[open_rows[0]])
        kept = [other for other in lines.others if other.line < line]
        return RecordLines(lines.data, lines.table[:, :row], kept, line), lines.data[start:]

    def _events(self, lines: RecordLines) -> Events:
        self._text.use(len(lines))
        for other in lines.others:
            number = self._lines + other.line + 1
            if other.kind == KINDS["bad event"]:
                self._bad_lines.add(number, other.text)
            elif not self.summary.take(other.text):
                self._other_lines.add(number, other.text)
        self._lines += lines.lines
        self.summary.count(lines)
        batch = batch_of(lines)
        of_request, size = self._requests.follow(lines)
        batch.head["action"][of_request] |= _OF_REQUEST
        batch.head["bytes"] = size
        self._cpus.update(np.unique(lines.column("cpu")[~lines.is_message]).tolist())
        # blkparse sorts by time: unnumbered records before the newest time of their CPU are there
        # twice, or of another trace.
        bare = np.flatnonzero((batch.head["sequence"] == 0) & ~lines.is_message)
        keep = np.ones(len(batch.head), np.bool_)
        for cpu in np.unique(batch.head["cpu"][bare]).tolist():
            rows = bare[batch.head["cpu"][bare] == cpu]
            times = batch.head["time"][rows].astype(np.int64)
            newest = np.maximum.accumulate(np.maximum(times, self._last.get(cpu, 0)))
            keep[rows] = times >= newest
            self._last[cpu] = int(newest[-1])
        self._unnumbered_repeats += int(np.count_nonzero(~keep))
        batch = batch if keep.all() else kept_of(batch, keep)
        named = np.flatnonzero((lines.table[COLUMNS["comm"] + 1] > 0) & ~lines.is_message)
        comm = texts(lines, "comm", COMM_BYTES, named)
        known = ~np.isin(comm, np.array(_NO_NAMES, comm.dtype))
        named, columns = named[known], {"comm": comm[known]}
        cpu, pid = lines.column("cpu")[named], lines.column("pid")[named]
        threads = TracepointRows(THREAD_NAMES, lines.time[named], cpu, pid, named, columns)
        names = translate([threads], self._names)
        events = Events.join(
            [names, self.events_of(batch, self.name, self._text.offset, self.reached)]
        )
        self.reached = max(self.reached, int(batch.head["time"].max(initial=0)))
        return events

    def _report(self) -> None:
        layout, bad, other = self._layout, self._bad_lines, self._other_lines
        self.left_out.pop(f"action {NOT_TOLD}", None)  # `Layout` counts them
        self.report_rest()
        if self._unnumbered_repeats:
            self.problem(
                f"{self._unnumbered_repeats} lines have earlier times than the lines before: a "
                "part of the text is there twice, or another trace follows; left out"
            )
        if layout is not None:
            for action, count in sorted(layout.left.items()):
                what = f"{count} records of {action} left out"
                self.remark(f"{what}: -f does not print where from or to")
            if layout.unread:
                self.problem(
                    f"left out: {layout.unread} lines with a time that do not have the layout of "
                    "the others"
                )
        if bad.count:
            self.problem(
                f"left out: {bad.count} lines of records that are not understood, {bad.first}"
            )
        if other.count:
            self.remark(f"{other.count} lines are no records, {other.first}")
        missing = sorted(set(range(max(self._cpus, default=0))) - self._cpus)
        if missing and (layout is None or "cpu" in layout.columns):
            self.remark(
                f"no line of CPU {', '.join(map(str, missing))}: it was idle or offline, or its "
                "file was missing when blkparse read the others"
            )
        self.summary.report()
        if self.summary.skipped and layout is not None and "number" not in layout.columns:
            self.problem(
                f"its summary says that {self.summary.skipped} records are missing (Skips); its "
                "lines do not tell where"
            )


# What blkparse does not print of a record, found by the records before it.
#
# A merge is of a bio or of a whole request, a completion of a request or of a bio without one: the
# category FS tells them apart in a record, and nothing does in its line. So bios are followed from
# their Q to their request (G, M, F), and requests to their C. The bytes of a passthrough request
# are printed at its D, and not at its C.

# Numbers: an IntEnum's members take ten times as long to compare.
_Q, _M, _F, _G, _R, _D, _C, _X = map(
    int,
    (
        *(Act.QUEUE, Act.BACKMERGE, Act.FRONTMERGE, Act.GETRQ),
        *(Act.REQUEUE, Act.ISSUE, Act.COMPLETE, Act.SPLIT),
    ),
)
_FOLLOWED = (_Q, _M, _F, _G, _R, _D, _C, _X)
_MOST = 1 << 20
"""Places that are followed at once; of more, which wait for records that are missing, all are given
up."""
_PASSTHROUGH = np.uint64(int(Category.PC) << CATEGORY_SHIFT)

Ends = dict[tuple[int, int], list[int]]
"""By device and first sector: the sectors behind the ends, the newest last."""


class Requests:
    """Bios without a request and requests without an end, by device and place."""

    def __init__(self) -> None:
        self._bios: Ends = {}
        self._waiting: Ends = {}
        self._issued: Ends = {}
        self._commands: defaultdict[tuple[int, int], deque[int]] = defaultdict(deque)
        self._queues: set[int] = set()
        """Devices with a Q."""
        self._request_based: set[int] = set()
        """Devices with requests."""

    def follow(self, lines: RecordLines) -> tuple[Bool, U64]:
        """Return (which merges and completions are of requests, sizes in bytes), (n,) each."""
        act, size = lines.act, lines.column("bytes").copy()
        dev, sector = lines.column("dev"), lines.column("sector")
        of_request = np.zeros(len(act), np.bool_)
        rows = np.flatnonzero(np.isin(act, _FOLLOWED))
        driver = (lines.column("action")[rows] & _PASSTHROUGH) != 0
        command = lines.column("command")
        for row in rows[driver].tolist():  # of a C the bytes are those of the D of its command
            key = int(dev[row]), int(command[row])
            if act[row] == _D:
                self._commands[key].append(int(size[row]))
            elif act[row] in (_C, _R) and (waiting := self._commands.get(key)):
                size[row] = waiting.popleft()
                if not waiting:
                    del self._commands[key]
        rows = rows[~driver]
        ends = sector[rows] + size[rows] // np.uint64(SECTOR_BYTES)
        columns = (act[rows], dev[rows], sector[rows], ends, lines.column("new_sector")[rows])
        found = [
            self._follow(a, (d, s), end, rest)
            for a, d, s, end, rest in zip(*(c.tolist() for c in columns), strict=True)
        ]
        of_request[rows] = found
        for held in (self._bios, self._waiting, self._issued):
            if len(held) > _MOST:
                held.clear()
        if len(self._commands) > _MOST:
            self._commands.clear()
        return of_request, size

    def _follow(self, act: int, place: tuple[int, int], end: int, rest: int) -> bool:
        """Take in one record; return whether it is of a request, where that is the question."""
        dev = place[0]
        if act == _Q:
            self._queues.add(dev)
            self._bios.setdefault(place, []).append(end)
        elif act == _X:
            # The newest bio at the place goes on behind `rest`.
            ends = self._bios.get(place, [])
            if longer := [one for one in ends if one > rest]:
                ends.remove(longer[-1])
                self._bios.setdefault((dev, rest), []).append(longer[-1])
                ends.append(rest)
        elif act in (_G, _F):
            _take(self._bios, place, end)
            self._request_based.add(dev)
            self._waiting[place] = [end]
        elif act == _M:
            # A request that is merged into another has its bios' requests behind it.
            return not _take(self._bios, place, end) and self._waiting.pop(place, None) is not None
        elif act == _D:
            _take(self._bios, place, end)
            self._waiting.pop(place, None)
            self._request_based.add(dev)
            self._issued.setdefault(place, []).append(end)
        elif act == _R:
            _take(self._issued, place, end)
            self._waiting[place] = [end]
        elif act == _C:
            return self._complete(place, end)
        return False

    def _complete(self, place: tuple[int, int], end: int) -> bool:
        """Return whether a completion is of a request. Its rest may complete later."""
        ends = self._issued.get(place)
        if ends:
            whole = ends.pop(ends.index(end)) if end in ends else ends.pop(0)
            if not ends:
                del self._issued[place]
            if place[1] < end < whole:
                self._issued.setdefault((place[0], end), []).append(whole)
            return True
        if _take(self._bios, place, end):
            return False
        return place[0] in self._request_based or place[0] not in self._queues


def _take(held: Ends, place: tuple[int, int], end: int) -> bool:
    ends = held.get(place)
    if not ends or end not in ends:
        return False
    ends.remove(end)
    if not ends:
        del held[place]
    return True


# What blkparse counted, by the summary at the end of its text, against what was read of it.

_SECTION = re.compile(rb"(CPU\d+|Total) \(.+\):")
_COUNT = re.compile(rb"(PC )?(?:Reads?|Writes?) ([A-Z][a-z]+): +([\d,.]+)([KMGP]?)")
_ENTRIES = re.compile(rb"Events \(.+\): ([\d,.]+)([KMGP]?) entries")
_SKIPS = re.compile(rb"Skips: ([\d,.]+)([KMGP]?) forward \(([\d,.]+)([KMGP]?) - .*")
_OTHER = re.compile(
    rb"(?:Throughput \(R/W\): |Input file .* added$|PC |Read depth|IO unplugs: |Allocation wait: "
    rb"|Dispatch wait: |Completion wait: )"
)
_COUNTED: dict[str, tuple[Act, ...]] = {
    "Queued": (Act.QUEUE,),
    "Dispatches": (Act.ISSUE,),
    "Requeued": (Act.REQUEUE,),
    "Completed": (Act.COMPLETE,),
    "Merges": (Act.BACKMERGE, Act.FRONTMERGE),
}
_NAMES = {
    "Queued": "queued bios",
    "Dispatches": "issues",
    "Requeued": "requeues",
    "Completed": "completions",
    "Merges": "merges",
    "entries": "events",
}


class Summary:
    """The counts of the summary, added up over devices and CPUs, and those of the text."""

    def __init__(self, source: ForeignSource) -> None:
        self._source = source
        self._said: Counter[str] = Counter()
        self._inexact: Counter[str] = Counter()
        self._found: Counter[str] = Counter()
        self._of_cpu = False
        self.skipped = 0
        """Records that blkparse missed, by their numbers."""

    def take(self, text: bytes) -> bool:
        """Take in a line; return whether it is of the summary, or what blkparse says beside it."""
        text = text.strip()
        if section := _SECTION.fullmatch(text):
            self._of_cpu = section[1] != b"Total"
            return True
        if skips := _SKIPS.fullmatch(text):
            self.skipped += _value(skips[3], skips[4])[0]
            return True
        entries = _ENTRIES.fullmatch(text)
        counts = list(_COUNT.finditer(text))
        said = [] if entries is None else [("entries", entries[1], entries[2])]
        for of_driver, what, digits, unit in (match.groups() for match in counts):
            if self._of_cpu and not of_driver and what.decode() in _COUNTED:
                said.append((what.decode(), digits, unit))
        for name, digits, unit in said:
            value, inexact = _value(digits, unit)
            self._said[name] += value
            self._inexact[name] += inexact
        return bool(counts or entries) or _OTHER.match(text) is not None

    def count(self, lines: RecordLines) -> None:
        act = lines.act
        self._found["entries"] += int(np.count_nonzero(act >= 0))
        plain = act[(lines.column("action") & _PASSTHROUGH) == 0]
        numbers = np.bincount(plain[plain >= 0], minlength=len(Act) + 1)
        for what, acts in _COUNTED.items():
            self._found[what] += int(sum(numbers[a] for a in acts))

    def report(self) -> None:
        """Add a problem with what does not add up; none where the text has no summary."""
        found = []
        for what, said in self._said.items():
            # A requeued request is issued again; releases differ in whether it counts twice.
            slack = self._inexact[what]
            slack += self._found["Requeued"] if what == "Dispatches" else 0
            if abs(said - self._found[what]) > slack:
                about = "about " if self._inexact[what] else ""
                found.append(f"{about}{said} {_NAMES[what]}, of which {self._found[what]} are here")
        if found:
            self._source.problem(
                f"its summary does not add up: it counts {'; '.join(found)}: lines were left out "
                "or are there twice, or it is another text's"
            )


def _value(digits: bytes, unit: bytes) -> tuple[int, int]:
    """Return (a printed count, by how much it may be too small): 1,234,567 is printed as 1,234K."""
    step = 1000 ** (b" KMGP".index(unit) if unit else 0)
    return int(re.sub(rb"\D", b"", digits) or b"0") * step, step - 1
