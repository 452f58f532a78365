# SPDX-License-Identifier: Apache-2.0
"""The payloads of a log's frames that are JSON: header, notes and END, as types.

docs/log-format.md says what each key means. Every key may be absent but those that are Required: a
fact that is not known has none, and older recorders and other sources of events (blktrace) know
fewer. What a reader checks of a log from elsewhere is made of these types
(recorder/log/validation.py): Annotated adds a range, a Mark, or the shape of a plain dict.
"""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Annotated, Any, NamedTuple, NotRequired, Required, TypedDict

from biotrail.recorder.schema.records import BLOCK_BYTES, Kind


class Range(NamedTuple):
    """The least and the most that a number may be; of a text, which is then one in decimal."""

    least: float
    most: float


class Mark(Enum):
    """What else is asked of a value."""

    RECORD_SIZE = auto()
    """A multiple of 8."""
    BASE64 = auto()
    UNREAD = auto()
    """Readers rely on nothing: it may hold anything."""


MAX_NS = 1 << 62
"""Highest time, 146 years: the sum of two still fits a signed 64-bit integer."""
_MAX_DEV = (1 << 32) - 1
Ns = Annotated[int, Range(0, MAX_NS)]
Count = Annotated[int, Range(0, 1 << 62)]
Dev = Annotated[int, Range(0, _MAX_DEV)]
Seconds = Annotated[float, Range(0, 1e12)]


class ClockFacts(TypedDict, total=False):
    """A reading of the clocks."""

    monotonic: Ns
    boottime: Ns
    realtime: Ns
    uncertainty: Ns


Clock = Annotated[dict[str, int], ClockFacts]
"""A reading of the clocks: ns by name."""


class LoopFacts(TypedDict, total=False):
    """A loop device's file."""

    backing_dev: Dev


class MdFacts(TypedDict, total=False):
    """An md array."""

    level: str


class QueueFacts(TypedDict, total=False):
    """A device's request queue."""

    nr_hw_queues: Count


class DeviceFacts(TypedDict, total=False):
    """What readers use of a device's entry (recorder/host/devices.py)."""

    dev: Required[Dev]
    name: str
    dm_name: str
    kind: str
    disk: Dev
    start: Count
    sectors: Count
    stacked_on: list[Dev]
    loop: LoopFacts
    md: MdFacts
    queue: QueueFacts


Device = Annotated[dict[str, Any], DeviceFacts]
"""A device's entry: "dev", a dev_t, and what else is known."""


class HostFacts(TypedDict, total=False):
    """The machine that recorded (recorder/host/host.py)."""

    name: str
    machine: str
    cpus: Count
    boot_id: str
    os: str
    cpu_model: str
    memory_bytes: Count
    hypervisor: str
    product: str


class KernelEnums(TypedDict, total=False):
    """The numbers by which `opf` of a log's records is decoded."""

    op_enum: dict[str, Annotated[int, Range(0, 255)]]
    """REQ_OP_* by name without the prefix."""
    flag_bits: dict[str, Annotated[int, Range(0, 31)]]
    """Bit numbers by name: __REQ_* without the prefix."""


class KernelFacts(KernelEnums, total=False):
    """The kernel that recorded."""

    release: str
    version: str


class DeviceFilter(TypedDict, total=False):
    """A device that the recording was limited to; dev_t."""

    spec: str
    """As the user named it; absent for devices below, and for paths to it."""
    disk: Dev
    part: Dev
    """0: the whole disk."""


class FilterFacts(TypedDict, total=False):
    """What the recording was limited to (filters.Filters.header); a filter not given has no key."""

    devices: list[DeviceFilter]
    """Empty: all devices."""
    pids: Annotated[list[int], list[Any]]
    children: bool
    tids: Annotated[list[int], list[Any]]
    comms: Annotated[list[str], list[Any]]
    cgroups: Annotated[list[str], list[Any]]
    units: Annotated[list[str], list[Any]]
    containers: Annotated[list[str], list[Any]]
    pods: Annotated[list[str], list[Any]]
    files: list[str]
    dirs: list[str]
    ops: Annotated[list[str], list[Any]]
    flags: Annotated[list[str], list[Any]]
    min_bytes: Count
    sectors: list[Annotated[list[int], tuple[int, int]]]
    below: bool
    own_io: bool


class MissingTracepoint(TypedDict):
    """A tracepoint of the event set that is not recorded, and why."""

    letter: str
    tracepoint: NotRequired[str]
    reason: str


class EventFacts(TypedDict, total=False):
    """Which events are recorded."""

    set: str
    letters: list[str]
    missing: list[MissingTracepoint]


