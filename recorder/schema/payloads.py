# SPDX-License-Identifier: Apache-2.0
"""The payloads of a log's frames that are JSON: header, notes and END, as types.

docs/log-format.md says what each key means. Every key may be absent: a fact that is not known has
none, and older recorders and other sources of events (blktrace) know fewer. A reader that meets a
log from elsewhere checks the values first (recorder/log/validation.py).
"""

from collections.abc import Mapping
from typing import Any, NotRequired, TypedDict

Clock = dict[str, int]
"""A reading of the clocks: ns by name ("monotonic", "boottime", "realtime", "uncertainty")."""

Device = dict[str, Any]
"""A device's entry (recorder/host/devices.py): "dev", a dev_t, and what else is known."""


class HostFacts(TypedDict, total=False):
    """The machine that recorded (recorder/host/host.py)."""

    name: str
    machine: str
    cpus: int
    boot_id: str
    os: str
    cpu_model: str
    memory_bytes: int
    hypervisor: str
    product: str


class KernelEnums(TypedDict, total=False):
    """The numbers by which `opf` of a log's records is decoded."""

    op_enum: dict[str, int]
    """REQ_OP_* by name without the prefix."""
    flag_bits: dict[str, int]
    """Bit numbers by name: __REQ_* without the prefix."""


class KernelFacts(KernelEnums, total=False):
    """The kernel that recorded."""

    release: str
    version: str


class DeviceFilter(TypedDict):
    """A device that the recording was limited to; dev_t."""

    spec: NotRequired[str]
    """As the user named it; absent for devices below, and for paths to it."""
    disk: int
    part: int
    """0: the whole disk."""


class FilterFacts(TypedDict, total=False):
    """What the recording was limited to (filters.Filters.header); a filter not given has no key."""

    devices: list[DeviceFilter]
    """Empty: all devices."""
    pids: list[int]
    children: bool
    tids: list[int]
    comms: list[str]
    cgroups: list[str]
    units: list[str]
    containers: list[str]
    pods: list[str]
    files: list[str]
    dirs: list[str]
    ops: list[str]
    flags: list[str]
    min_bytes: int
    sectors: list[list[int]]
    below: bool
    own_io: bool


class MissingTracepoint(TypedDict):
    """A tracepoint of the event set that is not recorded, and why."""

    letter: str
    tracepoint: str
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


class PathFacts(TypedDict):
    """Parts of the path beside the block layer are recorded (records.PATH_PARTS)."""

    parts: list[str]
    missing: list[MissingPart]
    drivers: NotRequired[dict[str, str]]
    """Only with the part driver: driver → why its steps are not recorded, "" if they are."""


class PairFacts(TypedDict, total=False):
    """One declared pair of events (`biotrail pairs`), by which PAIR records are read."""

    name: str
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

    name: str
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
    every: int
    max: int
    slower_ns: int
    """0: all lives; else only those that took longer."""
    unseen: dict[str, int]
    """Functions of the type that could not be attached: their number by reason."""


class SitesFacts(TypedDict, total=False):
    """Sites that were chosen by declaration; absent where none were."""

    pairs: list[PairFacts]
    follow: FollowFacts


class PairCounts(TypedDict, total=False):
    """What one declared pair came to, over the whole recording: END's "sites"."""

    name: str
    pairs: int
    """Records written."""
    begins_open: int
    """Begins without an end, when the recording stopped."""
    ends_alone: int
    """Ends without a begin: it was before the recording, or not taken."""
    overwritten: int
    """Begins with the key of one that had no end yet; the later one counts."""
    full: int
    """Begins that were not kept, as there was no room."""
    bad_reads: int
    """Events not taken, as memory that a key or test points to could not be read."""
    others: int
    """Events not taken, as `where` or a filter (-d, --pid, …) excludes them."""
    names: dict[str, str]
    """Names of functions by their address in decimal, of values of `by` with the format symbol."""


class SitesCounts(TypedDict, total=False):
    """END's "sites": what the sites came to."""

    pairs: list[PairCounts]
    """In the order of the header's sites.pairs."""
    follow: dict[str, int]


class RingFacts(TypedDict):
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


