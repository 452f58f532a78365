# SPDX-License-Identifier: Apache-2.0
"""Made-up logs with the path beside the block layer: calls, waits, dirtying tasks, interrupts."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.schema.records import Q_TURN_SHIFT, Kind
from tests.support.file_logs import names
from tests.support.log_samples import ring
from tests.support.stack_logs import DEV, HEADER, START, clock, record

ALL_PARTS = ("call", "time", "wait", "irq", "dirty", "driver", "uring")
WITH_REASONS = (*ALL_PARTS, "fs")
MS = 1_000_000
NEVER_AGO = 0xFFFFFFFF
WRITE = 1
PREAD, PWRITE, FSYNC = 17, 18, 74
IO_GETEVENTS, IO_SUBMIT, IO_URING_ENTER = 208, 209, 426
"""Numbers of x86-64."""


@dataclass
class PathLog:
    """Records of one CPU, which are written in the order of their times.

    Times that methods take are ns since START; `entry` is the call's, -1 if it is not known.
    """

    records: list[tuple[int, bytes]] = field(default_factory=list)
    bios: int = 0

    def add(self, kind: Kind, at: int, **values: Any) -> None:
        self.records.append((at, record(kind, START + at, **values)))

    def task(self, tid: int, comm: bytes, pid: int | None = None, at: int = 0) -> None:
        self.add(Kind.TASK, at, tid=tid, tgid=tid if pid is None else pid, comm=comm)

    def name(self, inode: int, *components: bytes) -> None:
        """The path of a file below its mount point."""
        rows = names(START, inode, *components)
        self.records += [(0, row) for row in rows]

    def bio(
        self,
        at: int,
        end: int | None,
        tid: int = 42,
        *,
        call: int | None = PREAD,
        entry: int = -1,
        own: bool = False,
        opf: int = 0,
        dirtied: tuple[int, int, bytes] | None = None,
        dirtied_in: int = 0,
        foreign: bool = False,
        flags: int = 0,
        size: int = 4096,
        part: int = DEV,
        args: Sequence[int] = (),
        turn: int = 0,
        cgroup: int = 0,
        limit: Mapping[str, int] | None = None,
        waiter: int = 0,
        remapped: tuple[int, int] | None = None,
    ) -> None:
        """A bio that no request serves; end None: in flight at the log's end.

        dirtied: (ns before Q, tid, name) of the task that dirtied its page; dirtied_in: its cgroup.
        flags: more of Q's. args: the first arguments of its call. turn: of its
        CALL; with call None, of the one that its Q refers to. limit: fields of its HELD record.
        waiter: thread of its BEHALF record; 0: it has none.
        remapped: (time, tid) of its remap from the partition `part`.
        """
        self.bios += 1
        bio = {"bio": self.bios << 6}
        place = {"sector": 8 * self.bios, "dev": DEV, "opf": opf}
        refers = turn << Q_TURN_SHIFT if call is None else 0
        task = {"tid": tid, "flags": int(own) | flags | refers, "cgroup": cgroup}
        if remapped is not None:
            begun, by = remapped
            self.add(Kind.A, begun, **bio, **place, bytes=size, part=DEV, from_dev=part, tid=by)
        self.add(Kind.Q, at, **bio, **place, bytes=size, part=part, **task)
        if limit is not None:
            self.add(Kind.HELD, at, **bio, **limit)
        if waiter:
            self.add(Kind.BEHALF, at, **bio, waiter=waiter, told_by=2)
        if call is not None:
            begun = {"entry": START + entry if entry >= 0 else 0}
            given = {f"arg{place}": value for place, value in enumerate(args)}
            given["turn"] = turn
            self.add(Kind.CALL, at, **bio, **begun, **given, number=call, foreign=foreign)
        if dirtied is not None:
            ago, by, comm = dirtied
            who = {"tid": by, "tgid": by, "comm": comm, "cgroup": dirtied_in}
            self.add(Kind.DIRTIED, at, **bio, ago=ago, **who)
        if end is not None:
            self.add(Kind.BIO_COMPLETE, end, **bio, **place)

    def returns(
        self,
        entry: int,
        exit: int,
        tid: int = 42,
        *,
        number: int = PREAD,
        result: int = 4096,
        blocked: int = 0,
        runnable: int = 0,
        file: int | None = None,
        other: int = 0,
        **values: Any,
    ) -> None:
        """The end of a timed call. file, other: of its descriptor; None: not recorded."""
        self.add(
            Kind.RETURN,
            exit,
            entry=START + entry,
            tid=tid,
            number=number,
            result=result,
            blocked=blocked,
            runnable=runnable,
            **values,
        )
        if file is not None:
            self.add(Kind.CALL_FILE, exit, inode=file, dev=DEV, generation=1, tid=tid, other=other)

    def waits(
        self,
        entry: int,
        out: int,
        woken: int,
        run: int,
        tid: int = 42,
        *,
        state: int = 2,
        stack: int | None = None,
        **values: int,
    ) -> None:
        """A wait inside a timed call, from `out` until `woken`; the thread runs again at `run`.

        stack: id of the kernel stack with which it left its CPU; None: not recorded.
        """
        times = {"blocked": woken - out, "runnable": run - woken}
        self.add(Kind.WAIT, run, entry=START + entry, tid=tid, state=state, **times, **values)
        if stack is not None:
            self.add(Kind.WAIT_STACK, run, tid=tid, stack=stack)

    def waits_alone(
        self,
        out: int,
        woken: int,
        run: int,
        tid: int = 42,
        *,
        number: int = PREAD,
        args: tuple[int, int, int] = (0, 0, 0),
        file: int | None = None,
        **values: Any,
    ) -> None:
        """A wait outside of a timed call. args: fd, length, offset. file: as for `returns`."""
        self.waits(-START, out, woken, run, tid, **values)
        fd, length, offset = args
        call = {"number": number, "fd": fd, "length": length, "offset": offset}
        self.add(Kind.WAIT_CALL, run, tid=tid, **call)
        if file is not None:
            self.add(Kind.CALL_FILE, run, inode=file, dev=DEV, generation=1, tid=tid)

    def commit(self, transaction: int, *times: int, tid: int = 900, dev: int = DEV) -> None:
        """A journal's commit: times of start, locking, flushing, logging, end; -1: not seen."""
        *phases, end = times
        names = ("started", "locking", "flushing", "logging")
        seen = {n: START + at if at >= 0 else 0 for n, at in zip(names, phases, strict=True)}
        self.add(Kind.COMMIT, end, **seen, transaction=transaction, tid=tid, dev=dev)

    def request(
        self,
        issue: int,
        end: int,
        *,
        tid: int = 42,
        entry: int = -1,
        call: int | None = None,
        opf: int = 0,
        file: int | None = None,
        dirtied: tuple[int, int, bytes] | None = None,
        **interrupt: Any,
    ) -> None:
        """A bio with a request, completed as the fields of its INTERRUPT record say.

        entry: of the call that queued it; -1: none is known. call: its number, or else by the
        direction of the bio. file: inode of its pages; None: not known. dirtied: as of `bio`.
        """
        self.bios += 1
        both = {"bio": self.bios << 6, "sector": 8 * self.bios, "bytes": 4096, "dev": DEV}
        both["opf"] = opf
        rq = {"rq": self.bios << 10}
        self.add(Kind.Q, issue - 2, **both, part=DEV, tid=tid)
        queued = {"bio": both["bio"]}
        if entry >= 0 or call is not None:
            number = call if call is not None else PWRITE if opf else PREAD
            begun = START + entry if entry >= 0 else 0
            self.add(Kind.CALL, issue - 2, **queued, entry=begun, number=number)
        if file is not None:
            self.add(Kind.FILE, issue - 2, **queued, inode=file, dev=DEV, generation=1)
        if dirtied is not None:
            ago, by, comm = dirtied
            self.add(Kind.DIRTIED, issue - 2, **queued, ago=ago, tid=by, tgid=by, comm=comm)
        self.add(Kind.START, issue - 1, **rq, **both)
        self.add(Kind.D, issue, **rq, **both, nr_bios=1)
        self.add(Kind.C, end, **rq, **both)
        ago = dict.fromkeys(("hard", "raised", "soft"), NEVER_AGO)
        if interrupt:
            self.add(Kind.INTERRUPT, end, **rq, **{**ago, **interrupt})

    def last_time(self) -> int:
        """Time of the last record, ns since START; 0: there is none."""
        return max((at for at, _ in self.records), default=0)

    def segments(self, begin: int, until: int, positions: dict[int, int]) -> list[Segment]:
        """The records after `begin` up to `until`, as a chunk has them.

        positions: bytes written so far, by ring; increased. Key 0: CPU 0.
        """
        rows = sorted(self.records, key=lambda row: row[0])
        place = positions.get(0, 0)
        data = ring([one for at, one in rows if begin < at <= until], place)
        positions[0] = place + len(data)
        return [Segment(0, 0, place, data)]

    def data(
        self,
        cuts: Sequence[int] = (),
        parts: Sequence[str] = ALL_PARTS,
        notes: Mapping[str, dict[str, Any]] = MappingProxyType({}),
        end: Mapping[str, Any] = MappingProxyType({}),
        losses: Sequence[dict[str, int]] = (),
        **header: Any,
    ) -> bytes:
        """The log's bytes; a new chunk begins at each of the times `cuts` (ns since START).

        notes: payload by name, written before the chunks. end: more facts for the END frame.
        losses: loss windows, times ns since START.
        """
        stream = io.BytesIO()
        host = {"host": {"name": "made", "machine": "x86_64"}, "path": {"parts": list(parts)}}
        head = {**HEADER, "stacks": None, **host, **header}
        writer = LogWriter(stream, {k: v for k, v in head.items() if v is not None}, level=1)
        for name, payload in notes.items():
            writer.write_note(name, payload)
        times = ("start", "end")
        lost = [{k: v + START if k in times else v for k, v in one.items()} for one in losses]
        if lost:
            writer.write_loss(lost)
        last = max(self.last_time(), *cuts, 0) + 1
        positions: dict[int, int] = {}
        begin = -1
        for until in [*sorted(set(cuts)), last]:
            writer.write_chunk(self.segments(begin, until, positions), clock(START + until + 1))
            begin = until
        writer.close({"clocks": clock(START + last + 1), **end})
        return stream.getvalue()

    def write(self, target: Path, *arguments: Any, **header: Any) -> Path:
        target.write_bytes(self.data(*arguments, **header))
        return target
