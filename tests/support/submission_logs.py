# SPDX-License-Identifier: Apache-2.0
"""Made-up logs of io_uring and aio: bios with their submissions, and completions."""

from pathlib import Path
from typing import Any, BinaryIO

from biotrail.converters.events.path_tables import BioPaths
from biotrail.converters.events.submission_tables import Submissions
from biotrail.converters.pipeline import WINDOW_EVENTS, Trace
from biotrail.recorder.schema.records import Kind
from tests.support.path_logs import IO_SUBMIT, IO_URING_ENTER, PathLog
from tests.support.stack_logs import START

READ, WRITEV = 22, 2
"""Opcodes."""
FIXED, LATE, WRITES, AIO = 1, 2, 4, 8
"""Flags of a SUBMISSION record."""
INLINE, WORKER, SQPOLL = 0, 1, 2


class SubmissionLog(PathLog):
    """As PathLog; times are ns since START."""

    def ring_bio(
        self,
        at: int,
        end: int | None,
        req: int,
        submitted: int,
        tid: int = 42,
        *,
        by: int | None = None,
        entry: int = -1,
        flags: int = 0,
        call: int | None = None,
        **values: Any,
    ) -> None:
        """A bio of a request, of 4096 bytes; end None: in flight at the log's end.

        tid: thread that submitted; by: that queued, if another.
        """
        number = call or (IO_SUBMIT if flags & AIO else IO_URING_ENTER)
        runner = values.get("runner", INLINE)
        of_call = number if runner == INLINE else None
        self.bio(at, end, tid if by is None else by, call=of_call, entry=entry)
        said: dict[str, Any] = {"opcode": READ, "fd": 5, "length": 4096, "offset": 8192}
        if flags & AIO:
            said |= {"opcode": 0, "fd": 0xFFFFFFFF, "length": 0}
        said |= {"user_data": req + 1, **values}
        key = {"req": req, "submitted": START + submitted, "tid": tid, "flags": flags}
        self.add(Kind.SUBMISSION, at, bio=self.bios << 6, **key, **said)

    def completes(self, at: int, req: int, submitted: int, result: int = 4096, **more: Any) -> None:
        key = {"req": req, "submitted": START + submitted, "ring": 0x7000}
        self.add(Kind.RING_COMPLETE, at, **key, result=result, **more)

    def enters(self, entry: int, exit: int, tid: int = 42, *, number: int = IO_URING_ENTER) -> None:
        """A call of io_uring_enter that returned."""
        self.returns(entry, exit, tid, number=number, result=1, queued=1)


def submissions_of(
    source: Path | BinaryIO, window_events: int = WINDOW_EVENTS
) -> tuple[Submissions, BioPaths]:
    """The log's submissions and its bios' paths, all windows together."""
    windows = list(Trace(source).lifecycles(window_events))
    tables = [window.path for window in windows if window.path is not None]
    rows = Submissions.concatenate([one.submissions for one in tables])
    return rows, BioPaths.concatenate([one.bios for one in tables])
