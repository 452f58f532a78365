# SPDX-License-Identifier: Apache-2.0
"""Titles of the processes of a recording's threads, looked up while they run, for the log.

A title is what a process is called beside its name: what it set, or interpreter and script.
Command lines can hold secrets, so a title has only those parts of one that say which program it is:

| arguments | title |
|---|---|
| `postgres: checkpointer` | `postgres: checkpointer` |
| `redis-server *:6379` in one string | `redis-server *:6379` |
| `python3`, `-u`, `/srv/backup.py`, `--token=…` | `python3 backup.py` |
| `python3`, `-m`, `celery`, … | `python3 -m celery` |
| `java`, `-Xmx1g`, `-jar`, `/opt/kafka.jar`, … | `java -jar kafka.jar` |
| `java`, `-cp`, …, `kafka.Kafka`, … | `java kafka.Kafka` |
| `bash`, `-c`, … and all others | none |
"""

import os
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

from biotrail.recorder.log.names import Rows
from biotrail.recorder.output.series import keep_newest
from biotrail.recorder.output.writer import Job, WriterThread
from biotrail.recorder.schema.payloads import TitlesNote

MOST_CHARACTERS = 128
"""Of a title; longer ones are cut, and end with an ellipsis."""
MOST_OF_COMMAND_LINE = 1024
"""Likewise of a whole command line."""
_MOST_BYTES = 8192


class Process(NamedTuple):
    """A process as it was when it was looked at."""

    comm: str
    """Name of its first thread."""
    title: str
    """"": it has none."""


class _Interpreter(NamedTuple):
    """How an interpreter's arguments lead to what it runs; regular expressions."""

    names: str
    flags: str
    """Options without a value, or with the value in the same word."""
    valued: frozenset[str]
    """Options whose value is the next word."""
    saying: frozenset[str] = frozenset()
    """Options that say what the next word is, and belong to the title."""


_SCRIPTED = (
    _Interpreter(
        r"(?:python|pypy)[\d.]*",
        r"-[bBdEhiIOPqRsSuvVxX]+|-[WX].+",
        frozenset({"-W", "-X", "--check-hash-based-pycs"}),
        frozenset({"-m"}),
    ),
    _Interpreter(r"perl[\d.]*", r"-[acflnpstTuUvwWX]+|-[IMmCDxi0].*", frozenset({"-I"})),
    _Interpreter(
        r"j?ruby[\d.]*", r"-[alnpsSvw]+|-[IrWKE].+|--jit|--yjit", frozenset({"-I", "-r", "-C"})
    ),
    _Interpreter(r"php[\d.]*", r"-[nqH]+|-[dc].+", frozenset({"-d", "-c"}), frozenset()),
    _Interpreter(
        r"node(?:js)?", r"--[a-z-]+=.*", frozenset({"-r", "--require", "--import", "--loader"})
    ),
    _Interpreter(r"(?:ba|da|z|k|a)?sh", r"[-+][abefhkmnptuvxCEP]+|--(?:login|norc|noprofile|posix)",
                 frozenset({"-o", "+o", "-O", "+O"})),
    _Interpreter(
        r"java",
        r"-[DX].*|-verbose(?::.*)?|-(?:server|client)|-(?:ea|da|esa|dsa)(?::.*)?"
        r"|-(?:agentlib|agentpath|javaagent|splash):.*|--[a-z-]+=.*|--enable-preview",
        frozenset(
            {"-cp", "-classpath", "--class-path", "-p", "--module-path", "--upgrade-module-path"}
            | {"--add-modules", "--add-exports", "--add-opens", "--add-reads", "--limit-modules"}
            | {"--enable-native-access"}
        ),
        frozenset({"-jar", "-m", "--module"}),
    ),
)  # fmt: skip
"""Interpreters, with the options that are known: at any other one, nothing more is told."""
_TITLE = re.compile(r"[\w.+/-]+: \S")
"""How setproctitle(3) begins a title: the program's name, a colon, a space."""
_PRIVATE = re.compile(r"-|.*(?:=|://)")
"""Words that end a title, as they may hold a secret: options, assignments, URLs."""


def look(pid: int, thread: int, comm: str, whole: bool, proc: str = "/proc") -> Process | None:
    """Return what a process is called; None: that thread with that name is not there any more.

    Also where the numbers of processes are those of another namespace. whole: by command lines.
    """
    place = f"{proc}/{pid}"
    if _comm(f"{place}/task/{thread}") != comm:
        return None
    own = comm if thread == pid else _comm(place)
    try:
        with open(f"{place}/cmdline", "rb") as file:
            line = file.read(_MOST_BYTES)
    except OSError:
        return None
    if own is None:
        return None
    words = [one.decode("utf-8", "replace") for one in line.split(b"\0")]
    while words and not words[-1].strip():  # what a title leaves of its place, and the last NUL
        words.pop()
    if whole:
        return Process(own, _cut(" ".join(words), MOST_OF_COMMAND_LINE))
    return Process(own, title_of(words, own))


