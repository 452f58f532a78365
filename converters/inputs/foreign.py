# SPDX-License-Identifier: Apache-2.0
"""What sources share that read other tools' recordings: the members of `Source`, and helpers."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import I64, U8, U64
from biotrail.converters.inputs.beginning import PathOrStream, name_of
from biotrail.converters.inputs.log import Part
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.kernel_names import ERRNO, IOERR
from biotrail.recorder.schema.records import NO_TAG, TIMESTAMP_BITS, Kind, schema

MAX_NS = 1 << 62  # sums of such a time and a duration still fit int64
NO_QUEUE = 0xFFFF
NO_TAGS = np.uint64(NO_TAG << 32 | NO_TAG << 48)
PART_EVENTS = 100_000
WITHOUT_BIOS = (
    "a request stands for its bios, from when it is allocated, inserted or issued on; which thread "
    "it is for is not known"
)


_RECORD = {
    "blktrace": "`blktrace -d DEVICE`",
    "ftrace text": "`trace-cmd record -C mono -e block` or `perf record -a -e 'block:*'`",
    "lttng": "`lttng enable-event --kernel 'block_*'`",
    "perf": "`perf record -a -e 'block:*'`",
    "perfetto": '`ftrace_events: "block/*"`',
    "trace-cmd": "`trace-cmd record -C mono -e block`",
}


def without_block_events(name: str, tool: str, held: str = "") -> LogFormatError:
    return LogFormatError(
        f"{name}: has no block events{held and f' ({held})'}, so there is no I/O in it: record "
        f"them with {_RECORD[tool]}, while there is I/O (docs/inputs.md)"
    )


class ForeignSource(ABC):
    """The members of a Source, for one that reads another tool's recording."""

    def __init__(self, given: PathOrStream, tool: str) -> None:
        self.name = name_of(given)
        self.tool = tool
        self.unknown: Counter[int] = Counter()
        self.unreadable_bytes = 0
        self.notes: list[tuple[str, dict[str, Any]]] = []
        self.losses: list[dict[str, Any]] = []
        self.damaged: list[dict[str, int]] = []
        self.problems: list[str] = []
        self.remarks: list[str] = []
        self.end: dict[str, Any] | None = {"reason": f"end of {tool}'s data"}
        self.interrupted = False
        self.size = -1
        # `backend`, by which a source without pointers is known, and the event set are the tool.
        self.header: dict[str, Any] = {
            "created_by": tool,
            "backend": tool,
            "kernel": {},
            "events": {"set": tool, "letters": [], "missing": []},
            "filters": {},
            "devices": [],
            "schema": schema(),
        }

    def problem(self, text: str) -> None:
        self.problems.append(f"{self.name}: {text}")

    def remark(self, text: str) -> None:
        self.remarks.append(f"{self.name}: {text}")

    def add_loss(self, start: int, end: int, cpu: int, count: int) -> None:
        """Add a loss window (ns). cpu, count: -1 unknown."""
        self.losses.append(
            {"start": start, "end": end, "cpu": cpu, "level": 0, "kind": 0, "count": count}
        )

    def add_damage(self, offset: int, start: int, end: int) -> None:
        """Add a window (ns) that cannot be read, met at an offset (bytes)."""
        self.damaged.append({"offset": offset, "start": start, "end": end})

    def set_clocks(self, time: int, realtime: int, uncertainty: int) -> None:
        self.header["clocks"] = clocks_at(time, realtime, uncertainty)

    def without_block_events(self, held: str = "") -> LogFormatError:
        """Return the error: the first problem is why, or what is `held` instead."""
        if self.problems:
            why = self.problems[0].removeprefix(f"{self.name}: ")
            return LogFormatError(f"{self.name}: no block event of it can be read: {why}")
        return without_block_events(self.name, self.tool, held)

    def parts(self) -> Iterator[Part]:
        """Yield all events, in parts of about PART_EVENTS, with `clock` None; can be called once.

        Problems, remarks, notes, losses and damaged windows are added on the way, some only at the
        end. Raises LogFormatError at the end if there was no block event.
        """
        pending: list[Events] = []
        complete_to = offset = 0
        for events, complete_to, offset in self.pieces():
            pending.append(events)
            if sum(map(len, pending)) >= PART_EVENTS:
                yield Part(_sorted(Events.join(pending)), complete_to, None, offset)
                pending = []
        yield Part(_sorted(Events.join(pending)), complete_to, None, offset)

    @abstractmethod
    def pieces(self) -> Iterator[tuple[Events, int, int]]:
        """Yield (events, ns to which no later ones are older, bytes read so far), as they are read.

        The last ones may have no event, and say up to when events were read.
        """


def _sorted(events: Events) -> Events:
    if len(events) < 2 or bool((events.ts[1:] >= events.ts[:-1]).all()):
        return events
    return events.take(np.argsort(events.ts, kind="stable"))


def clocks_at(time: int, realtime: int, uncertainty: int) -> dict[str, int]:
    """Return clock readings (ns) as in a log's header; `time` is MONOTONIC and BOOTTIME."""
    return {
        "monotonic": time,
        "boottime": time,
        "realtime": realtime,
        "uncertainty": uncertainty,
    }


def head_words(kind: Kind | U8, time: I64) -> U64:
    """Return the first word of records, (n,): the kind and the low bits of the time (ns)."""
    mask = np.uint64((1 << TIMESTAMP_BITS) - 1)
    return (time.view(np.uint64) & mask) | np.asarray(kind, np.uint64) << np.uint64(TIMESTAMP_BITS)


def status_words(error: NDArray[np.signedinteger[Any]]) -> U64:
    """Return the blk_status_t of each error (0 or an errno), (n,), in the upper 32 bits."""
    status = error.astype(np.int32)
    if status.any():
        for number, errno in ERRNO.items():
            status[error == -errno] = number
        status[error > 0] = IOERR  # a number of the driver's: passthrough on old kernels
    return status.view(np.uint32).astype(np.uint64) << np.uint64(32)


def records_at(data: U8, at: I64, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the records of `dtype` at the offsets `at`, all within `data`: (n,), a copy."""
    places = len(data) - dtype.itemsize + 1
    if places <= 0:
        return np.zeros(0, dtype)
    # Every offset's record, without a copy: records overlap by all but a byte.
    every: NDArray[Any] = np.ndarray((places,), f"V{dtype.itemsize}", data, strides=(1,))
    return every[at].view(dtype)
