# SPDX-License-Identifier: Apache-2.0
"""Layouts of blkparse's text: its default one, and those of `-f`, which the lines have to show.

With `-f` a line has what the user asked for, in any order, for all actions alike. A column is known
by its form (a time has nine digits behind the point, a device a comma) or by its place; lines whose
columns can be told apart are rewritten in the default format, which is then read.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from biotrail.converters.inputs.beginning import is_text
from biotrail.recorder.schema.errors import LogFormatError

_RWBS = rb"F?[DWRN][FASMB]*"
_ACTION = rb"(?:UT|[QMFGSRDCPUTXAIB])"
_MARK = rb"\d+\.\d{9}"
_DEFAULT = re.compile(
    rb"^ *\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +(?:\S+,\S+ +)?(?:" + _ACTION + rb"|m) +" + _RWBS,
    re.MULTILINE,
)
_OWN_FORM = re.compile(
    rb"^ *\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +(?P<action>[PUTXACR])T? +(?P<rest>.*)",
    re.MULTILINE,
)
"""A line with the default format's head, of an action that has a form of its own behind it."""
_SAME_FOR_ALL = {
    action: re.compile(rb"\w+ +\d+ \+" + rest)
    for action, rest in {
        **dict.fromkeys((b"P", b"U", b"T", b"X"), rb""),
        b"A": rb" \d+ +[^< ]",
        **dict.fromkeys((b"C", b"R"), rb" \d+ +\[(?!-?\d+\])"),
    }.items()
}
"""What stands there where the user had all actions print the same."""
_MESSAGE = re.compile(rb" *\d+,\d+ +\d+ +\d+ +\d+\.\d{9} +\d+ +(?:\S+,\S+ +)?m +N ")
_SEPARATOR = rb"[\s,;|]+"
_TOKEN = re.compile(rb"\[[^\n]*\]|\d+,\d+(?=\s)|[^\s,;|]+")
_FORMS = {
    "time": re.compile(_MARK),
    "device": re.compile(rb"\d+,\d+"),
    "action": re.compile(_ACTION),
    "rwbs": re.compile(_RWBS),
    "plus": re.compile(rb"\+"),
    "number": re.compile(rb"\d+"),
    "error": re.compile(rb"\[-?\d+\]"),
}
_TIME_ANYWHERE = re.compile(_MARK)
_TRIED_LINES = 500
_MOST_CPUS = 4096
_LETTERS_ALONE = (b"Q", b"D", b"C")
"""Actions of which a column of actions has one."""
_NO_ROOM = (b"A", b"X")
"""Actions of which `-f` does not print what is needed: where from, and where the rest begins."""
_ADVICE = (
    "print it with blkparse's default format, or with -f '%D %c %s %T.%t %p %a %d %S + %n [%C]' "
    "and a line's end, or give the binary files themselves"
)


def is_blkparse(first: bytes) -> bool:
    if b"\0" in first and not is_text(first):
        return False
    if _DEFAULT.search(first):
        return True
    rows = [_TOKEN.findall(line) for line in first.splitlines()[:-1][:20]]
    told = [row for row in rows if _is_record(row)]
    actions = {word for row in told for word in row if _FORMS["action"].fullmatch(word)}
    return len(told) * 2 > len(rows) and len(actions) > 1 and not actions.isdisjoint(_LETTERS_ALONE)


def _is_record(tokens: Sequence[bytes]) -> bool:
    return all(any(map(_FORMS[form].fullmatch, tokens)) for form in ("time", "action"))


def layout_of(block: bytes, name: str) -> "Layout | None":
    """Return the layout of a text by its first block; None: blkparse's default format."""
    if _DEFAULT.search(block):
        # Most lines of an action have the form of all, or none; a few may be damaged.
        counts: Counter[tuple[bytes, bool]] = Counter()
        for line in _OWN_FORM.finditer(block):
            form = _SAME_FOR_ALL[line["action"]]
            counts[line["action"], form.match(line["rest"]) is not None] += 1
        if all(counts[action, True] <= counts[action, False] for action in _SAME_FOR_ALL):
            return None
    rows = [_TOKEN.findall(line) for line in block.splitlines()[:_TRIED_LINES]]
    rows = [row for row in rows if _is_record(row)]
    if not rows:
        raise LogFormatError(f"{name}: has no lines of blkparse: {_ADVICE}")
    return Layout(_columns(rows, name))


