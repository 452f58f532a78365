# SPDX-License-Identifier: Apache-2.0
"""Columns of Arrow tables: their names, types, units and meaning, and how rows fill them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from biotrail.converters.events.tables import NEVER, STAGE_NAMES, Stage

Naming = Callable[[int], str | None]


def named(values: NDArray[Any], name: Naming) -> pa.Array:
    """Return the numbers' names as a dictionary array of strings; a name of None becomes null.

    name: called once for each distinct number.
    """
    found, codes = np.unique(values, return_inverse=True)
    return dictionary(codes, [name(int(value)) for value in found])


def dictionary(codes: NDArray[Any], names: Sequence[str | None]) -> pa.Array:
    """Return names[codes] as a dictionary array of strings.

    Equal names become one entry, in alphabetical order; None becomes null.
    """
    distinct = sorted({name for name in names if name is not None})
    places = {name: place for place, name in enumerate(distinct)}
    to = np.array([-1 if n is None else places[n] for n in names] or [0], np.int32)[codes]
    indices = pa.array(to, mask=to < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(distinct, pa.string()))


def nullable(values: NDArray[Any], none: int = NEVER) -> pa.Array:
    """Return the values as an Arrow array with null in place of `none`."""
    return pa.array(values, mask=values == none)


NAME = pa.dictionary(pa.int32(), pa.string())
WALL = pa.timestamp("ns", tz="UTC")


@dataclass(frozen=True)
class Column:
    """One column's name, Arrow type, unit and meaning; values that are not known are null."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str


def stage_column(stage: Stage) -> str:
    """Return the name of a stage's column, such as `q2d_ns` or `pre_flush_ns`."""
    return STAGE_NAMES[stage].lower().replace("-", "_") + "_ns"


def _stage(stage: Stage) -> Column:
    name = STAGE_NAMES[stage]
    return Column(stage_column(stage), pa.int64(), "ns", f"time in the stage {name}; null: none")


_STAGES = tuple(_stage(s) for s in Stage if s <= Stage.Q2D)
_DOUBT = (
    Column(
        "doubtful_ns",
        pa.int64(),
        "ns",
        "latency as paired, where that may be off by over 10 %: latency_ns and stages are null",
    ),
)
"""Behind the stages, so that readers which count columns find those they know."""
_LATER_STAGES = tuple(_stage(s) for s in Stage if s > Stage.Q2D)
"""Stages that came after it, which bios alone have: behind all others, likewise."""
_NAMES_OF_CGROUP = (
    Column("unit", NAME, "", "unit of systemd that the cgroup belongs to"),
    Column("slice", NAME, "", "systemd's slice that the unit is in"),
    Column("runtime", NAME, "", "docker, podman, containerd, cri-o, lxc, qemu, nspawn"),
    Column("container", NAME, "", "name of the container or guest"),
    Column("container_id", NAME, "", "its id; its name where it has no other"),
    Column("pod", NAME, "", "name of the pod"),
    Column("pod_uid", NAME, "", "its uid"),
    Column("namespace", NAME, "", "Kubernetes namespace of the pod"),
)
"""What the cgroup is, as far as its path tells it and the log has names."""
_NUMBER = Column("number", pa.int64(), "", "its own number: the same in every output of the log")
_DEVICE = (
    Column("device", NAME, "", "disk, by name; the mapper's name for dm"),
    Column("dev", NAME, "", "disk, as major:minor"),
)
_WHAT = (
    Column(
        "op",
        NAME,
        "",
        "operation: read, write, flush, discard, …; an fsync's empty write is a flush",
    ),
    Column("flags", NAME, "", "flags such as SYNC|META, in bit order"),
    Column("sector", pa.uint64(), "512 bytes", "first sector on the disk"),
    Column("bytes", pa.uint32(), "bytes", "length when queued (a request: when first issued)"),
    Column("done_bytes", pa.uint32(), "bytes", "completed without error"),
)
_ENDED = (
    Column(
        "latency_ns",
        pa.int64(),
        "ns",
        "from queue (a request: from start) to completion; null: not known, or in doubt",
    ),
    Column("requeues", pa.uint32(), "", "times that the driver gave it back"),
    Column("status", NAME, "", "OK, IOERR, …; OK also where it is not known"),
    Column("certainty", NAME, "", "exact, interval, ambiguous, incomplete, lost"),
    Column("own", pa.bool_(), "", "I/O of the recording itself"),
)
MONOTONIC = "ns of CLOCK_MONOTONIC"