class StackFacts(TypedDict, total=False):
    """Call stacks are recorded; `user`: those of programs, too."""

    user: bool


WAYS = {
    "iomap": "where iomap does it",
    "device": "on block devices",
    "dio": "where fs/direct-io.c does it",
    "btrfs": "on btrfs",
    "call": "by the running call elsewhere",
}
"""By what the file of direct I/O is known (probes.file_ways), in the order in which it is tried."""


class FileFacts(TypedDict, total=False):
    """Files are recorded; `direct`: those of iomap's direct I/O, too."""

    direct: bool
    ways: list[str]
    """By what files are known beside the page cache: keys of WAYS; not in logs of earlier versions,
    which knew iomap's direct I/O at most."""


class MissingPart(TypedDict):
    """A part of the path that was asked for and is not recorded, and why."""

    part: str
    reason: str


class PathFacts(TypedDict, total=False):
    """Parts of the path beside the block layer are recorded (records.PATH_PARTS)."""

    parts: list[str]
    missing: list[MissingPart]
    drivers: dict[str, str]
    """Only with the part driver: driver → why its steps are not recorded, "" if they are."""


class PairFacts(TypedDict, total=False):
    """One declared pair of events (`biotrail pairs`), by which PAIR records are read."""

    name: Required[str]
    begin: str
    """Tracepoint, as system:name; `end` likewise."""
    end: str
    keys: list[str]
    """One or two, as the user wrote them."""
    by: str
    """"": records are not told apart further."""
    where: list[str]
    way: str
    """"typed": by BTF; "format": by the tracepoint's format."""
    formats: dict[str, str]
    """How values of `key0`, `key1`, `by` are shown.

    "dec" (if absent), "signed", "hex", "dev", "text" (up to 8 characters, the first in the lowest
    byte), "symbol" (the address of a function, whose name may be in END's "sites").
    """
    names: dict[str, dict[str, str]]
    """Names of values of `key0`, `key1`, `by`, by the value in decimal; absent where none."""


class SiteFacts(TypedDict, total=False):
    """A place in the kernel that followed objects pass; HIT records have its index."""

    name: Required[str]
    """Of the function or tracepoint."""
    kind: str
    """"function" or "tracepoint"."""
    module: str
    """"": the kernel itself."""
    argument: int
    """Which argument is the object, from 0 on."""
    way: str
    """How it is attached: session, multi, fentry, kprobe, typed."""


class FollowFacts(TypedDict, total=False):
    """What `biotrail follow` follows."""

    type: str
    """Name of the struct."""
    way: str
    """How functions are attached; "typed": only tracepoints are."""
    sites: list[SiteFacts]
    births: list[str]
    """Names of sites where a life may begin; `deaths`: where it ends."""
    deaths: list[str]
    detail: str
    """Expression of HIT.detail; "": none. `detail_unit`: its unit, as "sector" or "bytes"."""
    detail_unit: str
    every: Count
    max: Count
    slower_ns: Ns
    """0: all lives; else only those that took longer."""
    unseen: dict[str, Count]
    """Functions of the type that could not be attached: their number by reason."""


class SitesFacts(TypedDict, total=False):
    """Sites that were chosen by declaration; absent where none were."""

    pairs: list[PairFacts]
    follow: FollowFacts


class PairCounts(TypedDict, total=False):
    """What one declared pair came to, over the whole recording: END's "sites"."""

    name: str
    pairs: Count
    """Records written."""
    begins_open: Count
    """Begins without an end, when the recording stopped."""
    ends_alone: Count
    """Ends without a begin: it was before the recording, or not taken."""
    overwritten: Count
    """Begins with the key of one that had no end yet; the later one counts."""
    full: Count
    """Begins that were not kept, as there was no room."""
    bad_reads: Count
    """Events not taken, as memory that a key or test points to could not be read."""
    others: Count
    """Events not taken, as `where` or a filter (-d, --pid, …) excludes them."""
    names: dict[str, str]
    """Names of functions by their address in decimal, of values of `by` with the format symbol."""


class SitesCounts(TypedDict, total=False):
    """END's "sites": what the sites came to."""

    pairs: list[PairCounts]
    """In the order of the header's sites.pairs."""
    follow: dict[str, Count]


class RingFacts(TypedDict, total=False):
    """The rings of each CPU: how many, and their sizes in bytes by level."""

    levels: int
    bytes: list[int]


class LackFacts(TypedDict):
    """What did not work, and the capability that it needs."""

    what: str
    needs: str


class RightFacts(TypedDict, total=False):
    """Who recorded, and what did not work for lack of rights."""

    uid: int
    lacking: list[LackFacts]


