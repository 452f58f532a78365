# SPDX-License-Identifier: Apache-2.0
"""Which program of `bpf/biotrail.bpf.c` serves which tracepoint, and what each event set holds."""

from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from biotrail.recorder.probes.btf import KernelBtf
from biotrail.recorder.schema.errors import ProbeError

PREEMPTION_OFF = "_p"
"""Suffix of the programs that hold preemption off by themselves."""

OBJECT_NAME = "biotrail.bpf.o"
ESSENTIAL = ("Q", "D", "C")
"""Without these a recording says nothing."""

_WITHOUT_START = "s"


@dataclass(frozen=True)
class Probe:
    """One tracepoint: its programs by the number of arguments that the kernel passes."""

    letter: str
    tracepoint: str
    programs: dict[int, str]


PROBES: tuple[Probe, ...] = (
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

_ALL = "".join(probe.letter for probe in PROBES)
EVENT_SETS = {
    # D's chain holds every bio of a request that was ever issued, so s and G can be spared.
    "minimal": "QMFXAcDCRma",
    "lifecycle": "QMFXAcsIRmDCEa",
    "all": _ALL,
}
"""Letters by set; where the kernel has no block_io_start, lifecycle has G instead of s."""


@dataclass(frozen=True)
class Choice:
    """What becomes of one tracepoint: the program to load, or the reason for none."""

    probe: Probe
    program: str | None
    reason: str


def wanted_letters(events: str, has_start: bool) -> str:
    """Letters of an event set on this kernel. Raises ProbeError for an unknown set."""
    if events not in EVENT_SETS:
        known = ", ".join(EVENT_SETS)
        raise ProbeError(f"there is no event set {events!r}: choose one of {known}")
    letters = EVENT_SETS[events]
    if _WITHOUT_START in letters and not has_start and "G" not in letters:
        letters += "G"
    return letters


def is_preemptible(btf: KernelBtf) -> bool:
    """Whether programs on tracepoints can be preempted, so that they have to forbid it.

    Up to 6.19 a tracepoint runs its probes with preemption off. Since 7.0 it holds a
    sleepable-RCU reader instead (kernel commit a46023d5616e), which is seen by a member of
    struct tp_transition_snapshot. The means to forbid it came with 6.10.
    """
    if not btf.has_function("bpf_preempt_disable"):
        return False
    members = btf.members("tp_transition_snapshot")
    return members is None or "srcu_gp" in members


def all_programs() -> list[str]:
    """Every program of the object."""
    plain = [name for probe in PROBES for name in probe.programs.values()]
    return plain + [name + PREEMPTION_OFF for name in plain if not name.endswith("_q")]


def choose(events: str, btf: KernelBtf, preemptible: bool | None = None) -> list[Choice]:
    """For each tracepoint the program that fits this kernel; in the order of PROBES.

    `preemptible` overrides what `is_preemptible` finds.
    """
    if preemptible is None:
        preemptible = is_preemptible(btf)
    choices = _choose_plain(events, btf)
    if not preemptible:
        return choices
    return [
        replace(choice, program=choice.program + PREEMPTION_OFF) if choice.program else choice
        for choice in choices
    ]


def without_plugs(choices: list[Choice], btf: KernelBtf) -> list[Choice]:
    """The same where devices are chosen: before 5.17 no plug can be told to be of one of them.

    A plug names a queue, and a queue did not know its disk.
    """
    if btf.has_member("request_queue", "disk"):
        return choices
    why = "this kernel does not tell whose a plug is, and devices were chosen"
    return [
        replace(choice, program=None, reason=why)
        if choice.program and choice.probe.letter in "PU"
        else choice
        for choice in choices
    ]


def _choose_plain(events: str, btf: KernelBtf) -> list[Choice]:
    letters = wanted_letters(events, btf.parameters("block_io_start") is not None)
    return [_choose_one(probe, letters, events, btf) for probe in PROBES]


def _choose_one(probe: Probe, letters: str, events: str, btf: KernelBtf) -> Choice:
    program, reason = offered(probe, btf)
    if program is not None and probe.letter not in letters:
        return Choice(probe, None, f"not in the event set {events}")
    return Choice(probe, program, reason)


def offered(probe: Probe, btf: KernelBtf) -> tuple[str | None, str]:
    """The program for a tracepoint on this kernel, and why there is none."""
    count = btf.parameters(probe.tracepoint)
    if count is None:
        return None, f"this kernel has no tracepoint {probe.tracepoint}"
    if count not in probe.programs:
        return None, f"{probe.tracepoint} has {count} arguments, which no program knows"
    return probe.programs[count], ""


def default_object_path() -> Path:
    """The compiled programs. Raises ProbeError where they were not built."""
    path = Path(str(resources.files("biotrail.bpf"))) / OBJECT_NAME
    if not path.exists():
        raise ProbeError(
            f"the compiled BPF programs are missing ({path}): run scripts/build-bpf "
            "(needs clang and libbpf-dev), or install a wheel"
        )
    return path