_PATH = (
    Column("call", NAME, "", "system call that queued it, or page fault, where recorded (--path)"),
    Column("entry_ns", pa.int64(), MONOTONIC, "entry of that call; with tid, the key of calls"),
    Column("call_fd", pa.int32(), "", "file descriptor, as that call's argument gave it"),
    Column("call_offset", pa.int64(), "bytes", "offset in the file, likewise"),
    Column("call_length", pa.int64(), "bytes", "length, likewise"),
    Column(
        "dirty_ns",
        pa.int64(),
        MONOTONIC,
        "when the page that it writes back was dirtied, to a tick",
    ),
    Column("dirty_tid", pa.uint32(), "", "thread that dirtied that page, its first"),
    Column("dirty_pid", pa.uint32(), "", "its process"),
    Column("dirty_comm", NAME, "", "its name then"),
    Column("dirty_cgroup", NAME, "", "path of the cgroup that it was in then, or its id"),
)
TITLE = Column("title", NAME, "", "what the process calls itself, or which script it runs")
FILE_WAS = Column("file_was", NAME, "", "path of that file before it was renamed; null: it was not")
_HELD = (
    Column("limit", NAME, "", "cgroup whose limit (io.max) held it before Q; null: none known"),
    Column("held_ns", pa.int64(), "ns", "for how long; null: not held, or not known"),
    Column("held_tid", pa.uint32(), "", "thread that submitted it then, or waited for it"),
)
_WHOM = (
    Column(
        "for_tid", pa.uint32(), "", "thread for which `tid` queued it; null: itself, or unknown"
    ),
    Column("for_pid", pa.uint32(), "", "its process"),
    Column("for_comm", NAME, "", "its name"),
)
BIOS = (
    _NUMBER,
    *_DEVICE,
    Column("partition", NAME, "", "partition that it was sent to; null: the disk itself"),
    *_WHAT,
    Column("tid", pa.uint32(), "", "thread that queued it"),
    Column("pid", pa.uint32(), "", "its process"),
    Column("comm", NAME, "", "its name"),
    Column("cgroup", NAME, "", "path of the charged cgroup, or its id"),
    Column("file", NAME, "", "path of the file whose pages it carries, where files were recorded"),
    *_PATH,
    *_HELD,
    Column("ioprio", pa.uint16(), "", "I/O priority: class << 13 | data"),
    Column("hint", pa.uint8(), "", "write life-time hint"),
    Column("purpose", NAME, "", "data, metadata, journal, swap, readahead; null: it has no data"),
    Column("cpu", pa.uint16(), "", "CPU that queued it"),
    Column("queue_time", WALL, "UTC", "when it was queued, by the wall clock"),
    Column("queue_ns", pa.int64(), MONOTONIC, "Q"),
    Column("getrq_ns", pa.int64(), MONOTONIC, "G (or s) of the piece that finishes last"),
    Column("merge_ns", pa.int64(), MONOTONIC, "M or F of that piece"),
    Column("insert_ns", pa.int64(), MONOTONIC, "I of its request"),
    Column("issue_ns", pa.int64(), MONOTONIC, "first D of its request"),
    Column("complete_ns", pa.int64(), MONOTONIC, "the last piece's end"),
    *_ENDED,
    Column("fragments", pa.uint32(), "", "pieces that went to requests"),
    Column("requests", pa.uint32(), "", "requests that served it"),
    Column("request", pa.int64(), "", "number of the request that finished last"),
    Column("parent", pa.int64(), "", "number of the upper device's bio"),
    Column("family", pa.int64(), "", "number of the topmost known ancestor"),
    *_STAGES,
    *_DOUBT,
    *_LATER_STAGES,
    *_NAMES_OF_CGROUP,
    *_WHOM,
    TITLE,
    FILE_WAS,
)
_DRIVER = (
    Column("driver", NAME, "", "nvme, scsi or loop, where recorded (--path driver)"),
    Column("driver_begun_ns", pa.int64(), MONOTONIC, "NVMe: setup; SCSI: dispatch; loop: file I/O"),
    Column("driver_answered_ns", pa.int64(), MONOTONIC, "the device's answer reached the driver"),
    Column("driver_finished_ns", pa.int64(), MONOTONIC, "NVMe: the driver ended its part"),
    Column("driver_errors", pa.uint8(), "", "SCSI: dispatches that failed"),
    Column("driver_timeouts", pa.uint8(), "", "SCSI: commands that timed out"),
    Column("sq_head", pa.uint16(), "", "NVMe: head of the submission queue at the answer"),
    Column("sq_tail", pa.uint16(), "", "NVMe: its tail then"),
)
REQUESTS = (
    _NUMBER,
    *_DEVICE,
    *_WHAT,
    Column("kind", NAME, "", "normal, flush, passthrough"),
    Column("tag", pa.uint16(), "", "driver tag at the last issue"),
    Column("sched_tag", pa.uint16(), "", "scheduler tag"),
    Column("hctx", pa.uint16(), "", "hardware queue"),
    *_DRIVER,
    Column("start_time", WALL, "UTC", "when it began, by the wall clock"),
    Column("start_ns", pa.int64(), MONOTONIC, "s, or G of its first bio, or the first event seen"),
    Column("insert_ns", pa.int64(), MONOTONIC, "first I"),
    Column("issue_ns", pa.int64(), MONOTONIC, "first D"),
    Column("complete_ns", pa.int64(), MONOTONIC, "last C"),
    *_ENDED,
    Column("bios", pa.uint32(), "", "bios that it served"),
    Column("others", pa.uint32(), "", "bios that it served and the recording's filters left out"),
    Column("absorbed_by", pa.int64(), "", "number of the request that took its bios"),
    Column("parent", pa.int64(), "", "number of the upper device's request"),
    Column("family", pa.int64(), "", "family of its first bio"),
    *_STAGES,
    *_DOUBT,
)