class SeriesFacts(TypedDict, total=False):
    """A file's place in a rotated recording."""

    run: str
    number: int
    """From 1."""
    last: int
    """Set by a reader of several files: the last one's number."""


class TriggerFacts(TypedDict, total=False):
    """The trigger that caused a dump."""

    trigger: str
    what: str
    value: Annotated[int, Range(-(1 << 63), (1 << 64) - 1)]
    monotonic: Ns
    dev: Dev
    op: Annotated[int, Range(-1, 255)]
    """REQ_OP_MASK (include/linux/blk_types.h) is the most."""


class KeptFacts(TypedDict, total=False):
    """A dump of a flight recorder; what else it has: run, number, limit."""

    seconds: Seconds
    reason: str
    trigger: Annotated[dict[str, Any], TriggerFacts]
    triggers_let_pass: Count


class FieldFacts(TypedDict, total=False):
    """A field of a record."""

    name: Required[str]


class RecordFacts(TypedDict, total=False):
    """What readers use of a record's entry in the schema (records.schema)."""

    kind: Required[Annotated[int, Range(1, Kind.PAD)]]
    size: Required[Annotated[int, Range(8, BLOCK_BYTES), Mark.RECORD_SIZE]]
    fields: list[Annotated[dict[str, Any], FieldFacts]]


class BackendFacts(TypedDict, total=False):
    """The header's keys about the backend (probes.backend.Probes.backend_facts)."""

    backend: str
    """ "core" or "bcc"; other sources of events have names of their own, such as "blktrace"."""
    counts_skips: bool
    """Whether events whose program was already running are counted as losses."""
    absent: dict[str, list[str]]
    """By event letter: record fields that are empty because the backend cannot read them."""
    sites: "SitesFacts"
    """Only if sites were chosen by declaration (`pairs`, `follow`)."""


class Header(BackendFacts, total=False):
    """A log's header."""

    format: Annotated[dict[str, int], Mark.UNREAD]
    log_id: str
    created_by: str
    host: HostFacts
    kernel: KernelFacts
    clocks: Clock
    """At the log's beginning."""
    devices: list[Device]
    command: list[str]
    filters: FilterFacts
    events: EventFacts
    stacks: StackFacts
    """Only if call stacks are recorded."""
    files: FileFacts
    """Only if files are recorded."""
    path: PathFacts
    """Only if parts of the path beside the block layer were asked for."""
    versions: Annotated[dict[str, str], Mark.UNREAD]
    rings: Annotated[RingFacts, Mark.UNREAD]
    rights: RightFacts
    series: SeriesFacts
    """Only in a file of a rotated recording."""
    kept: Annotated[dict[str, Any], KeptFacts]
    """Only in a dump of a flight recorder."""
    schema: list[Annotated[dict[str, Any], RecordFacts]]
    """The records, as records.schema()."""


class CallTimingNote(TypedDict, total=False):
    """System calls were no longer timed from `until` (ns of CLOCK_MONOTONIC) on."""

    until: Required[Ns]
    percent: Seconds
    """Of one CPU, that timing took before, as estimated."""
    budget: Seconds
    """Per cent that it was allowed to take."""


class PausedNote(TypedDict("_Paused", {"from": Ns, "to": Ns}), total=False):
    """A suspect stood from `from` to `to` (ns of CLOCK_MONOTONIC), for the experiment."""

    name: str
    """As it was given to --pause."""
    label: str
    """For people: a process with its number, or a cgroup's path."""
    cgroup: str
    """The cgroup's path, with all below it; "": a process was stopped."""
    pids: list[Count]
    """The suspect's processes when recording began; at most 1,000."""
    times: Count
    """How often it was to stand; periods without a note did not happen."""


class DevicesNote(TypedDict, total=False):
    """Devices that appeared or changed; an entry replaces earlier ones of the same dev_t."""

    devices: list[Device]


CgroupsNote = dict[Annotated[str, Range(0, 10**19 - 1)], str]
"""Paths of cgroups by their id as text."""


class ContainersNote(TypedDict, total=False):
    """Names of containers and pods; an entry replaces earlier ones of the same id or uid."""

    containers: dict[str, dict[str, str]]
    """By id: "name", "runtime", "pod" (its uid); what is not known has no key."""
    pods: dict[str, dict[str, str]]
    """By uid: "name", "namespace"."""


TitlesNote = dict[str, dict[str, str]]
"""By process id as text: "comm" (its name then) and "title" ("": it has none any more)."""

CpusNote = TypedDict(
    "CpusNote",
    {
        "from": Ns,
        "to": Ns,
        "steal_ns": Ns,
        "throttled_ns": dict[str, Ns],
        "pids": dict[str, list[Count]],
    },
)
"""What kept threads from running in a time (CLOCK_MONOTONIC): the hypervisor, quotas by path."""

