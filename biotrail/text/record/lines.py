# SPDX-License-Identifier: Apache-2.0
"""Print a window's I/Os as lines: in the columns of biosnoop, or as JSON."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import I64, NEVER, Bios, Certainty, Lifecycles, LossWindows
from biotrail.converters.inputs.backlog import Skip
from biotrail.converters.lifecycles.operations import operations
from biotrail.converters.lifecycles.windows import sure_complete
from biotrail.recorder.schema.kernel_names import RWBS_FLAGS, RWBS_OPS, RWBS_OTHER
from biotrail.recorder.schema.records import NO_SECTOR
from biotrail.recorder.schema.strings import shown
from biotrail.text import units
from biotrail.text.printing import as_json

HEAD = (
    f"{'TIME(s)':<13} {'COMM':<15} {'PID':<7} {'DISK':<9} {'T':<5} {'SECTOR':<11} "
    f"{'BYTES':<8} {'QUE(ms)':>9} {'LAT(ms)':>9}"
)
_LETTERS = {name.lower(): letters for letters, name in RWBS_OPS.items()}
_NONE = "-"
_DOUBTED = {
    int(certainty): certainty.name.lower()
    for certainty in (Certainty.AMBIGUOUS, Certainty.INCOMPLETE, Certainty.LOST)
}
"""Names of the certainties that are noted in a line."""
_UNSEEN = "no completion seen"


def rwbs(context: Context, opf: int) -> str:
    """Return an operation and its flags in the kernel's letters: R, WS, FWFS, D (blk_fill_rwbs)."""
    flags = set(context.flag_names(opf).split("|"))
    before = "F" if "PREFLUSH" in flags else ""
    behind = "".join(letter for letter, name in RWBS_FLAGS.items() if name in flags)
    return before + _LETTERS.get(context.op_name(opf), RWBS_OTHER) + behind


class Text:
    """Lines for people. A line that is no I/O begins with `#`."""

    def __init__(self, context: Context, start: int) -> None:
        self._context, self._start = context, start
        self.head = [HEAD + (" FILE" if context.has_files else "")]

    def ios(self, window: Lifecycles, bios: Bios) -> Iterator[str]:
        context = self._context
        comms, pids = _tasks(window, bios)
        files = _files(context, bios.file) if context.has_files else None
        queued, served = _times(bios)
        for row, values in enumerate(
            zip(
                bios.complete.tolist(),
                comms,
                pids,
                _named(bios.dev, context.device_name),
                _named(bios.opf, lambda opf: rwbs(context, opf)),
                bios.sector.tolist(),
                bios.bytes.tolist(),
                queued.tolist(),
                served.tolist(),
                strict=True,
            )
        ):
            end, comm, pid, disk, letters, sector, size, before, device = values
            time = _NONE if end == NEVER else f"{(end - self._start) / 1e9:.6f}"
            at = _NONE if sector == NO_SECTOR else sector
            waited, took = (_NONE if ns == NEVER else f"{ns / 1e6:.3f}" for ns in (before, device))
            line = (
                f"{time:<13} {comm or '?':<15} {pid or _NONE:<7} {disk:<9} {letters:<5} {at:<11} "
                f"{size:<8} {waited:>9} {took:>9}"
            )
            if files is not None:
                line += f" {files[row] or _NONE}"
            yield shown(line + self._note(bios, row))

    def _note(self, bios: Bios, row: int) -> str:
        """Return what is unusual about a bio, in brackets: error, no completion, or a certainty."""
        status, certainty = int(bios.status[row]), int(bios.certainty[row])
        notes = [self._context.status_name(status)] if status else []
        notes += [_UNSEEN] if bios.complete[row] == NEVER else []
        notes += [_DOUBTED[certainty]] if certainty in _DOUBTED and not notes else []
        return f" [{', '.join(notes)}]" if notes else ""

    def skipped(self, skips: Sequence[Skip]) -> Iterator[str]:
        if skips:
            count = units.plural(sum(skip.bios for skip in skips), "I/O")
            span = self._span(skips[0].first_ns, skips[-1].last_ns)
            yield f"# skipped {count}, {span}: printing cannot keep up"

    def lost(self, loss: LossWindows) -> Iterator[str]:
        if len(loss):
            known = loss.count[loss.count >= 0]
            count = units.plural(int(known.sum()), "event") if len(known) else "events"
            span = self._span(int(loss.start.min()), int(loss.end.max()))
            yield f"# lost {count}, {span}: use a larger --buffer-size or fewer devices (-d)"

    def _span(self, first: int, last: int) -> str:
        begin, end = (max(ns - self._start, 0) / 1e9 for ns in (first, last))
        return f"from {begin:.6f} to {end:.6f} s"