def schema(columns: tuple[Column, ...]) -> pa.Schema:
    """Return the columns' Arrow schema; each field's metadata has unit and meaning."""
    return pa.schema(
        [pa.field(c.name, c.type, metadata={"unit": c.unit, "meaning": c.meaning}) for c in columns]
    )


def filled(schema: pa.Schema, rows: Any, **given: Any) -> pa.Table:
    """Return a table of the rows: what is not given is the rows' attribute of that name.

    A column of times (unit MONOTONIC, such as `queue_ns`) is the attribute without `_ns`, with null
    for NEVER.
    """
    columns = {}
    for field in schema:
        if field.name in given:
            columns[field.name] = given[field.name]
        elif field.metadata[b"unit"].decode() == MONOTONIC:
            columns[field.name] = nullable(getattr(rows, field.name.removesuffix("_ns")))
        else:
            columns[field.name] = getattr(rows, field.name)
    return pa.table(columns, schema=schema)


BIO_SCHEMA = schema(BIOS)
PATH_NAMES = tuple(column.name for column in _PATH)
"""Columns of bios that logs recorded without --path leave null."""
HELD_NAMES = tuple(column.name for column in _HELD)
"""Columns of bios that are null but for those that a cgroup's limit held."""
REQUEST_SCHEMA = schema(REQUESTS)
DRIVER_NAMES = tuple(column.name for column in _DRIVER)
"""Columns of requests that logs recorded without --path driver leave null."""