def title_of(words: Sequence[str], comm: str) -> str:
    """Return the title that a process's arguments give; "": none."""
    if not words:
        return ""
    first = words[0].strip()
    if " " in first:
        program, *rest = first.split()
        is_title = _TITLE.match(first) is not None
        # Behind a title is what is left of the arguments that it was written over. Else it is a
        # path with a space, or a command line in one word.
        if not is_title and (words[1:] or os.path.basename(program)[: len(comm)] != comm):
            return ""
        shown = list(takewhile(lambda word: not _PRIVATE.match(word), rest))
        return _cut(" ".join([program, *shown]), MOST_CHARACTERS) if shown else ""
    name = os.path.basename(first)
    for interpreter in _SCRIPTED:
        if re.fullmatch(interpreter.names, name):
            script = _script(interpreter, words[1:])
            return _cut(f"{name} {script}", MOST_CHARACTERS) if script else ""
    return ""


def _script(interpreter: _Interpreter, words: Sequence[str]) -> str:
    """Return what an interpreter runs, by its own arguments; "": it is not known."""
    at = 0
    while at < len(words):
        word = words[at]
        if word in interpreter.saying:
            return f"{word} {_base(words[at + 1])}" if at + 1 < len(words) else ""
        if word in interpreter.valued:
            at += 2
        elif word.startswith(("-", "+")):
            if not re.fullmatch(interpreter.flags, word):
                return ""
            at += 1
        else:
            return "" if _PRIVATE.match(word) or word.startswith("@") else _base(word)
    return ""


def _base(word: str) -> str:
    """Return the last part of a path; of a module, package or class all of it."""
    return "" if _PRIVATE.match(word) else os.path.basename(word.rstrip("/"))


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _comm(place: str) -> str | None:
    try:
        with open(f"{place}/comm", "rb") as file:
            return file.read(64).removesuffix(b"\n").decode("utf-8", "replace")
    except OSError:
        return None


AGAIN_NS = 2_000_000_000
"""Time between two looks at processes that are known already: titles are set, and change."""
_LOOK_NS = 10_000_000
"""Longest time that a look takes; what is left waits for the next."""
_MOST_PROCESSES = 1 << 14
_MOST_TITLES = 8
"""Titles of one process that are noted: some change with all that it does."""
_MOST_WAITING = 4096
_Thread = tuple[int, int, str]
"""Process, thread, and the thread's name."""


class TitleWatch:
    """Finds the titles of processes whose threads are named in the records."""

    def __init__(self, whole: bool, find: Callable[..., Process | None] = look) -> None:
        """whole: note whole command lines."""
        self._whole, self._find = whole, find
        self._waiting: deque[_Thread] = deque(maxlen=_MOST_WAITING)
        self._seen: dict[_Thread, None] = {}
        self._known: dict[int, tuple[Process, int]] = {}
        """By number what each process was last, and how many of its titles were noted."""
        self._again_ns = 0

    def job(self, writer: WriterThread) -> Job:
        """Return a job that notes titles of processes in the chunks that are written before it."""
        return writer.note("titles", partial(self.changes, writer.tasks))

    def changes(self, unread: deque[Rows]) -> TitlesNote | None:
        """Return a `titles` note of what is new; `unread`: TASK records, which are taken away."""
        until = time.monotonic_ns() + _LOOK_NS
        while unread:
            for _, ids, *comm in unread.popleft().tolist():
                name = b"".join(word.to_bytes(8, "little") for word in comm).partition(b"\0")[0]
                thread = (ids >> 32, ids & 0xFFFFFFFF, name.decode("utf-8", "replace"))
                if thread[0] and thread not in self._seen:
                    self._seen[thread] = None
                    keep_newest(self._seen, _MOST_PROCESSES)
                    self._waiting.append(thread)
        note: TitlesNote = {}
        while self._waiting and time.monotonic_ns() < until:
            thread = self._waiting.popleft()
            if (found := self._find(*thread, self._whole)) is not None:
                self._take(note, thread[0], found)
        if (now := time.monotonic_ns()) >= self._again_ns:
            self._again_ns = now + AGAIN_NS
            for pid in list(self._known):  # those that were not looked at for longest first
                if time.monotonic_ns() >= until:
                    break
                last, noted = self._known.pop(pid)
                found = self._find(pid, pid, last.comm, self._whole)
                if found is not None and noted < _MOST_TITLES:
                    self._known[pid] = last, noted
                    self._take(note, pid, found)
        return note or None

    def _take(self, note: TitlesNote, pid: int, found: Process) -> None:
        last, noted = self._known.get(pid, (Process(found.comm, ""), 0))
        is_new = found != last and bool(found.title or last.title)
        self._known[pid] = found, noted + is_new
        keep_newest(self._known, _MOST_PROCESSES)
        if is_new:
            note[str(pid)] = {"comm": found.comm, "title": found.title}
