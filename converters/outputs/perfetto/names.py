# SPDX-License-Identifier: Apache-2.0
"""Names of slices and their arguments: a contract, documented in docs/perfetto.md.

Arguments appear in SQL as `debug.<name>`. An argument at its usual value is left out, which SQL
sees as NULL: `without` says which value that is.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from biotrail.converters.events.context import Context
from biotrail.converters.events.distinct import distinct_values
from biotrail.converters.events.tables import STAGE_NAMES, Stage
from biotrail.converters.outputs.perfetto.place import Place

# Texts of slices' arguments that no kernel names: I/O priorities and sizes.

_UNITS = ("B", "KiB", "MiB", "GiB")
_IOPRIO_CLASSES = ("none", "realtime", "best-effort", "idle")


def ioprio_text(ioprio: int) -> str:
    """Return an I/O priority as ionice shows it, `best-effort 4`; empty for 0.

    ioprio: class << 13 | hint << 3 | level (IOPRIO_PRIO_VALUE_HINT).
    """
    kind, hint, level = ioprio >> 13, ioprio >> 3 & 0x3FF, ioprio & 7
    if not ioprio:
        return ""
    if kind >= len(_IOPRIO_CLASSES):
        return f"class {kind} level {level}"
    text = _IOPRIO_CLASSES[kind]
    if kind in (1, 2):
        text += f" {level}"
    return f"{text}, hint {hint}" if hint else text


def size_text(size: int) -> str:
    """Return bytes in the largest unit that leaves at least one: `4 KiB`; empty for 0."""
    if not size:
        return ""
    unit = min((size.bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{round(size / (1 << 10 * unit), 1):g} {_UNITS[unit]}"


@dataclass(frozen=True)
class Argument:
    """One argument of a slice. meaning, without: as docs/perfetto.md prints them."""

    name: str
    meaning: str
    without: str = ""
    """When the argument is left out; empty: never."""


_COMMON_FIRST = (
    Argument("latency_ns", "from begin to end: the slice's dur", "one was not seen; doubtful"),
    Argument("sector", "first 512-byte sector on the disk", "a request that has none"),
    Argument("bytes", "length when queued (bios), when first issued (requests)"),
)
_COMMON_LAST = (
    Argument("flags", "REQ_* flags, SYNC|FUA", "no flag is set"),
    Argument("status", "OK, IOERR, …"),
    Argument("certainty", "exact, interval, ambiguous, incomplete, lost"),
    Argument("device", "the disk, nvme0n1 (259:0)"),
    Argument("number", "unique in the log; the same in every output"),
    Argument("done_bytes", "bytes completed without error", "all of them, or the end was not seen"),
    Argument("requeues", "times that the driver gave it back", "0"),
    Argument("begin_not_seen", "true: it was under way when recording began", "it was seen"),
    Argument("begin_cut", "true: it was under way at the cut's begin, drawn from there", "no"),
    Argument("open_at_end", "true: drawn to the trace's end, as no end was seen", "it was seen"),
    Argument(
        "end_not_seen", "true: its end was lost; drawn to the last thing seen of it", "it was seen"
    ),
    Argument("host", "the root that it is below", "the trace holds one log"),
    Argument("own", "true: I/O of the recording itself, shown by --own-io", "others' I/O"),
    Argument("doubtful", "true: dur may be off by over 10 %, as its end may be another's", "no"),
)

BIO_ARGUMENTS = (
    Argument("process", "name of the thread that submitted it", "not known"),
    Argument(
        "title", "what its process calls itself, or which script it runs", "none, or not known"
    ),
    *_COMMON_FIRST,
    Argument("tid", "that thread", "not known"),
    Argument("pid", "its process (tgid)", "not known"),
    *_COMMON_LAST,
    Argument("partition", "where it was sent, nvme0n1p2 (259:2)", "the disk itself"),
    Argument("request", "number of the request that finished last", "no request served it"),
    Argument("parent", "number of the upper device's bio", "none is known"),
    Argument("fragments", "pieces that went to requests", "1"),
    Argument("requests", "requests that served it", "0 or 1"),
    Argument("ioprio", "I/O priority: best-effort 4", "none is set"),
    Argument("file", "path of the file whose pages it carries", "not known, or not recorded"),
    Argument("no_stack", "why its call stack is not drawn", "it is, or none was recorded"),
    Argument("for_process", "thread for which a worker queued it", "itself, or not known"),
    Argument("for_tid", "that thread", "as for_process"),
)
REQUEST_ARGUMENTS = (
    *_COMMON_FIRST,
    *_COMMON_LAST,
    Argument("bios", "how many bios it served"),
    Argument("others", "how many more, which filters left out, or as the recording's own", "0"),
    Argument("tag", "driver tag at the last issue", "it had none"),
    Argument("sched_tag", "scheduler tag", "it had none"),
    Argument("hctx", "hardware queue", "not known"),
    Argument("kind", "flush or passthrough", "an ordinary request"),
    Argument("parent", "number of the upper device's request", "none is known"),
    Argument("absorbed_by", "number of the request that it was merged into", "it was not"),
)
LOSS_ARGUMENTS = (
    Argument("cpu", "where", "not one CPU's"),
    Argument("kind", "what was lost: queue, issue, complete, …; unknown"),
    Argument("count", "how many records", "not known"),
    Argument("host", "the root that it is below", "the trace holds one log"),
)

PATH_BIO_ARGUMENTS = (
    Argument("what", "size, process and call: 4 KiB fio pread64", "it has these themselves"),
    Argument("call", "system call that queued it, or page fault", "not known, or not recorded"),
    Argument("fd", "the call's first argument: mostly a file descriptor", "no call is known"),
    Argument("dirtied_by", "thread that dirtied its first page", "not known, or not recorded"),
    Argument("dirtied_pid", "that thread's process", "as dirtied_by"),
    Argument("dirtied_before_ns", "time from there to its queueing", "as dirtied_by"),
    Argument("dirtied_in", "cgroup that it was in then", "not known, or not recorded"),
    Argument("purpose", "metadata, journal, swap or readahead", "data, none, or not recorded"),
    Argument("submission", "number of its io_uring request or aio iocb", "none, or not recorded"),
    Argument("limit_of", "cgroup whose limit (io.max) held it before Q", "none is known to have"),
    Argument("held_ns", "for how long, before the slice begins", "as limit_of, or not known"),
    Argument("held_for", "thread that submitted it, or waited for it", "as held_ns"),
)
PATH_REQUEST_ARGUMENTS = (
    Argument("completed_in", "interrupt, softirq or task", "not recorded"),
    Argument("irq", "number of the device's interrupt", "none came on that CPU"),
    Argument("issue_to_interrupt_ns", "from D to the interrupt", "as irq"),
    Argument("interrupt_to_softirq_ns", "from there to the BLOCK softirq", "as irq, or no softirq"),
    Argument("softirq_to_complete_ns", "from there to C", "completed outside of the softirq"),
    Argument("driver", "nvme, scsi or loop", "the driver's steps were not recorded"),
    Argument("setup_to_issue_ns", "from nvme's setup of the command to D", "no NVMe device"),
    Argument("issue_to_dispatch_ns", "from D to SCSI's dispatch, or loop's file I/O", "as driver"),
    Argument("dispatch_to_answer_ns", "from there, with NVMe from D, to the answer", "as driver"),
    Argument("answer_to_complete_ns", "from there to C", "as driver"),
    Argument("driver_done_to_complete_ns", "from nvme_complete_rq to C", "no NVMe device"),
    Argument("driver_errors", "SCSI dispatches that failed", "0"),
    Argument("driver_timeouts", "SCSI commands that timed out", "0"),
)
CALL_ARGUMENTS = (
    Argument("tid", "the thread"),
    Argument("fd", "the call's first argument: mostly a file descriptor"),
    Argument("result", "what it returned: mostly bytes", "it failed"),
    Argument("error", "ENOSPC, EIO, …", "it did not fail"),
    Argument("blocked_ns", "time off the CPU until woken", "0"),
    Argument("runnable_ns", "time ready to run, without a CPU", "0"),
    Argument("running_ns", "all other time"),
    Argument("queued_bios", "bios that it queued", "0"),
    Argument("waits", "times that it left its CPU to wait", "0"),
    Argument("commit", "transaction whose commit it waited for, the newest", "none is known"),
)
COMMIT_ARGUMENTS = (
    Argument("transaction", "id of the transaction in its journal"),
    Argument("tid", "thread that commits, jbd2/DEVICE"),
)
SUBMISSION_ARGUMENTS = (
    Argument("number", "that of its first bio; the bios have it as submission"),
    Argument("user_data", "of the SQE; of aio the address of the struct iocb"),
    Argument("tid", "thread that submitted it"),
    Argument("fd", "file descriptor of the SQE", "aio"),
    Argument("offset", "position in the file", "it has none"),
    Argument("bytes", "of all of its bios"),
    Argument("queued_bios", "bios that it queued"),
    Argument("mode", "who queued its first bio: inline, worker, sqpoll, kernel"),
    Argument("joined", "how that bio's request is known: iocb, worker, thread"),
    Argument("result", "of the completion: mostly bytes", "it failed, or is not known"),
    Argument("error", "EIO, …", "it did not fail"),
    Argument("submit_to_queue_ns", "from the submission to Q", "one of them is not known"),
    Argument("queue_to_end_ns", "from there to the end of the last bio", "as before"),
    Argument("end_to_complete_ns", "from there to the completion in the ring", "as before"),
    Argument("complete_to_reap_ns", "from there to the return of the call then", "as before"),
)
PAIR_ARGUMENTS = (
    Argument("number", "index of the record among the log's events"),
    Argument("process", "name of the thread of the second event"),
    Argument("tid", "that thread"),
    Argument("cpu", "where the second event was"),
    Argument(
        "key", "the key's fields and values", "the track has its name, or past 1,000 such keys"
    ),
    Argument("key0", "the key's first value, a number", "the track has the key's name"),
    Argument("key1", "its second value, likewise; 0 without one", "the track has the key's name"),
)
INTERRUPT_ARGUMENTS = (
    Argument("irq", "number of the device's interrupt", "none came on that CPU"),
    Argument("completions", "requests that were completed in it", "1"),
)


STAGE_ARGUMENTS = tuple(
    Argument(f"{name.replace('-', '_')}_ns", f"time in {name}", "it had no such stage")
    for name in (STAGE_NAMES[stage] for stage in Stage)
)
"""By Stage: the time spent in all of its turns, `Q2G_ns`."""

BIO, REQUEST, LOSS, STAGE, SLOWEST = "bio", "request", "loss", "stage", "slowest"
CALL, INTERRUPT, COMMIT, SUBMISSION = "call", "interrupt", "commit", "submission"
PAIR, ARROW, SLOW_CALL, STATE = "pair", "arrow", "slowest call", "state"
"""Categories. An ARROW is a slice of no length in another one, from which an arrow leads on."""

_CATEGORIES = (BIO, REQUEST, LOSS, STAGE, CALL, INTERRUPT, SUBMISSION, COMMIT, PAIR, ARROW)
CATEGORY_IIDS = {category: iid for iid, category in enumerate(_CATEGORIES, 1)}

QUEUED, IN_DEVICE = "queued", "in device"
"""Counters of bios from Q to D, and from D to C."""
SLOWEST_TRACK = "slowest I/Os"
"""Track of the slowest I/Os; `view` has the UI show it, with the two counters."""
SLOW_CALLS_TRACK = "slowest calls"
"""Track of the slowest system calls."""

FLUSH, DEVICE_FLUSH = "flush", "device flush"
"""Names of slices: an empty bio or request with PREFLUSH (fsync), and the flush request that the
driver gets for it."""
STAGE_TITLES: dict[Stage, str] = {**STAGE_NAMES, Stage.FLUSH: "flushing"}
"""Names of stage slices. No other slice has one of these names."""

BLOCKED, RUNNABLE = "blocked", "runnable"
"""Names of the slices in a call: off the CPU until woken, and from there until it ran. Where the
log says what a wait was for, its name is the reason instead of BLOCKED."""
COMMIT_PHASES = ("commit starting", "commit locking", "commit flushing", "commit logging")
"""Names of the slices in a commit, in this order."""

MARKS = ("queues bio", "to request", "to lower bio", "to slowest", "commit done")
TO_LIFE, OF_LIFE, TO_HOST = "to life", "of life", "to host"
"""Names of the slices of category ARROW, by what leads from them; to "commit done" arrows lead."""

INTERRUPT_PARTS = ("hard irq", "raised", "softirq")
"""Names of the slices in an interrupt: until the BLOCK softirq was raised, until it was entered,
and from there to the last completion."""

_LIFE = Argument("life", "number of the followed life that it is", "it was not followed")
GUEST_STAGE_ARGUMENTS = (
    Argument("to_host_ns", "of a guest's request: from its issue to the host's Q", "not linked"),
    Argument("host_queue_ns", "from there to D of the host's last bio", "as to_host_ns"),
    Argument("host_device_ns", "from there to the host's completion", "as to_host_ns"),
    Argument("from_host_ns", "from there to the guest's completion", "as to_host_ns"),
)
_GROUPS: tuple[tuple[str, tuple[Argument, ...]], ...] = (
    (BIO, BIO_ARGUMENTS),
    (BIO, STAGE_ARGUMENTS),
    (REQUEST, REQUEST_ARGUMENTS),
    (REQUEST, STAGE_ARGUMENTS),
    (LOSS, LOSS_ARGUMENTS),
    (BIO, PATH_BIO_ARGUMENTS),
    (REQUEST, PATH_REQUEST_ARGUMENTS),
    (CALL, CALL_ARGUMENTS),
    (COMMIT, COMMIT_ARGUMENTS),
    (SUBMISSION, SUBMISSION_ARGUMENTS),
    (INTERRUPT, INTERRUPT_ARGUMENTS),
    (PAIR, PAIR_ARGUMENTS),
    (BIO, (_LIFE,)),
    (REQUEST, (_LIFE, *GUEST_STAGE_ARGUMENTS)),
)
ARGUMENTS: dict[str, tuple[Argument, ...]] = {
    category: tuple(argument for of, group in _GROUPS if of == category for argument in group)
    for category, _ in _GROUPS
}
_ARGUMENT_NAMES = dict.fromkeys(argument.name for _, group in _GROUPS for argument in group)
ARGUMENT_IIDS: dict[str, int] = {name: iid for iid, name in enumerate(_ARGUMENT_NAMES, 1)}
"""Interned id of each argument's name, the same in all sequences: one byte each."""
assert len(ARGUMENT_IIDS) < 128

