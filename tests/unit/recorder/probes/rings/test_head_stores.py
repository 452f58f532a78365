# SPDX-License-Identifier: Apache-2.0
"""Stores of ring heads are made exchanges: all of them, and nothing else."""

import platform

import numpy as np
import pytest

from biotrail.recorder.probes.kernel.libbpf import BpfObject
from biotrail.recorder.probes.programs import default_object_path
from biotrail.recorder.probes.rings import barriers, head_stores
from biotrail.recorder.probes.rings.barriers import Fence, Membarrier, NoBarrier, machine_barrier
from biotrail.recorder.probes.rings.head_stores import with_exchanges

SELF_MOVE = 0x22BF  # r2 = r2
STORE = 0x127B  # *(u64 *)(r2 + 0) = r1
XCHG = 0xE1000012DB  # r1 = xchg_64(r2 + 0, r1)
OTHERS = (
    [0x227B, STORE],  # no move
    [0x21BF, STORE],  # a move from r2 to r1
    [0x33BF, STORE],  # r3 = r3
    [SELF_MOVE, STORE | 8 << 16],  # at an offset
    [SELF_MOVE, 0x1263],  # of 32 bits
    [SELF_MOVE | 1 << 32, STORE],  # with an immediate
    [STORE, SELF_MOVE],
    [SELF_MOVE],
    [],
)

MARKED = {"bt_queue", "bt_queue_q", "bt_issue_p", "bt_complete", "bt_sys_exit", "bt_jbd_end"}
UNMARKED = {"bt_fork", "bt_nvme_setup", "bt_scsi_start"}


def code(*words: int) -> bytes:
    return np.array(words, "<u8").tobytes()


def test_marked_stores_are_exchanges() -> None:
    # GIVEN a program with two marked stores, among others
    before = code(0xB7, SELF_MOVE, STORE, STORE, 0x77BF, 0x877B, 0x95)
    # WHEN it is rewritten
    after = with_exchanges(before)
    # THEN these are exchanges of the same operands, and nothing else has changed
    assert after == code(0xB7, SELF_MOVE, XCHG, STORE, 0x77BF, 0xE1000087DB, 0x95)


@pytest.mark.parametrize("words", OTHERS)
def test_other_stores_stay(words: list[int]) -> None:
    # GIVEN a store that is not marked  WHEN the program is rewritten  THEN it is as before
    assert with_exchanges(code(*words)) == code(*words)


def marks(code: bytes) -> int:
    """How many stores of these instructions are made exchanges."""
    before, after = (np.frombuffer(words, "<u8") for words in (code, with_exchanges(code)))
    return int((before != after).sum())


def test_every_program_that_writes_records_is_marked() -> None:
    # GIVEN the installed object
    bpf = BpfObject(default_object_path())
    counts: list[int] = []

    def count(code: bytes) -> bytes:
        counts.append(marks(code))
        return with_exchanges(code)

    try:
        # WHEN all its programs are rewritten
        bpf.rewrite(count)
        named = {name: marks(bpf.instructions(name)) for name in ("bt_queue", "bt_fork")}
    finally:
        bpf.close()
    # THEN it had no marks but theirs: functions of their own, which programs call, publish nothing
    path = default_object_path()
    raw = path.read_bytes()
    assert sum(counts) == marks(raw[: len(raw) // 8 * 8])
    # AND as many programs as have records publish; none is left that does it by a store
    assert sum(number > 0 for number in counts) > 50
    assert named == {"bt_queue": 0, "bt_fork": 0}


def test_helpers_of_drivers_publish_nothing() -> None:
    # GIVEN the installed object
    bpf = BpfObject(default_object_path())
    try:
        found = {name: marks(bpf.instructions(name)) for name in MARKED | UNMARKED}
    finally:
        bpf.close()
    # THEN programs of events have marks, and those that keep steps for others' records have none
    assert {name for name, number in found.items() if number} == MARKED


@pytest.mark.parametrize(
    ("machine", "ordered", "kind"),
    [
        ("x86_64", False, NoBarrier),
        ("x86_64", True, NoBarrier),
        ("aarch64", True, Fence),
        ("aarch64", False, Membarrier),
    ],
)
def test_barriers_by_machine(
    machine: str, ordered: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a machine, whose number of membarrier(2) is this machine's
    number = barriers._MEMBARRIER[platform.machine()]
    monkeypatch.setitem(barriers._MEMBARRIER, machine, number)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    # WHEN barriers are chosen for programs with or without exchanges  THEN they fit both
    assert type(machine_barrier(ordered)) is kind


def test_exchanges_are_not_wanted_on_x86(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN x86-64, where no store passes another one
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    # WHEN programs are loaded  THEN they stay as they are, and nothing is tried
    monkeypatch.setattr(head_stores, "exchanges_offered", lambda: pytest.fail("was tried"))
    assert not head_stores.ordered_heads()
