# SPDX-License-Identifier: Apache-2.0
"""Logs whose reads are charged to cgroups of units, containers and pods."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogWriter
from biotrail.recorder.log.chunks import Segment
from biotrail.recorder.schema.records import Kind
from tests.support import log_samples, stack_logs
from tests.support.stack_logs import DEV, START, clock, record

MS = 1_000_000


def write(
    path: Path,
    reads: Sequence[int],
    cgroups: Mapping[int, str],
    containers: Mapping[str, Any] | None = None,
    *,
    titles: Mapping[str, Mapping[str, str]] | None = None,
    late: bool = False,
) -> Path:
    """Writes a log with a read of 4096 bytes a millisecond, each charged to the cgroup in `reads`.

    containers, titles: payloads of the notes with names; the reader is process 42. late: the
    notes follow the events.
    """
    records = [stack_logs.task(START, 42, b"reader")]
    for number, cgroup in enumerate(reads):
        at, place = START + number * MS, {"dev": DEV, "sector": 8 * number}
        bio = (number + 1) << 6
        queued = {"bytes": 4096, "tid": 42, "part": DEV, "cgroup": cgroup}
        records.append(record(Kind.Q, at, bio=bio, **place, **queued))
        records.append(record(Kind.BIO_COMPLETE, at + MS // 2, bio=bio, **place))
    with path.open("wb") as stream:
        log = LogWriter(stream, stack_logs.HEADER)
        end = clock(START + len(reads) * MS)
        chunks = [lambda: log.write_chunk([Segment(0, 0, 0, log_samples.ring(records, 0))], end)]
        notes = [lambda: log.write_note("cgroups", {str(k): v for k, v in cgroups.items()})]
        if containers is not None:
            notes.append(lambda: log.write_note("containers", dict(containers)))
        if titles is not None:
            notes.append(lambda: log.write_note("titles", dict(titles)))
        for step in [*chunks, *notes] if late else [*notes, *chunks]:
            step()
        log.close({"clocks": end})
    return path