STAGE_IIDS: dict[Stage, int] = {stage: 1 + int(stage) for stage in Stage}
"""Interned event name of each stage; other names follow."""


class Detail(StrEnum):
    """How much is drawn of each bio. Counters and loss windows are always drawn."""

    FULL = "full"
    """Bios and requests, with all their arguments and stages."""
    STANDARD = "standard"
    """The same of the slowest; others without arguments, but for what is out of the usual, and
    requests without stages."""
    STAGES = "stages"
    """Bios with their stages, without arguments, and no requests."""
    BIOS = "bios"
    """Bios without stages and arguments, and no requests."""

    @property
    def requests(self) -> bool:
        """Whether requests are drawn, and arrows, interrupts and fine counters with them."""
        return self in (Detail.FULL, Detail.STANDARD)


class Colour(StrEnum):
    """What slices of bios and requests of one colour share.

    Slices of stages are coloured by name.
    """

    AUTO = "auto"
    """The family for I/O on stacked devices, the operation for all other."""
    OPERATION = "operation"
    FAMILY = "family"
    """A bio, its requests, and the bios and requests of lower devices that serve it."""


@dataclass(frozen=True)
class Options:
    """How a log is drawn."""

    detail: Detail = Detail.STANDARD
    """How much of each bio is drawn."""
    colour: Colour = Colour.AUTO
    every_arrow: bool = False
    """Draw arrows of all I/O, not of the slowest alone."""
    every_call: bool = False
    """Draw calls that neither queued nor waited for I/O, too."""
    ftrace: bool = False
    """Write requests as ftrace's block_io_start and block_io_done, too."""


