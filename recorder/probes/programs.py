# SPDX-License-Identifier: Apache-2.0
"""Which program of `bpf/biotrail.bpf.c` is for which tracepoint, and the events of each set."""

from dataclasses import dataclass
from pathlib import Path

from biotrail.recorder.probes.backend import ProbeConfig, ProgramInfo
from biotrail.recorder.probes.kernel.btf import KernelBtf, offered
from biotrail.recorder.schema.device_numbers import dev_text
from biotrail.recorder.schema.errors import ProbeError

PREEMPTION_OFF = "_p"
"""Suffix of the programs that disable preemption themselves."""

OBJECT_NAME = "biotrail.bpf.o"
ESSENTIAL = ("Q", "D", "C")
"""Event letters without which recording is refused, but for the event set `light`."""
LIGHT = "light"
"""The event set of a record per request, at its completion."""
LIGHT_LETTER = "L"

_WITHOUT_START = "s"  # block_io_start
_NO_DEVICE = (
    "this kernel's plug events do not say which device they are for, and devices were chosen"
)


@dataclass(frozen=True)
class Probe:
    """One tracepoint: its event letter, and program names by the tracepoint's argument count."""

    letter: str
    tracepoint: str
    programs: dict[int, str]


STEPS: tuple[Probe, ...] = (
    Probe("Q", "block_bio_queue", {1: "bt_queue", 2: "bt_queue_q"}),
    Probe("G", "block_getrq", {1: "bt_getrq", 3: "bt_getrq_q"}),
    Probe("M", "block_bio_backmerge", {1: "bt_back", 3: "bt_back_q"}),
    Probe("F", "block_bio_frontmerge", {1: "bt_front", 3: "bt_front_q"}),
    Probe("X", "block_split", {2: "bt_split", 3: "bt_split_q"}),
    Probe("A", "block_bio_remap", {3: "bt_remap", 4: "bt_remap_q"}),
    Probe("c", "block_bio_complete", {2: "bt_bio_end"}),
    Probe("s", "block_io_start", {1: "bt_start"}),
    Probe("I", "block_rq_insert", {1: "bt_insert", 2: "bt_insert_q"}),
    Probe("R", "block_rq_requeue", {1: "bt_requeue", 2: "bt_requeue_q"}),
    Probe("m", "block_rq_merge", {1: "bt_merge", 2: "bt_merge_q"}),
    Probe("D", "block_rq_issue", {1: "bt_issue", 2: "bt_issue_q"}),
    Probe("C", "block_rq_complete", {3: "bt_complete"}),
    Probe("E", "block_rq_error", {3: "bt_error"}),
    Probe("d", "block_io_done", {1: "bt_io_done"}),
    Probe("P", "block_plug", {1: "bt_hold"}),
    Probe("U", "block_unplug", {3: "bt_release"}),
    Probe("a", "block_rq_remap", {3: "bt_rqremap", 4: "bt_rqremap_q"}),
)
"""The events of the sets but `light`, in the order in which an I/O has them, nearly."""
PROBES: tuple[Probe, ...] = (*STEPS, Probe(LIGHT_LETTER, "block_rq_complete", {3: "bt_light"}))

_ALL = "".join(probe.letter for probe in STEPS)
EVENT_SETS = {
    # D's CHAIN records list every bio of an issued request, so s and G are not needed.
    "minimal": "QMFXAcDCRma",
    "lifecycle": "QMFXAcsIRmDCEa",
    "all": _ALL,
    LIGHT: LIGHT_LETTER,
}
"""Event letters by set; where the kernel has no block_io_start, G is added to lifecycle."""


def wanted_letters(events: str, has_start: bool) -> str:
    """Return the letters of an event set, in no order. Raises ProbeError: there is no such set."""
    if events not in EVENT_SETS:
        names = ", ".join(EVENT_SETS)
        raise ProbeError(f"there is no event set {events!r}: choose one of {names}")
    letters = EVENT_SETS[events]
    if _WITHOUT_START in letters and not has_start and "G" not in letters:
        letters += "G"
    return letters


