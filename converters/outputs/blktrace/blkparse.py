# SPDX-License-Identifier: Apache-2.0
"""Print events as the lines that `blkparse` prints by default, for scripts that parse those."""

from collections.abc import Iterable, Iterator
from functools import lru_cache

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.events import Events
from biotrail.converters.events.tasks import TaskNames
from biotrail.converters.inputs.blktrace.format import ACT_MASK, CATEGORY_SHIFT, Act, Category
from biotrail.converters.outputs.blktrace.encode import Encoder

_LETTERS: dict[int, str] = {
    Act.QUEUE: "Q",
    Act.BACKMERGE: "M",
    Act.FRONTMERGE: "F",
    Act.GETRQ: "G",
    Act.REQUEUE: "R",
    Act.ISSUE: "D",
    Act.COMPLETE: "C",
    Act.PLUG: "P",
    Act.UNPLUG_IO: "U",
    Act.UNPLUG_TIMER: "UT",
    Act.INSERT: "I",
    Act.SPLIT: "X",
    Act.REMAP: "A",
}
_NO_NAME = "(null)"
"""What blkparse prints for a thread without a process note."""
_SECOND = 10**9
_PC = int(Category.PC)
"""The category of passthrough requests (BLK_TC_PC)."""


def lines(
    events: Iterable[tuple[Events, int]], context: Context, tasks: TaskNames | None = None
) -> Iterator[str]:
    """Yield a line, without newline, per event that blktrace has an action for.

    events: as `Trace.events` yields them. tasks: thread names that are known already; the names
    among the events are added to it. Times are relative to the first line, as blkparse's are.
    """
    encoder = Encoder(context)
    tasks = tasks or TaskNames()
    start = -1
    for window, _ in events:
        tasks.add_records(window)
        encoded = encoder.encode(window)
        if not len(encoded):
            continue
        start = int(encoded.ts[0]) if start < 0 else start
        head = encoded.head
        words = encoded.pdu.view(">u8")
        columns = (
            encoded.ts - start,
            head["device"],
            head["cpu"],
            head["sequence"],
            head["pid"],
            head["action"],
            head["sector"],
            head["bytes"],
            head["error"].view("<u2"),
            words[:, 0],
            words[:, 1],
        )
        rows = tasks.rows(head["pid"].astype(np.uint32), encoded.ts)
        comms = [*tasks.table().comm.tolist(), _NO_NAME]
        names = [comms[row] for row in rows.tolist()]
        for values in zip(*(c.tolist() for c in columns), names, strict=True):
            yield _line(*values)


@lru_cache
def _rwbs(category: int, data: bool) -> str:
    """Return RWBS letters such as `WS`, of category bits. data: the record has bytes."""
    text = "F" if category & Category.FLUSH else ""
    if category & Category.DISCARD:
        text += "D"
    elif category & Category.WRITE:
        text += "W"
    else:
        text += "R" if data else "N"
    for bit, letter in (
        (Category.FUA, "F"),
        (Category.AHEAD, "A"),
        (Category.SYNC, "S"),
        (Category.META, "M"),
    ):
        text += letter if category & bit else ""
    return text


def _line(
    time: int,
    dev: int,
    cpu: int,
    sequence: int,
    pid: int,
    action: int,
    sector: int,
    size: int,
    error: int,
    first: int,
    second: int,
    name: str,
) -> str:
    """Return one event's line, from its device's number to its details, as blkparse prints it.

    time: ns since the first line. sequence, action, sector, size, error: as in `struct
    blk_io_trace`. first, second: the payload's two words. name: the thread's. A remap (A) is shown
    on the device it went to, the lower half of `first`; it came from the upper half, sector
    `second`. The lower half is of X the sector at which the rest begins, of U and UT how many
    requests were held back.
    """
    letter, category = _LETTERS[action & ACT_MASK], action >> CATEGORY_SHIFT
    if letter == "A":
        dev = first & 0xFFFFFFFF
    head = (
        f"{dev >> 20:3d},{dev & 0xFFFFF:<3d} {cpu:2d} {sequence:8d} {time // _SECOND:5d}."
        f"{time % _SECOND:09d} {pid:5d} {letter:>2s} {_rwbs(category, size > 0):>3s} "
    )
    passthrough = category & _PC
    sectors = size >> 9
    if letter in "CR":
        if passthrough:
            return head + f"[{error}]"
        return head + (f"{sector} + {sectors} [{error}]" if sectors else f"{sector} [{error}]")
    if letter == "P":
        return head + f"[{name}]"
    if letter in ("U", "UT"):
        return head + f"[{name}] {first & 0xFFFFFFFF}"
    if letter == "A":
        origin = first >> 32
        return head + f"{sector} + {sectors} <- ({origin >> 20},{origin & 0xFFFFF}) {second}"
    if letter == "X":
        return head + f"{sector} / {first & 0xFFFFFFFF} [{name}]"
    if passthrough:
        return head + f"{size} [{name}]"
    return head + (f"{sector} + {sectors} [{name}]" if sectors else f"[{name}]")