STANDARD = Options()


@dataclass
class Interned:
    """Numbers texts in the order of their first use, from `first` on."""

    first: int = 1
    known: dict[str, int] = field(default_factory=dict)
    """Id by text, in the order of the ids; once cleared, texts are numbered anew."""

    def id(self, text: str) -> int:
        """Return the text's id, a new one at its first use, the next after the last."""
        return self.known.setdefault(text, self.first + len(self.known))

    def ids(self, values: NDArray[Any], text: Callable[[int], str | None]) -> NDArray[np.uint64]:
        """Return the id of each value's text (n,), 0 for an empty one; `text` is asked once each.

        values: integers (n,), seen as int64. New texts get ids in the order of the values.
        """
        found, _, of = distinct_values(values)
        texts = [text(one) for one in found.tolist()]
        return np.array([self.id(one) if one else 0 for one in texts], np.uint64)[of]

    def of_bytes(self, texts: NDArray[np.bytes_]) -> NDArray[np.uint64]:
        """Return the id of each text (n,), of which UTF-8 is decoded."""
        found, of = np.unique(texts, return_inverse=True)
        ids = [self.id(text.decode("utf-8", "replace")) for text in found.tolist()]
        return np.array(ids, dtype=np.uint64)[of.reshape(-1)]

    def text(self, iid: int) -> str:
        return list(self.known)[iid - self.first]


@dataclass
class Drawing:
    """What all slices of a log share while it is drawn."""

    context: Context
    options: Options
    place: Place
    names: Interned = field(default_factory=lambda: Interned(len(STAGE_IIDS) + 1))
    """Event names, behind those of stages."""
    strings: Interned = field(default_factory=Interned)
    """Values of text arguments."""