class SeriesFacts(TypedDict):
    """A file's place in a rotated recording."""

    run: str
    number: int
    """From 1."""
    last: NotRequired[int]
    """Set by a reader of several files: the last one's number."""


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

    format: dict[str, int]
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
    versions: dict[str, str]
    rings: RingFacts
    rights: RightFacts
    series: SeriesFacts
    """Only in a file of a rotated recording."""
    kept: dict[str, Any]
    """Only in a dump of a flight recorder: run, number, reason, seconds, limit, trigger, …"""
    schema: list[dict[str, Any]]
    """The records, as records.schema()."""


class CallTimingNote(TypedDict):
    """System calls were no longer timed from `until` (ns of CLOCK_MONOTONIC) on."""

    until: int
    percent: float
    """Of one CPU, that timing took before, as estimated."""
    budget: float
    """Per cent that it was allowed to take."""


class PausedNote(TypedDict("_Paused", {"from": int})):
    """A suspect stood from `from` to `to` (ns of CLOCK_MONOTONIC), for the experiment."""

    to: int
    name: str
    """As it was given to --pause."""
    label: str
    """For people: a process with its number, or a cgroup's path."""
    cgroup: str
    """The cgroup's path, with all below it; "": a process was stopped."""
    pids: list[int]
    """The suspect's processes when recording began; at most 1,000."""
    times: int
    """How often it was to stand; periods without a note did not happen."""


class DevicesNote(TypedDict):
    """Devices that appeared or changed; an entry replaces earlier ones of the same dev_t."""

    devices: list[Device]


CgroupsNote = dict[str, str]
"""Paths of cgroups by their id as text."""


class ContainersNote(TypedDict):
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
        "from": int,
        "to": int,
        "steal_ns": int,
        "throttled_ns": dict[str, int],
        "pids": dict[str, list[int]],
    },
)
"""What kept threads from running in a time (CLOCK_MONOTONIC): the hypervisor, quotas by path."""

MountsNote = dict[str, list[list[str]]]
"""By dev_t of a super block, as text: [[directory within the file system, mount point], …]."""


class StacksNote(TypedDict, total=False):
    """New call stacks by their id as text: frames [function, place, offset], innermost first."""

    kernel: dict[str, list[list[Any]]]
    user: dict[str, list[list[Any]]]
    wait: dict[str, list[list[Any]]]
    """Kernel stacks of waits: an id of their own (WAIT_STACK records)."""
    site: dict[str, list[list[Any]]]
    """Kernel stacks of followed objects: an id of their own (HIT records)."""


Note = Mapping[str, Any]
"""Any of the notes above, or one of a name that this version does not know."""


class RecorderCost(TypedDict, total=False):
    """What the recorder's own process used, and whether that was more than wanted."""

    cpu_seconds: float
    max_rss_bytes: int
    max_cpu: float | None
    max_cpu_exceeded: int
    """Periods in which `max_cpu` was exceeded."""
    hurried: int
    """How often the threads were made real-time."""


class PathCost(TypedDict):
    """What the programs of the path cost; in the END frame of a whole recording."""

    calls: int
    """System calls that entered the kernel while calls were timed."""
    timed: int
    """Of these, the calls whose return was waited for: of chosen tasks, by their number."""
    seconds: dict[str, float]
    """CPU time by part, as estimated; a part without an estimate is absent."""


class End(TypedDict, total=False):
    """A log's END frame; the log writer adds `log`, the log's size."""

    reason: str
    seconds: float
    stopped: Clock
    """Right before the programs were detached; in a file of several: at its last records."""
    clocks: Clock
    lost: dict[str, int]
    """By record kind as text."""
    too_deep: int
    skipped: dict[str, int]
    """By event letter."""
    programs: list[dict[str, Any]]
    left_out: dict[str, Any]
    recorder: RecorderCost
    events: int
    ns_per_event: float
    path: PathCost
    """Only where the path was recorded."""
    sites: SitesCounts
    """Only where sites were chosen by declaration (`pairs`, `follow`)."""
    rights_kept: list[str]
    trigger: dict[str, Any]
    triggers_let_pass: int
    log: dict[str, int]
    run: dict[str, Any]
    """Only in the last file of several: the facts of the whole recording."""
