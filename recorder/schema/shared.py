# SPDX-License-Identifier: Apache-2.0
"""The structs beside records that the recorder and its BPF programs share: the only definition.

`recorder/schema/generate.py` writes `bpf/shared.h` from them; `ctype` is the same for the recorder,
which sets them before or after loading, as sections of the BPF object, and reads `bt_fired`.
"""

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from biotrail.recorder.schema.limits import LIMITS

_INTEGERS: Mapping[str, type[Any]] = {
    "u8": ctypes.c_uint8,
    "u32": ctypes.c_uint32,
    "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
}


@dataclass(frozen=True)
class Member:
    """One member of a struct.

    type: u8, u32, u64, i64, or another struct. meaning: a phrase for `bpf/shared.h`. count:
    elements of an array, as a number of LIMITS (by its C name) or a literal one; "": no array.
    """

    name: str
    type: "str | Struct"
    meaning: str = ""
    count: str = ""


@dataclass(frozen=True)
class Struct:
    """A struct by its C name. meaning: one or two sentences for `bpf/shared.h`."""

    name: str
    meaning: str
    members: tuple[Member, ...]

    @cached_property
    def ctype(self) -> type[Any]:
        """Its ctypes class, one for all that set or read it."""
        layout = []
        for member in self.members:
            kind = member.type.ctype if isinstance(member.type, Struct) else _INTEGERS[member.type]
            if member.count:
                kind *= LIMITS.get(member.count) or int(member.count)
            layout.append((member.name, kind))
        return type(self.name, (ctypes.Structure,), {"_fields_": layout})