@dataclass
class Layout:
    """A layout of `-f`. columns: what each word of a line is; "" is not read.

    unread: lines with a time that have another layout. left: records that are left out, by action.
    """

    columns: list[str]
    remarks: list[str] = field(default_factory=list)
    unread: int = 0
    left: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        words = [
            rb"(?P<comm>\[?[^\n]*?\]?)"
            if c == "comm"
            else rb"(?P<%s>%s)" % (c.encode(), _WORDS[c])
            if c
            else rb"[^\s,;|]+"
            for c in self.columns
        ]
        self._pattern = re.compile(rb"^\s*" + _SEPARATOR.join(words) + rb"[\s,;|]*$")
        for missing, cost in (
            ("device", "all records count as one device's, 0:0"),
            ("cpu", "all records count as CPU 0's"),
            ("number", "what the trace lost is not known"),
            ("pid", "threads are not known"),
            ("comm", "threads have no names"),
            ("error", "all completions count as successful"),
        ):
            if missing not in self.columns:
                self.remarks.append(f"its layout (blkparse -f) has no {_SAID[missing]}: {cost}")

    def rewritten(self, block: bytes) -> bytes:
        """Return a block in the default format; lines that are no records are unchanged."""
        lines = []
        for line in block.split(b"\n")[:-1]:
            match = self._pattern.match(line)
            if match is None or _MESSAGE.match(line):
                other = match is None and not _MESSAGE.match(line) and _TIME_ANYWHERE.search(line)
                self.unread += bool(other)
                lines.append(b"" if other else line)
                continue
            found = match.groupdict()
            action = found["action"]
            if action in _NO_ROOM:
                self.left["A (remap)" if action == b"A" else "X (split)"] += 1
                action = b"?"
            comm = found.get("comm") or b""
            tail = b"[" + comm.removeprefix(b"[").removesuffix(b"]") + b"]"
            if action in (b"U", b"T", b"UT"):
                tail += b" 0"
            elif action != b"P":
                of_request = action in (b"C", b"R")
                last = (found.get("error") or b"[0]") if of_request else tail
                tail = b"%b + %b %b" % (found["sector"], found["sectors"], last)
            lines.append(
                b"%b %b %b %b %b %b %b %b"
                % (
                    found.get("device") or b"0,0",
                    found.get("cpu") or b"0",
                    found.get("number") or b"0",
                    found["time"],
                    found.get("pid") or b"0",
                    action,
                    found["rwbs"],
                    tail,
                )
            )
        return b"\n".join([*lines, b""])


_WORDS = {
    "time": _MARK,
    "device": rb"\d+,\d+",
    "action": _ACTION,
    "rwbs": _RWBS,
    "error": rb"\[-?\d+\]",
    **dict.fromkeys(("cpu", "number", "pid", "sector", "sectors"), rb"\d+"),
}
_SAID = {
    "device": "device (%D)",
    "cpu": "CPU (%c)",
    "number": "sequence number (%s)",
    "pid": "process id (%p)",
    "comm": "command (%C)",
    "error": "error ([%e])",
}


def _columns(rows: list[list[bytes]], name: str) -> list[str]:
    """Return what each word of a line is, as `Layout.columns`. Raises LogFormatError: unclear."""

    def unclear(what: str) -> LogFormatError:
        return LogFormatError(
            f"{name}: blkparse's text in a layout of -f, which does not tell {what}: {_ADVICE}"
        )

    width = min(map(len, rows))
    values = [[row[i] for row in rows] for i in range(width)]
    forms = [
        {what for what, form in _FORMS.items() if all(map(form.fullmatch, column))}
        for column in values
    ]
    columns = [""] * width
    for what in ("time", "device"):
        found = [i for i in range(width) if what in forms[i]]
        if len(found) > 1 or (what == "time" and not found):
            raise unclear(f"which of {len(found)} columns is the {what}")
        for i in found:
            columns[i] = what

    # Action and RWBS, known by letters that one alone can have.
    pairs = [
        (a, r)
        for a in range(width)
        for r in range(width)
        if a != r and "action" in forms[a] and "rwbs" in forms[r]
        if any(letter in values[a] for letter in _LETTERS_ALONE)
    ]
    # Q and C are no RWBS: where one occurs, the column is the action.
    sure = [(a, r) for a, r in pairs if "rwbs" not in forms[a]] or pairs
    if len(sure) != 1:
        raise unclear("which columns are the action (%a) and RWBS (%d)")
    action, rwbs = sure[0]
    columns[action], columns[rwbs] = "action", "rwbs"

    # Sector and sectors: around a +, or the two numbers behind the action.
    plus = [i for i, known in enumerate(forms) if "plus" in known]
    if len(plus) == 1 and 0 < plus[0] < width - 1:
        place = [plus[0] - 1, plus[0] + 1]
    else:
        place = [i for i in range(max(action, rwbs), width) if "number" in forms[i]]
        if len(place) == 2:
            sizes = {int(value) for value in values[place[1]]} - {0}
            if sizes and all(size % 512 == 0 for size in sizes):
                raise unclear("whether sizes are sectors (%n) or bytes (%N)")
    if len(place) != 2 or not all("number" in forms[i] for i in place):
        raise unclear("which columns are the sector (%S) and number of sectors (%n)")
    columns[place[0]], columns[place[1]] = "sector", "sectors"

    # CPU and number, which stand before the time, and thread, behind it.
    time, letters = columns.index("time"), min(action, rwbs)
    bare = [i for i in range(width) if not columns[i] and "number" in forms[i]]
    before = [i for i in bare if i < min(time, letters)]
    between = [i for i in bare if time < i < letters]
    if len(before) > 2 or len(between) > 1 or len(bare) > len(before) + len(between):
        raise unclear("what its columns of bare numbers are")
    for i in between:
        columns[i] = "pid"
    if len(before) == 2:
        columns[before[0]], columns[before[1]] = "cpu", "number"
    elif before:
        alone = values[before[0]]
        rises = len(alone) > 1 and all(a < b for a, b in pairwise(map(int, alone)))
        columns[before[0]] = "number" if rises else "cpu"
    for i in before:
        if columns[i] == "cpu" and max(map(int, values[i])) >= _MOST_CPUS:
            raise unclear("what its columns of bare numbers are")

    for i in range(width):
        if not columns[i] and "error" in forms[i]:
            columns[i] = "error"
    if not columns[-1] and not forms[-1]:
        columns[-1] = "comm"
    return columns
