# SPDX-License-Identifier: Apache-2.0
"""The schema: the only definition of the records that cross from the kernel.

A record is one C struct of its kind's fixed size, a multiple of eight bytes, little endian
on disk as in memory. Its first word, `head`, holds the kind in the top 8 bits and the low
56 bits of CLOCK_MONOTONIC in nanoseconds below. Records of one kind family share their
prefix (bio, sector, bytes, opf, dev), so that the compressor finds long matches.

`recorder/schema/generate.py` writes `bpf/records.h` and the tables in `docs/log-format.md` from
this schema; each log's header contains it, so that old logs stay readable.
"""

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

TIMESTAMP_BITS = 56
BLOCK_BYTES = 4096
"""No record crosses a multiple of this position in its ring; a PAD record fills the rest."""

STATE_IO_WAIT = 1 << 31
"""wait.state: the kernel counted the thread as waiting for I/O (in_iowait)."""

NO_TAG = 0xFFFF
"""Value of tag and sched_tag while the request has none."""

NO_SECTOR = (1 << 64) - 1
"""sector of a request without sectors, such as a flush: blk_rq_pos is (sector_t)-1."""

FIRST_UNKNOWN_TID = 1 << 31
"""Thread and process ids from here on, which no kernel gives (below 2^22), stand for ids that a
recording of another tool does not have: one for each name, this one for threads without a name."""

CHAIN_SLOTS = 6
"""Bio addresses in a CHAIN record."""

CHAIN_COUNT = 1 << 62
"""In a CHAIN slot, 2^62 + n is no address: the filters left out n bios of the chain there."""

Q_FLAG_OWN = 1
"""queue.flags: the recorder queued the bio, or the bio writes a file of the recorder."""
Q_FLAG_FILE = 2
"""queue.flags: the bio's first page is a file's, and the page cache does the I/O (--path dirty)."""
Q_FLAG_DEVICE = 4
"""queue.flags: the bio's first page is a block device's own, of the page cache (--path dirty)."""
Q_FLAG_SWAP = 8
"""queue.flags: the bio's first page is swapped in or out (--path dirty)."""
Q_TURN_SHIFT = 4
"""queue.flags from this bit on: `turn` of the CALL that this bio's call has already (--path time).

0: the Q has a CALL of its own, or no call."""
CALL_TURNS = 15
"""A thread's calls with a CALL record have the turns 1 to this, and 1 again."""
CALL_REPEAT_NS = 10_000_000
"""A Q refers to a CALL that is less than this older; then the call's CALL is written again."""

FILE_NAME_LAST = 1
"""file name.flags: this is the path's last record."""

FILE_NAME_CUT = 2
"""file name.flags, in the last record: directories above were not read."""

FILE_NAME_DELETED = 4
"""file name.flags: the file had been unlinked; the name is the last that it had."""

D_FLAG_CHAIN_CUT = 1
"""issue.flags: the request has more bios than its CHAIN records list."""

LIGHT_GOES_ON = 1
"""light.flags: the request goes on: a part of its bytes, or the data of a flush sequence."""
LIGHT_COARSE = 2
"""light.flags: since_start and since_issue are in units of 2^LIGHT_UNIT ns, not of 1 ns."""
LIGHT_UNIT = 10
LIGHT_NONE = (1 << 32) - 1
"""light.since_start and since_issue: the kernel has no such time of the request."""
LIGHT_MANY = (1 << 16) - 1
"""light.nr_bios: more than the program counts."""


HIT_BORN = 1
"""hit.flags: the object is followed from this hit on."""
HIT_ENDED = 2
"""hit.flags: the object ends here, and is followed no more."""
HIT_CUT = 4
"""hit.flags: hits of this life before this one had no room (`follow --slower`)."""


class Role(IntEnum):
    """hit.role: what passed."""

    ENTRY = 0
    """A function's entry."""
    RETURN = 1
    """A function's return."""
    EVENT = 2
    """A tracepoint."""