MountsNote = dict[Annotated[str, Range(0, _MAX_DEV)], list[Annotated[list[str], tuple[str, str]]]]
"""By dev_t of a super block, as text: [[directory within the file system, mount point], …]."""

Frame = Annotated[list[Any], tuple[str, str, Annotated[int, Range(0, (1 << 64) - 1)]]]
"""[name, where, offset]: function, module or file, bytes into the function.

name "": the offset is in the file `where`. name and where "": the offset is an address."""
_Stacks = dict[Annotated[str, Range(0, 10**10 - 1)], list[Frame]]
_KindNumber = Annotated[str, Range(0, 999)]


class StacksNote(TypedDict, total=False):
    """New call stacks by their id as text: frames, innermost first."""

    kernel: _Stacks
    user: _Stacks
    wait: _Stacks
    """Kernel stacks of waits: an id of their own (WAIT_STACK records)."""
    site: _Stacks
    """Kernel stacks of followed objects: an id of their own (HIT records)."""


class NamesNote(TypedDict):
    """Name records that are known at a time, again (log/names.py)."""

    monotonic: Ns
    count: Count
    records: dict[_KindNumber, Annotated[str, Mark.BASE64]]


Note = Mapping[str, Any]
"""Any of the notes above, or one of a name that this version does not know."""

NOTES: dict[str, Any] = {
    "devices": DevicesNote,
    "names": NamesNote,
    "stacks": StacksNote,
    "mounts": MountsNote,
    "call_timing": CallTimingNote,
    "paused": PausedNote,
    "cpus": CpusNote,
    "containers": ContainersNote,
    "titles": TitlesNote,
    "cgroups": CgroupsNote,
}
"""The types of notes by their name in the log."""


class LossWindow(TypedDict, total=False):
    """A time in which records were lost (accounting.loss.Window)."""

    start: Required[Ns]
    end: Required[Ns]
    cpu: Annotated[int, Range(-1, 0xFFFF)]
    kind: Annotated[int, Range(0, 0xFF)]
    count: Annotated[int, Range(-1, 1 << 62)]


class ProgramFacts(TypedDict, total=False):
    """What readers use of a program's row (accounting.cost.program_rows)."""

    letter: Required[str]
    run_count: Required[Count]
    run_ns: Required[Ns]
    part: str


class LeftOutFacts(TypedDict, total=False):
    """What filters left out (filters.left_out)."""

    bios: dict[str, Count]
    events: dict[_KindNumber, Count]
    unfollowed: Count


class LogFacts(TypedDict, total=False):
    """What readers use of the log's size, which the log writer adds."""

    names: Count


class RecorderCost(TypedDict, total=False):
    """What the recorder's own process used, and whether that was more than wanted."""

    cpu_seconds: Required[Seconds]
    max_rss_bytes: Required[Count]
    max_cpu: float | None
    max_cpu_exceeded: Count
    """Periods in which `max_cpu` was exceeded."""
    hurried: Count
    """How often the threads were made real-time."""


class PathCost(TypedDict, total=False):
    """What the programs of the path cost; in the END frame of a whole recording."""

    calls: Count
    """System calls that entered the kernel while calls were timed."""
    timed: Count
    """Of these, the calls whose return was waited for: of chosen tasks, by their number."""
    seconds: dict[str, Seconds]
    """CPU time by part, as estimated; a part without an estimate is absent."""


class RunFacts(TypedDict, total=False):
    """What END says of a whole recording, whose other facts its last file has in "run"."""

    seconds: Seconds
    path: PathCost
    """Only where the path was recorded."""
    sites: SitesCounts
    """Only where sites were chosen by declaration (`pairs`, `follow`)."""


class End(RunFacts, total=False):
    """A log's END frame."""

    reason: str
    stopped: Clock
    """Right before the programs were detached; in a file of several: at its last records."""
    clocks: Clock
    lost: dict[str, int]
    """By record kind as text."""
    too_deep: int
    skipped: dict[str, int]
    """By event letter."""
    programs: list[Annotated[dict[str, Any], ProgramFacts]]
    left_out: Annotated[dict[str, Any], LeftOutFacts]
    recorder: RecorderCost
    events: int
    ns_per_event: float
    rights_kept: list[str]
    trigger: dict[str, Any]
    triggers_let_pass: int
    log: Annotated[dict[str, int], LogFacts]
    run: Annotated[dict[str, Any], RunFacts]
    """Only in the last file of several: the facts of the whole recording."""