def is_preemptible(btf: KernelBtf) -> bool:
    """Return whether programs on tracepoints can be preempted, and so have to disable preemption.

    Up to 6.19 a tracepoint runs its probes with preemption off. Since 7.0 it is an SRCU read-side
    section instead (kernel commit a46023d5616e), recognized by the member srcu_gp of struct
    tp_transition_snapshot, or by that struct's absence. bpf_preempt_disable() is there since 6.10;
    without it the answer is False.
    """
    if btf.function_id("bpf_preempt_disable") is None:
        return False
    members = btf.members("tp_transition_snapshot")
    return members is None or "srcu_gp" in members


def choose(events: str, btf: KernelBtf, by_device: bool = False) -> list[ProgramInfo]:
    """Return each tracepoint's program to load, or the reason for none, in the order of PROBES.

    by_device: only some devices are recorded, before 5.17 without P and U: a plug event carries a
    request_queue only, and queues had no pointer to their disk then. Raises ProbeError.
    """
    letters = wanted_letters(events, btf.parameters("block_io_start") is not None)
    suffix = PREEMPTION_OFF if is_preemptible(btf) else ""
    without = "PU" if by_device and not btf.has_member("request_queue", "disk") else ""
    found = []
    for probe in PROBES:
        program, reason = offered(btf, probe.tracepoint, probe.programs)
        if program and probe.letter not in letters:
            program, reason = "", f"not in the event set {events}"
        elif program and probe.letter in without:
            program, reason = "", _NO_DEVICE
        name = program + suffix if program else ""
        found.append(ProgramInfo(name, probe.letter, probe.tracepoint, False, reason))
    return found


def object_path(name: str = OBJECT_NAME) -> Path:
    # Not by importlib.resources, which takes 10 ms for temporary files that it might make.
    path = Path(__file__).parents[2] / "bpf" / name
    if not path.exists():
        raise ProbeError(
            f"the compiled BPF programs are missing ({path}): run scripts/build-bpf "
            "(needs clang and libbpf-dev), or install a wheel"
        )
    return path


# What the event set `light` cannot be combined with: it sees a request at its completion only

_DEVICES = Path("/sys/dev/block")
_SUBMITTER = "no task is known at a completion"
_WHOLE = "a completion does not show the request as it was queued"
_QUEUED = "it is known only when a bio is queued"
_HANGS = "what hangs has no completion, so the log would not show it; --events minimal does"


def refuse_light(config: ProbeConfig) -> None:
    """Raise ProbeError if a recording of the set `light` asks for what it does not have."""
    if config.events != LIGHT:
        return
    filters, triggers = config.filters, config.triggers
    asked = (
        ("--pid", filters.pids, _SUBMITTER),
        ("--tid", filters.tids, _SUBMITTER),
        ("--comm", filters.comms, _SUBMITTER),
        ("--file", filters.files, _QUEUED),
        ("--dir", filters.dirs, _QUEUED),
        ("--min-size", filters.min_bytes, _WHOLE),
        ("--sectors", filters.sectors, _WHOLE),
        ("--stacks", config.stacks, _QUEUED),
        ("--files", config.files, _QUEUED),
        ("--path", config.path, _QUEUED),
        ("--trigger depth", triggers.depth, "requests in flight are not counted"),
        ("--trigger stuck", triggers.stuck_ns, _HANGS),
    )
    for option, why in ((option, why) for option, given, why in asked if given):
        raise ProbeError(
            f"--events light cannot have {option}: {why}; leave it out, or record another event set"
        )
    disks = {disk for disk, _ in config.devices}
    if disks and not any(map(has_requests, disks)):
        raise ProbeError(
            "--events light records requests, and no chosen device has any, as most of dm and md: "
            "add --below for the devices that they stand on, or record another event set"
        )


def has_requests(disk: int) -> bool:
    """Return whether a disk (dev_t) makes requests; True where sysfs does not have the disk."""
    base = _DEVICES / dev_text(disk)
    return not base.exists() or (base / "mq").exists()