class Kind(IntEnum):
    """Record kinds. A number is never reused, for old logs hold it."""

    Q = 1
    G = 2
    M = 3
    F = 4
    X = 5
    A = 6
    BIO_COMPLETE = 7
    START = 8
    I = 9  # noqa: E741 - blktrace's letter
    R = 10
    RQ_MERGE = 11
    D = 12
    CHAIN = 13
    C = 14
    E = 15
    DONE = 16
    P = 17
    U = 18
    RQ_REMAP = 19
    STACK = 20
    FILE = 21
    CALL = 22
    RETURN = 23
    WAIT = 24
    INTERRUPT = 25
    DIRTIED = 26
    DRIVER = 27
    LIGHT = 28
    SUBMISSION = 29
    RING_COMPLETE = 30
    WAIT_STACK = 31
    TASK = 32
    CGROUP = 33
    FILE_NAME = 34
    COMMIT = 36
    HELD = 37
    CALL_FILE = 38
    BEHALF = 39
    HIT = 40
    PAIR = 41
    WAIT_CALL = 42
    BACKING = 43
    PAD = 255


@dataclass(frozen=True)
class Field:
    """One member of a record's struct.

    type: u8, u16, u32, u64, i32 or charN. unit: empty where the member has none. meaning: a
    phrase for the tables of docs/log-format.md and the log's header. count: elements of an array.
    """

    name: str
    type: str
    unit: str
    meaning: str
    count: int = 1

    @property
    def dtype(self) -> str:
        """The type as a numpy dtype string, little endian."""
        if self.type.startswith("char"):
            return f"S{self.type[4:]}"
        return {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i32": "<i4"}[self.type]


@dataclass(frozen=True)
class Record:
    """One kind of record.

    letter: blktrace's where it has one. tracepoint: empty where none fires it. meaning: a sentence
    for `bpf/records.h`, docs/log-format.md and the log's header.
    """

    kind: Kind
    letter: str
    name: str
    tracepoint: str
    meaning: str
    fields: tuple[Field, ...]
    part: str = ""
    """Part of the path beside the block layer (`record --path`); empty: the block layer's own."""
    other_part: str = ""
    """Another part that writes the record, too; empty: none does."""
    sites: bool = False
    """Whether the record is of sites that were chosen by declaration (`pairs`, `follow`)."""
    light: bool = False
    """Whether only the event set `light` has the record."""

    @cached_property
    def dtype(self) -> np.dtype[np.void]:
        """The packed structured dtype of one record: a member for each field, `head` first.

        A field of several elements (a CHAIN's bios) is a subarray.
        """
        return np.dtype(
            [
                (f.name, f.dtype, (f.count,)) if f.count > 1 else (f.name, f.dtype)
                for f in self.fields
            ]
        )

    @property
    def size(self) -> int:
        """Bytes of a record, a multiple of eight."""
        return self.dtype.itemsize

    def offset(self, field: Field) -> int:
        """Return a field's offset in bytes."""
        return int(self.dtype.fields[field.name][1])  # type: ignore[index]


HEAD = Field("head", "u64", "", "kind << 56 | low 56 bits of CLOCK_MONOTONIC, ns")
_BIO = Field("bio", "u64", "", "address of the struct bio: its identity until it is freed")
_RQ = Field("rq", "u64", "", "address of the struct request: its identity until it is freed")
_SECTOR = Field("sector", "u64", "sectors", "first 512-byte sector on dev; 2^64-1: none")
_BYTES = Field("bytes", "u32", "bytes", "data left to transfer; in C and E: data completed")
_OPF = Field("opf", "u32", "", "bi_opf or cmd_flags; decoded with the log's op enums")
_DEV = Field("dev", "u32", "dev_t", "disk, kernel encoding: major << 20 | minor; 0: unknown")
_TID = Field("tid", "u32", "", "running thread (kernel pid, initial namespace)")
_TAG = Field("tag", "u16", "", "driver tag; 65535: none")
_SCHED_TAG = Field("sched_tag", "u16", "", "scheduler tag; 65535: none")
_STATUS = Field("status", "i32", "", "blk_status_t; negative: an errno (kernels before 5.16)")

_NO_STACK = "-1: not asked for; other negative numbers: the errno that says why there is none"

_GENERATION = Field("generation", "u32", "", "i_generation: differs when an inode number is reused")

_BIO_PREFIX = (HEAD, _BIO, _SECTOR, _BYTES, _OPF, _DEV)
_RQ_PREFIX = (
    HEAD,
    _RQ,
    Field("bio", "u64", "", "first recorded bio of the request's chain; 0: none"),
    _SECTOR,
    _BYTES,
    _OPF,
    _DEV,
)
_MERGE = (
    *_BIO_PREFIX,
    _TID,
    Field("rq", "u64", "", "request that the bio joins; 0: the kernel does not report it"),
)
_FROM_SECTOR = Field("from_sector", "u64", "sectors", "first 512-byte sector before the remap")
_FROM_DEV = Field("from_dev", "u32", "dev_t", "device before the remap")

_ENTRY = Field("entry", "u64", "ns", "the call's entry: low 56 bits of CLOCK_MONOTONIC; 0: unknown")
_ARGS = tuple(
    Field(f"arg{n}", "u64", "", f"argument {n} of the call, as in its register") for n in range(4)
)
_NUMBER = Field("number", "i32", "", "number of the system call; -1: a page fault")
_FOREIGN = Field("foreign", "u8", "", "1: a call of a 32-bit program, whose numbers differ")
_NOT_SEEN = "0: not seen"
_AGO = "before this event; 4294967295: none"

_KIOCB = Field("req", "u64", "", "address of the io_kiocb or aio_kiocb: identity until completed")
_USER_DATA = Field("user_data", "u64", "", "of the SQE; of aio the address of the struct iocb")
_SUBMITTED = Field(
    "submitted", "u64", "ns", "submission or (flag 2) first Q: low 56 bits of CLOCK_MONOTONIC"
)

RECORDS: tuple[Record, ...] = (
    Record(
        Kind.Q,
        "Q",
        "queue",
        "block_bio_queue",
        "A bio enters the block layer.",
        (
            *_BIO_PREFIX,
            _TID,
            Field("part", "u32", "dev_t", "bi_bdev: the partition, or the disk itself"),
            Field("ioprio", "u16", "", "I/O priority: class << 13 | data"),
            Field("hint", "u8", "", "write life-time hint"),
            Field(
                "flags",
                "u8",
                "",
                "1: the recorder's own I/O, as far as known at Q; bits 4-7: turn of its call",
            ),
            Field("cgroup", "u64", "", "id of the charged cgroup (inode of its directory)"),
            Field("page", "u64", "", "address of the first struct page; 0: no data"),
        ),
    ),
    Record(
        Kind.G,
        "G",
        "getrq",
        "block_getrq",
        "A request was allocated for a bio.",
        (*_BIO_PREFIX, _TID),
    ),
    Record(
        Kind.M,
        "M",
        "back merge",
        "block_bio_backmerge",
        "A bio is about to join a request's end.",
        _MERGE,
    ),
    Record(
        Kind.F,
        "F",
        "front merge",
        "block_bio_frontmerge",
        "A bio is about to join a request's start.",
        _MERGE,
    ),
    Record(
        Kind.X,
        "X",
        "split",
        "block_split",
        "A bio's front was split off: this record's bio is the front piece.",
        (
            *_BIO_PREFIX,
            _TID,
            Field("parent", "u64", "", "bi_private of the front piece: the bio that was split"),
            Field("new_sector", "u64", "sectors", "the kernel's argument; wraps at 2^32"),
        ),
    ),
    Record(
        Kind.A,
        "A",
        "remap",
        "block_bio_remap",
        "A bio was redirected to another device or from a partition to its disk.",
        (
            *_BIO_PREFIX,
            _TID,
            _FROM_SECTOR,
            _FROM_DEV,
            Field("part", "u32", "dev_t", "bi_bdev after the remap"),
        ),
    ),
    Record(
        Kind.BIO_COMPLETE,
        "c",
        "bio complete",
        "block_bio_complete",
        "A bio ended without a request: bio-based devices, early failures.",
        (*_BIO_PREFIX, _STATUS),
    ),
    Record(
        Kind.START,
        "s",
        "start",
        "block_io_start",
        "A request starts to be accounted: a new generation of its address (6.5 and later).",
        (*_RQ_PREFIX, _TAG, _SCHED_TAG),
    ),
    Record(
        Kind.I,
        "I",
        "insert",
        "block_rq_insert",
        "A request was inserted into a scheduler or software queue.",
        (*_RQ_PREFIX, _TAG, _SCHED_TAG),
    ),
    Record(
        Kind.R,
        "R",
        "requeue",
        "block_rq_requeue",
        "The driver returned a request to the queue.",
        (*_RQ_PREFIX, _TAG, _SCHED_TAG),
    ),
    Record(
        Kind.RQ_MERGE,
        "m",
        "request merge",
        "block_rq_merge",
        "This request was absorbed by its neighbour; it has no further events.",
        (*_RQ_PREFIX, _TAG, _SCHED_TAG),
    ),
    Record(
        Kind.D,
        "D",
        "issue",
        "block_rq_issue",
        "A request is issued to the driver. CHAIN records with the same rq and head time follow.",
        (
            *_RQ_PREFIX,
            _TAG,
            _SCHED_TAG,
            Field("hctx", "u16", "", "hardware queue; 65535: unknown"),
            Field("ioprio", "u16", "", "I/O priority: class << 13 | data"),
            Field("nr_bios", "u16", "", "recorded bios in the chain, the head included"),
            Field("hint", "u8", "", "write life-time hint"),
            Field("flags", "u8", "", "1: the chain was cut: CHAIN records do not list all bios"),
        ),
    ),
    Record(
        Kind.CHAIN,
        "b",
        "chain",
        "block_rq_issue",
        "Continues D: the bios after the head, in order.",
        (
            HEAD,
            _RQ,
            Field(
                "bios",
                "u64",
                "",
                f"{CHAIN_SLOTS} bio addresses; 0: slot not used; 2^62 + n: n bios that the filters "
                "left out",
                count=CHAIN_SLOTS,
            ),
        ),
    ),
    Record(
        Kind.C,
        "C",
        "complete",
        "block_rq_complete",
        "Bytes of a request were completed; bio and sector are those before the completion.",
        (*_RQ_PREFIX, _STATUS),
    ),
    Record(
        Kind.E,
        "E",
        "error",
        "block_rq_error",
        "A completion failed; follows its C.",
        (*_RQ_PREFIX, _STATUS),
    ),
    Record(
        Kind.DONE,
        "d",
        "done",
        "block_io_done",
        "A request is no longer accounted; further events of it may follow.",
        (HEAD, _RQ, _DEV, Field("reserved", "u32", "", "zero")),
    ),
    Record(
        Kind.P,
        "P",
        "plug",
        "block_plug",
        "A task holds back its I/O in a plug.",
        (HEAD, _DEV, _TID),
    ),
    Record(
        Kind.U,
        "U",
        "unplug",
        "block_unplug",
        "A task flushes its plug: the I/O held back is submitted.",
        (
            HEAD,
            _DEV,
            _TID,
            Field("depth", "u32", "requests", "requests that were held back"),
            Field("explicit", "u32", "", "1: explicit, as by blk_finish_plug(); 0: by schedule()"),
        ),
    ),
    Record(
        Kind.RQ_REMAP,
        "a",
        "request remap",
        "block_rq_remap",
        "A request was handed to a lower device.",
        (*_RQ_PREFIX, _FROM_DEV, _FROM_SECTOR),
    ),
    Record(
        Kind.STACK,
        "S",
        "stack",
        "block_bio_queue",
        "Call stacks at Q: follows its Q with the same head time, if stacks are recorded.",
        (
            HEAD,
            _BIO,
            Field("kernel", "i32", "", f"id of the kernel stack; {_NO_STACK}"),
            Field("user", "i32", "", f"id of the user stack; {_NO_STACK}"),
        ),
    ),
    Record(
        Kind.FILE,
        "f",
        "file",
        "block_bio_queue",
        "The file of a bio's pages: follows its Q with the same head time, if files are recorded.",
        (
            HEAD,
            _BIO,
            Field(
                "inode", "u64", "", "inode of the first page; of a block device's own page: dev_t"
            ),
            Field("dev", "u32", "dev_t", "s_dev of the file system; 0: a block device's own page"),
            _GENERATION,
        ),
    ),
    Record(
        Kind.HELD,
        "l",
        "held",
        "block_bio_queue",
        "A cgroup's limit (blk-throttle) held a bio before its Q: follows it, same head time.",
        (
            HEAD,
            _BIO,
            Field("cgroup", "u64", "", "id of the cgroup whose limit it is; 0: not known"),
            Field("bps", "u64", "bytes/s", "that limit, of the bio's direction; 2^64-1: none"),
            Field("iops", "u32", "", "that limit in bios a second; 2^32-1: none"),
            Field("limits", "u32", "", "cgroups with a limit, from the bio's own upwards"),
        ),
    ),
    Record(
        Kind.BEHALF,
        "o",
        "behalf",
        "block_bio_queue",
        "A thread waits for a bio that a kernel thread queues: follows its Q, same head time.",
        (
            HEAD,
            _BIO,
            Field("waiter", "u32", "", "that thread (kernel pid, initial namespace)"),
            Field("told_by", "u32", "", "1: iomap's direct I/O, 2: submit_bio_wait()"),
        ),
    ),
    Record(
        Kind.BACKING,
        "B",
        "backing",
        "block_bio_queue",
        "A loop device's worker queues a bio for a request: follows its Q, same head time.",
        (
            HEAD,
            _BIO,
            Field("rq", "u64", "", "address of that device's struct request"),
        ),
    ),
    Record(
        Kind.CALL,
        "y",
        "call",
        "block_bio_queue",
        "The system call that queues a bio: follows its Q with the same head time (--path call). "
        "Of a timed call it is written once; the Q of its further bios have its turn.",
        (
            HEAD,
            _BIO,
            _ENTRY,
            *_ARGS,
            _NUMBER,
            _FOREIGN,
            Field("turn", "u8", "", "1 to 15: further bios of the call refer to it; 0: none does"),
            Field("reserved", "char2", "", "zero"),
        ),
        part="call",
    ),
    Record(
        Kind.RETURN,
        "Y",
        "return",
        "sys_exit",
        "A system call ends that queued a bio, waited, or took long (--path time).",
        (
            HEAD,
            _ENTRY,
            Field("blocked", "u64", "ns", "off the CPU until woken, all waits"),
            Field("runnable", "u64", "ns", "ready to run, but not running"),
            Field("offset", "u64", "", "argument 3, such as the offset of pread64"),
            Field("fd", "u32", "", "argument 0, low half: mostly the file descriptor"),
            Field(
                "length",
                "u32",
                "",
                "argument 2, low half: mostly the length; of ioctl argument 1, the command",
            ),
            Field("result", "i32", "", "what it returned, low half; negative: an errno"),
            _TID,
            _NUMBER,
            Field("queued", "u16", "bios", "bios that it queued; 65535: that many or more"),
            Field("waits", "u8", "", "times that it left its CPU to wait; 255: that often or more"),
            _FOREIGN,
        ),
        part="time",
    ),
    Record(
        Kind.CALL_FILE,
        "k",
        "call file",
        "sys_exit",
        "The file of a call's descriptor: follows its return, or the wait of a call that is not "
        "timed, with the same head time and thread.",
        (
            HEAD,
            Field("inode", "u64", "", "inode of the open file; of a block device: dev_t"),
            Field("dev", "u32", "dev_t", "s_dev of the file system; 0: a block device"),
            _GENERATION,
            _TID,
            Field("other", "u32", "", "1: no file but what inode names, in 7 bytes; 2: a pipe"),
        ),
        part="time",
        other_part="wait",
    ),
    Record(
        Kind.WAIT,
        "w",
        "wait",
        "sched_switch",
        "A thread runs again after a wait: for I/O or in state D, or in a timed call that had "
        "queued a bio (--path wait).",
        (
            HEAD,
            _ENTRY,
            Field("blocked", "u64", "ns", "from leaving the CPU to the wake-up"),
            Field("runnable", "u64", "ns", "from the wake-up to this event"),
            _TID,
            Field(
                "state",
                "u32",
                "",
                "the thread's state (TASK_*) while it waited; 2^31: the kernel counts it as "
                "waiting for I/O (in_iowait)",
            ),
            Field("waker", "u32", "", "thread that ran on the CPU of the wake-up"),
            Field("context", "u32", "", "of the wake-up; 0: task, 1: softirq, 2: interrupt"),
            Field("ran", "u32", "", "thread that ran on this CPU until this event; 0: idle"),
            Field("ran_pid", "u32", "", "its process"),
        ),
        part="wait",
    ),
    Record(
        Kind.WAIT_CALL,
        "n",
        "wait call",
        "sched_switch",
        "The call of a wait whose call is not timed: follows its wait with the same head time and "
        "thread (--path wait).",
        (
            HEAD,
            Field("offset", "u64", "", "argument 3, such as the offset of pread64"),
            Field("fd", "u32", "", "argument 0, low half: mostly the file descriptor"),
            Field("length", "u32", "", "argument 2, low half: mostly the length"),
            _TID,
            Field(
                "number",
                "i32",
                "",
                "system call number; -1: page fault; -2: a kernel thread, or one of io_uring's; "
                "-3: this kernel does not tell",
            ),
            _FOREIGN,
            Field("reserved", "char7", "", "zero"),
        ),
        part="wait",
    ),
    Record(
        Kind.INTERRUPT,
        "h",
        "interrupt",
        "block_rq_complete",
        "How a completion came: follows its C with the same head time (--path irq).",
        (
            HEAD,
            _RQ,
            Field("hard", "u32", "ns", f"entry of the device's interrupt, {_AGO}"),
            Field("raised", "u32", "ns", f"raise of the BLOCK softirq, {_AGO}"),
            Field("soft", "u32", "ns", f"entry of the BLOCK softirq, {_AGO}"),
            Field("irq", "u32", "", "number of the device's interrupt; 0: none"),
            Field("context", "u32", "", "where C happened; 0: task, 1: softirq, 2: interrupt"),
            Field("reserved", "u32", "", "zero"),
        ),
        part="irq",
    ),
    Record(
        Kind.DIRTIED,
        "t",
        "dirtied",
        "writeback_dirty_folio",
        "Who dirtied a bio's first page: follows its Q with the same head time (--path dirty).",
        (
            HEAD,
            _BIO,
            Field("ago", "u64", "ns", "from dirtying the page to this event, to a tick"),
            _TID,
            Field("tgid", "u32", "", "process"),
            Field("comm", "char16", "", "name when it dirtied the page, NUL padded"),
            Field("cgroup", "u64", "", "id of the cgroup that it was in then; 0: not known"),
        ),
        part="dirty",
    ),
    Record(
        Kind.WAIT_STACK,
        "j",
        "wait stack",
        "sched_switch",
        "What a wait was for: follows its wait with the same head time and thread (--path fs).",
        (
            HEAD,
            _TID,
            Field(
                "stack",
                "i32",
                "",
                "id of the kernel stack with which the thread left its CPU; negative: the errno "
                "that says why there is none; -11: there were too many",
            ),
        ),
        part="fs",
    ),
    Record(
        Kind.COMMIT,
        "z",
        "commit",
        "jbd2_end_commit",
        "A commit of a journal (jbd2) ends (--path fs). Times are low 56 bits of CLOCK_MONOTONIC.",
        (
            HEAD,
            Field("started", "u64", "ns", f"jbd2_start_commit; {_NOT_SEEN}"),
            Field("locking", "u64", "ns", f"jbd2_commit_locking; {_NOT_SEEN}"),
            Field("flushing", "u64", "ns", f"jbd2_commit_flushing; {_NOT_SEEN}"),
            Field("logging", "u64", "ns", f"jbd2_commit_logging; {_NOT_SEEN}"),
            Field("dev", "u32", "dev_t", "device of the file system, a partition or a disk"),
            Field("transaction", "u32", "", "the transaction's id (t_tid)"),
            Field("tid", "u32", "", "thread that commits: jbd2/DEVICE"),
            Field("reserved", "u32", "", "zero"),
        ),
        part="fs",
    ),
    Record(
        Kind.SUBMISSION,
        "u",
        "submission",
        "block_bio_queue",
        "The io_uring request or aio iocb of a bio: follows its Q with the same head time "
        "(--path uring).",
        (
            HEAD,
            _BIO,
            _KIOCB,
            _USER_DATA,
            _SUBMITTED,
            Field("offset", "u64", "bytes", "position in the file at Q; 2^64-1: none"),
            Field("length", "u32", "bytes", "of the SQE; 0: not known, as of vectors and aio"),
            Field("fd", "u32", "", "of the SQE; with flag 1 an index; 4294967295: not known (aio)"),
            Field("tid", "u32", "", "thread that submitted, or with flag 2 queued the first bio"),
            Field("opcode", "u8", "", "IORING_OP_*; of aio 0"),
            Field("runner", "u8", "", "who queued it; 0: inline, 1: io-wq, 2: sqpoll, 3: kernel"),
            Field("joined", "u8", "", "known by 0: the bio's iocb, 1: the worker, 2: the thread"),
            Field(
                "flags",
                "u8",
                "",
                "1: registered file; 2: submission not seen; 4: the bio writes; 8: aio",
            ),
        ),
        part="uring",
    ),
    Record(
        Kind.RING_COMPLETE,
        "r",
        "ring complete",
        "io_uring_complete",
        "A request completes of which a bio was recorded: its CQE is written (--path uring).",
        (
            HEAD,
            _KIOCB,
            _USER_DATA,
            _SUBMITTED,
            Field("ring", "u64", "", "address of the io_ring_ctx or kioctx"),
            Field("result", "i32", "", "bytes, or another result; negative: an errno"),
            _TID,
            Field("setup", "u32", "", "the ring's flags (IORING_SETUP_*); of aio 0"),
            Field("reserved", "char4", "", "zero"),
        ),
        part="uring",
    ),
    Record(
        Kind.DRIVER,
        "v",
        "driver",
        "block_rq_complete",
        "What the driver did with a request: follows its C with the same head time.",
        (
            HEAD,
            _RQ,
            Field("begun", "u64", "ns", "the driver began the request, before this event"),
            Field("answered", "u32", "ns", f"the device's answer reached the driver, {_AGO}"),
            Field("finished", "u32", "ns", f"the driver had done its part (nvme), {_AGO}"),
            Field("sq_head", "u16", "", "nvme: head of the submission queue at the answer"),
            Field("sq_tail", "u16", "", "nvme: tail of the submission queue at the answer"),
            Field("driver", "u8", "", "1: nvme, 2: scsi, 3: loop"),
            Field("errors", "u8", "", "scsi: dispatches that failed since the request's last C"),
            Field("timeouts", "u8", "", "scsi: commands that timed out since the last C"),
            Field("reserved", "u8", "", "zero"),
        ),
        part="driver",
    ),
    Record(
        Kind.TASK,
        "T",
        "task",
        "",
        "A thread's process and name; repeated whenever either changes.",
        (
            HEAD,
            _TID,
            Field("tgid", "u32", "", "process"),
            Field("comm", "char16", "", "name, NUL padded"),
        ),
    ),
    Record(
        Kind.CGROUP,
        "K",
        "cgroup",
        "",
        "The last path component of a cgroup, by id.",
        (HEAD, Field("cgroup", "u64", "", "id"), Field("name", "char48", "", "NUL padded")),
    ),
    Record(
        Kind.FILE_NAME,
        "N",
        "file name",
        "",
        "A part of a file's path: its own name first, then its directories upwards.",
        (
            HEAD,
            Field("inode", "u64", "", "as in file"),
            Field("dev", "u32", "dev_t", "as in file"),
            _GENERATION,
            Field("level", "u8", "", "0: the file's own name; 1: its directory; …"),
            Field("piece", "u8", "", "0: the name's first 35 bytes; 1: the next 35; …"),
            Field("flags", "u8", "", "1: the path's last record; 2: the path was cut; 4: deleted"),
            Field("reserved", "u8", "", "zero"),
            Field("component", "char36", "", "NUL padded"),
        ),
    ),
    Record(
        Kind.HIT,
        "H",
        "hit",
        "",
        "A followed object passes a site: a function's entry or return, or a tracepoint.",
        (
            HEAD,
            Field("object", "u64", "", "address"),
            Field("detail", "u64", "", "what the type's declaration shows of it, as its sector"),
            Field("value", "u64", "", "what the function returned (role 1); else 0"),
            Field("comm", "char16", "", "name of the thread, NUL padded"),
            Field("life", "u32", "", "number of the object's life in this recording, from 1 on"),
            _TID,
            Field("stack", "i32", "", "call stack of the kernel (kind site); negative: none"),
            Field("site", "u16", "", "index in the header's sites.follow.sites"),
            Field("role", "u8", "", "0: entry, 1: return, 2: tracepoint"),
            Field("flags", "u8", "", "1: life begins; 2: life ends; 4: hits before are missing"),
        ),
        sites=True,
    ),
    Record(
        Kind.PAIR,
        "p",
        "pair",
        "",
        "Two events with one key: written at the second, by its thread.",
        (
            HEAD,
            Field("began", "u64", "ns", "CLOCK_MONOTONIC of the first event"),
            Field("key0", "u64", "", "first field of the key"),
            Field("key1", "u64", "", "second field of the key; 0 without one"),
            Field("by", "u64", "", "the field of --by; 0 without one"),
            Field("comm", "char16", "", "name of the thread, NUL padded"),
            _TID,
            Field("pair", "u16", "", "index in the header's sites.pairs"),
            Field("reserved", "u16", "", "zero"),
        ),
        sites=True,
    ),
    Record(
        Kind.LIGHT,
        "L",
        "light",
        "block_rq_complete",
        "A request's completion with the kernel's own times of the request (--events light).",
        (
            HEAD,
            _RQ,
            Field("sector", "u64", "sectors", "first sector before the completion; 2^64-1: none"),
            Field("bytes", "u32", "bytes", "data completed"),
            Field("opf", "u32", "", "cmd_flags, and what a flush sequence has taken off them"),
            _DEV,
            _STATUS,
            Field("since_start", "u32", "ns", f"rq->start_time_ns, {_AGO} (0 in the kernel)"),
            Field("since_issue", "u32", "ns", f"rq->io_start_time_ns, {_AGO} (0 in the kernel)"),
            Field("cgroup", "u64", "", "id of the first bio's cgroup; 0: no bio, or no cgroup"),
            Field("nr_bios", "u16", "", "bios not completed before; 65535: more than 128"),
            _TAG,
            Field("hctx", "u16", "", "hardware queue; 65535: unknown"),
            Field("flags", "u8", "", "1: the request goes on; 2: since_* in units of 1024 ns"),
            Field("reserved", "u8", "", "zero"),
        ),
        light=True,
    ),
    Record(Kind.PAD, "-", "pad", "", "No records up to the next block of the ring.", (HEAD,)),
)

BY_KIND: dict[Kind, Record] = {r.kind: r for r in RECORDS}
BY_LETTER: dict[str, Record] = {r.letter: r for r in RECORDS}
MAX_RECORD_BYTES = max(r.size for r in RECORDS)


def sizes() -> np.ndarray:
    """Return the record size in bytes by kind number: (256,) int64, 0 for unknown kinds."""
    table = np.zeros(256, dtype=np.int64)
    for record in RECORDS:
        table[record.kind] = record.size
    return table


BLK_STATUS = {
    0: "OK",
    1: "NOTSUPP",
    2: "TIMEOUT",
    3: "NOSPC",
    4: "TRANSPORT",
    5: "TARGET",
    6: "RESV_CONFLICT",
    7: "MEDIUM",
    8: "PROTECTION",
    9: "RESOURCE",
    10: "IOERR",
    11: "DM_REQUEUE",
    12: "AGAIN",
    13: "DEV_RESOURCE",
    14: "ZONE_OPEN_RESOURCE",
    15: "ZONE_ACTIVE_RESOURCE",
    16: "OFFLINE",
    17: "DURATION_LIMIT",
    19: "INVAL",
}
"""Names of blk_status_t without BLK_STS_ (include/linux/blk_types.h), by number."""


PATH_PARTS = tuple(dict.fromkeys(r.part for r in RECORDS if r.part))
"""Names of the parts of the path beside the block layer, in RECORDS' order."""


def schema(
    parts: Collection[str] = (), sites: bool = False, light: bool = False
) -> list[dict[str, object]]:
    """Return the schema as JSON for the log's header: a dict for each kind, in RECORDS' order.

    parts: those of PATH_PARTS that are recorded; kinds of the others are left out. sites: with
    the kinds of chosen sites (`pairs`, `follow`). light: with the kind of the event set `light`.
    {"kind": number, "letter", "name", "tracepoint", "size" (bytes), "fields"}; "fields" is a list,
    in order of offset, of {"name", "type", "count" (of elements), "offset" (bytes), "unit",
    "meaning"}.
    """
    return [
        {
            "kind": int(r.kind),
            "letter": r.letter,
            "name": r.name,
            "tracepoint": r.tracepoint,
            "size": r.size,
            "fields": [
                {
                    "name": f.name,
                    "type": f.type,
                    "count": f.count,
                    "offset": r.offset(f),
                    "unit": f.unit,
                    "meaning": f.meaning,
                }
                for f in r.fields
            ],
        }
        for r in RECORDS
        if (not r.part or r.part in parts or r.other_part in parts)
        and (sites or not r.sites)
        and (light or not r.light)
    ]