class Json:
    """Lines of JSON, with the keys of `slow --json`."""

    def __init__(self, context: Context, *, own_io: bool = False) -> None:
        self._context, self._own_io = context, own_io
        self.head: list[str] = []

    def ios(self, window: Lifecycles, bios: Bios) -> Iterator[str]:
        codes, operation = operations(self._context, bios.opf, bios.bytes)
        comms, pids = _tasks(window, bios)
        named: dict[str, list[Any]] = {
            "device": _named(bios.dev, self._context.device_name),
            "partition": _named(bios.part, self._context.device_name),
            "flags": _named(bios.opf, self._context.flag_names),
            "status": _named(bios.status, self._context.status_name),
            "file": _files(self._context, bios.file),
        }
        sure = sure_complete(bios).tolist()
        for row in range(len(bios)):
            queue, issue, complete = (
                int(column[row]) for column in (bios.queue, bios.issue, bios.complete)
            )
            begun = queue != NEVER
            found = {
                "time": None if complete == NEVER else self._context.wall_clock(complete),
                "comm": comms[row],
                "pid": pids[row],
                "tid": int(bios.tid[row]) or None,
                "device": named["device"][row],
                "partition": None if bios.part[row] == bios.dev[row] else named["partition"][row],
                "operation": operation[int(codes[row])],
                "flags": named["flags"][row],
                "sector": None if bios.sector[row] == NO_SECTOR else int(bios.sector[row]),
                "bytes": int(bios.bytes[row]),
                "queue_ns": queue if begun else None,
                "issue_ns": issue - queue if begun and issue != NEVER else None,
                "latency_ns": sure[row] - queue if begun and sure[row] != NEVER else None,
                "doubtful": bool(bios.doubtful[row]),
                "status": named["status"][row],
                "certainty": Certainty(int(bios.certainty[row])).name.lower(),
                "file": named["file"][row],
            }
            yield as_json(found | ({"own": bool(bios.own[row])} if self._own_io else {}))

    def skipped(self, skips: Sequence[Skip]) -> Iterator[str]:
        """Yield {"skipped": {"ios", "begin_ns", "end_ns"}}, ns of CLOCK_MONOTONIC."""
        if skips:
            span = {"begin_ns": skips[0].first_ns, "end_ns": skips[-1].last_ns}
            yield as_json({"skipped": {"ios": sum(skip.bios for skip in skips), **span}})

    def lost(self, loss: LossWindows) -> Iterator[str]:
        """Yield {"lost": …}, whose `events` is null where no loss window has a count."""
        if len(loss):
            known = loss.count[loss.count >= 0]
            span = {"begin_ns": int(loss.start.min()), "end_ns": int(loss.end.max())}
            yield as_json({"lost": {"events": int(known.sum()) if len(known) else None, **span}})


def ended(bios: Bios) -> tuple[Bios, Bios]:
    """Return (bios with a completion, in the order of completions; bios without one)."""
    seen = bios.complete != NEVER
    done = bios.take(seen)
    return done.take(np.argsort(done.complete, kind="stable")), bios.take(~seen)


def _times(bios: Bios) -> tuple[I64, I64]:
    """Return per bio (n,) in ns: (Q to D, D to completion); NEVER where an end is not sure.

    For a bio that was never issued the second is from Q on.
    """
    complete = sure_complete(bios)
    issued, begun, ended = (c != NEVER for c in (bios.issue, bios.queue, complete))
    queued = np.where(issued & begun, bios.issue - bios.queue, NEVER)
    since = np.where(issued, bios.issue, bios.queue)
    served = np.where(ended & (issued | begun), complete - since, NEVER)
    return queued, served


def _named(numbers: np.ndarray[Any, Any], name: Callable[[int], str]) -> list[str]:
    """Return the name of each number; `name` is called once for each distinct one."""
    distinct, at = np.unique(numbers, return_inverse=True)
    names = [name(number) for number in distinct.tolist()]
    return [names[place] for place in at.reshape(-1).tolist()]


def _tasks(window: Lifecycles, bios: Bios) -> tuple[list[str | None], list[int | None]]:
    rows = bios.task.tolist()
    comm, tgid = window.tasks.comm, window.tasks.tgid
    return (
        [str(comm[row]) if row >= 0 else None for row in rows],
        [int(tgid[row]) if row >= 0 else None for row in rows],
    )


def _files(context: Context, rows: np.ndarray[Any, Any]) -> list[str | None]:
    """Return each row's path in `Context.files`; None: not known (-1), or a device's own pages."""
    paths: dict[int, str | None] = {}
    for row in np.unique(rows).tolist():
        file = context.files[row] if row >= 0 else None
        paths[row] = None if file is None or file.device else file.path
    return [paths[row] for row in rows.tolist()]