FILTER = Struct(
    "bt_filter",
    "One device to record.",
    (
        Member("disk", "u32", "dev_t of the whole disk"),
        Member("part", "u32", "dev_t of the partition; 0: the whole disk"),
        Member(
            "start",
            "u64",
            "the partition's 512-byte sectors on the disk: [start, end), 0 for a whole disk",
        ),
        Member("end", "u64"),
    ),
)
COMM = Struct(
    "bt_comm",
    "A task name or prefix: matches if (comm & mask) == name.",
    (Member("name", "u64", count="2"), Member("mask", "u64", count="2")),
)
RANGE = Struct(
    "bt_range",
    "512-byte sectors of the disk, [start, end).",
    (Member("start", "u64"), Member("end", "u64")),
)
CONFIG = Struct(
    "bt_config",
    "The constants that programs are loaded with (config.h). A bio is wanted (filters.h) if, for "
    "every kind of filter that is set, one of its values matches.",
    (
        Member("ring_bytes", "u32", "level 0: a power of two, a multiple of 8 blocks"),
        Member("upper_bytes", "u32", "the other levels: a power of two, a multiple of a block"),
        Member("area_bytes", "u32", "one CPU's element: header page and rings"),
        Member("nr_filters", "u32", "0: every device"),
        Member("no_data_ops", "u64", "bit per operation whose bios carry no pages"),
        Member("filters", FILTER, "", "BT_MAX_FILTERS"),
        Member("follow", "u32", "bios are judged at Q and followed to completion (follow.h)"),
        Member("by_pid", "u32", "filter by process: those in bt_ids"),
        Member("by_tid", "u32", "filter by thread: those in bt_ids"),
        Member("nr_comms", "u32"),
        Member("by_cgroup", "u32", "filter by cgroup: those in bt_wanted_cgroups, and below"),
        Member("nr_flags", "u32"),
        Member("nr_ranges", "u32"),
        Member("min_bytes", "u32", "smallest length of a bio that is wanted"),
        Member("ops", "u64", "bit per operation; 0: all"),
        Member("own_ops", "u64", "bit per passthrough operation, whose bios have no Q"),
        Member("flush_op", "u32", "number of REQ_OP_FLUSH"),
        Member("preflush", "u32", "REQ_PREFLUSH"),
        Member("sequence", "u32", "REQ_PREFLUSH | REQ_FUA, which blk_insert_flush() may clear"),
        Member("flags", "u32", "masks: all bits of one of them have to be set", "BT_MAX_FLAGS"),
        Member("comms", COMM, "", "BT_MAX_COMMS"),
        Member("ranges", RANGE, "", "BT_MAX_RANGES"),
        Member("kernel_stacks", "u32", "write STACK records (stacks.h)"),
        Member("user_stacks", "u32", "with user stacks as well"),
        Member("file_ops", "u64", "bit per operation that may write a file's pages (own.h)"),
        Member("ns_dev", "u64", "the recorder's pid namespace, if not the initial one"),
        Member("ns_inode", "u64", "0: the initial one"),
        Member("recorder", "u32", "the recorder's process id in that namespace; 0: not known"),
        Member("leave_own", "u32", "with filters: leave the recorder's own I/O out"),
        Member("files", "u32", "write FILE and FILE_NAME records (files.h)"),
        Member("hold_irqs", "u32", "this kernel has bpf_local_irq_save()"),
        Member("iomap_end_io", "u64", "address of iomap_dio_bio_end_io(); 0: not known"),
        Member("waited_ends", "u64", "functions that end bios that are waited for (behalf.h)", "3"),
        Member("loop_complete", "u64", "address of lo_rw_aio_complete(); 0: not known (loop.h)"),
        Member("hierarchy", "u32", "of cgroups that block I/O is charged in: its number"),
        Member("pad", "u32"),
    ),
)
CGROUP_PATH = Struct(
    "bt_cgroup_path",
    "The path of a cgroup, for the recorder (cgroups.h).",
    (
        Member("cgroup", "u64", "its id"),
        Member("bytes", "u32", "of names"),
        Member("whole", "u32", "the path is whole; 0: there was no room for the levels above"),
        Member("names", "u8", "from the cgroup upwards, each with its NUL", "BT_CGROUP_NAMES"),
    ),
)
OWN_FILE = Struct(
    "bt_own_file",
    "A file that the recorder writes (own.h).",
    (
        Member("inode", "u64", "0: this slot and those behind it are free"),
        Member("dev", "u32", "of its file system's super block"),
        Member("generation", "u32"),
        Member("has_generation", "u32", "0: the file system does not report it"),
        Member("reserved", "u32"),
    ),
)
TRIGGERS = Struct(
    "bt_triggers",
    "The triggers that are set (trigger.h); 0: off.",
    (
        Member("slow_ns", "u64", "an I/O that took at least so long"),
        Member("failed", "u32", "an I/O that ended with an error"),
        Member("depth", "u32", "at least so many requests of a device in flight"),
    ),
)
PATH = Struct(
    "bt_path",
    "Which parts of the path beside the block layer are recorded (path.h); 0: not.",
    (
        Member("call", "u32", "CALL records behind Q"),
        Member("time", "u32", "RETURN records: calls with entry and exit"),
        Member("wait", "u32", "WAIT records of all threads, in timed calls and elsewhere"),
        Member("irq", "u32", "INTERRUPT records behind C"),
        Member("dirty", "u32", "DIRTIED records behind Q"),
        Member("fs", "u32", "WAIT_STACK records behind WAIT, and COMMIT records"),
        Member("uring", "u32", "SUBMISSION records behind Q, RING_COMPLETE records"),
        Member("driver", "u32", "DRIVER records behind C"),
        Member("block_softirq", "u32", "number of BLOCK_SOFTIRQ"),
        Member("unified", "u32", "block I/O is charged in cgroup v2's hierarchy, not in v1's"),
        Member("over_ns", "u64", "a call that took longer is recorded without I/O too"),
        Member("idles", "u64", "bit per call that waits by its nature", "BT_CALL_WORDS"),
        Member("reaps", "u64", "bit per call that waits for I/O of others", "BT_CALL_WORDS"),
        Member("tick_ns", "u64", "ns of a tick (jiffy)"),
        Member("dirty_shift", "u64", "64 less the bits of a region's number (bt_dirty_place)"),
        Member("fds", "u64", "bit per call whose first argument is its file", "BT_CALL_WORDS"),
        Member("ioctl", "u64", "number of ioctl()"),
        Member("frozen", "u64", "task_struct.flags of a thread in the freezer; 0: no state D"),
        Member("text", "u64", "where the kernel's code begins"),
        Member("text_bytes", "u64", "its size; 0: not known"),
    ),
)
ENTERED = Struct(
    "bt_entered",
    "How often the programs of the path ran on a CPU, to know their cost (path.h): a cache line.",
    (
        Member("calls", "u64", "system calls that entered the kernel while calls were timed"),
        Member("timed", "u64", "of these, calls whose return was waited for"),
        Member("wait", "u64", "runs of the programs of the part wait"),
        Member("irq", "u64", "of irq"),
        Member("dirty", "u64", "of dirty"),
        Member("inside", "u64", "thread on this CPU that may be inside a timed call; 0: none"),
        Member("word", "u64", "memory for values that the verifier shall not track"),
        Member("pad", "u64"),
    ),
)
URING = Struct(
    "bt_uring",
    "Addresses of kernel functions by which a bio's request is known (uring.h); 0: not known.",
    (
        Member("iomap_end_io", "u64", "iomap_dio_bio_end_io()"),
        Member("blkdev_end_io", "u64", "blkdev_bio_end_io()"),
        Member("blkdev_end_io_async", "u64", "blkdev_bio_end_io_async()"),
        Member("ring_complete", "u64", "io_complete_rw()"),
        Member("ring_complete_polled", "u64", "io_complete_rw_iopoll()"),
        Member("aio_complete", "u64", "aio_complete_rw()"),
    ),
)
FIRED = Struct(
    "bt_fired",
    "The first trigger that fired on a CPU since bt_armed changed (trigger.h).",
    (
        Member("armed", "u64", "bt_armed when the trigger fired"),
        Member("now", "u64", "ns, masked as a record's time stamp"),
        Member("sector", "u64"),
        Member("value", "i64", "BT_SLOW: ns; BT_FAILED: status; BT_DEPTH: requests in flight"),
        Member("dev", "u32", "the disk's dev_t"),
        Member("trigger", "u32", "enum bt_trigger"),
        Member("op", "u32", "enum req_op of the I/O"),
        Member("reserved", "u32"),
    ),
)
FILE_WAYS = Struct(
    "bt_file_ways",
    "How a bio's inode is known beside its page (direct.h), and whether files are filtered by "
    "(file_filter.h). 0: not known, not so. Addresses are of functions, offsets in bytes.",
    (
        Member("device_ends", "u64", "end functions of direct I/O on block devices", "2"),
        Member("dio_ends", "u64", "those of fs/direct-io.c", "2"),
        Member("btrfs_ends", "u64", "those of a bio inside a struct btrfs_bio", "2"),
        Member("btrfs_copy_end", "u64", "that of a copy for another device"),
        Member("calls", "u64", "bit per call that moves data of its fd", "BT_CALL_WORDS"),
        Member("writes", "u64", "bit per call of these that writes", "BT_CALL_WORDS"),
        Member("direct_flag", "u32", "O_DIRECT; 0: not by the running call"),
        Member("not_data", "u32", "REQ_META and the like: never a file's data"),
        Member("dio_inode", "u32", "offset of dio.inode"),
        Member("btrfs_bio", "u32", "offset of btrfs_bio.bio"),
        Member("btrfs_bio_inode", "u32", "offset of btrfs_bio.inode"),
        Member("btrfs_bio_vfs", "u32", "offset of the struct inode in what that points to"),
        Member("btrfs_stripe_context", "u32", "offset of btrfs_io_stripe.bioc"),
        Member("btrfs_context_bio", "u32", "offset of btrfs_io_context.orig_bio"),
        Member("btrfs", "u32", "the offsets below are known"),
        Member("btrfs_vfs_inode", "u32", "offset of btrfs_inode.vfs_inode"),
        Member("btrfs_root", "u32", "offset of btrfs_inode.root"),
        Member("btrfs_root_id", "u32", "offset of btrfs_root.root_key.objectid"),
        Member("btrfs_root_dev", "u32", "offset of btrfs_root.anon_dev"),
        Member("by_file", "u32", "only bios of these files (bt_wanted_files)"),
        Member("by_dir", "u32", "or of files below these directories"),
        Member("split", "u32", "no load by type may fault in a program's first function (own.h)"),
    ),
)
WANTED_FILE = Struct(
    "bt_wanted_file",
    "A file or directory whose bios are recorded, as stat() names it: a key of bt_wanted_files.",
    (
        Member("inode", "u64"),
        Member("dev", "u32", "st_dev as dev_t: on btrfs the subvolume's"),
        Member("directory", "u32", "1: files below it, too"),
    ),
)
GENERATION = Struct(
    "bt_generation_of",
    "A value of bt_wanted_files: the inode's generation, by which a number's next use is known.",
    (Member("generation", "u32"), Member("known", "u32", "0: any")),
)
STRUCTS = (
    *(FILTER, COMM, RANGE, CONFIG, CGROUP_PATH, OWN_FILE, TRIGGERS, PATH, ENTERED, URING, FIRED),
    *(FILE_WAYS, WANTED_FILE, GENERATION),
)
"""In the order of `bpf/shared.h`: a struct stands before those that hold it."""
