# SPDX-License-Identifier: Apache-2.0
"""The running kernel's BTF, and the programs chosen by it, on this kernel and on others."""

import ctypes
import re
from pathlib import Path

import pytest

from biotrail.recorder.probes.kernel.btf import KernelBtf, kernel_enums
from biotrail.recorder.probes.kernel.libbpf import BpfObject, RefusedError, load_library
from biotrail.recorder.probes.maps import path_maps
from biotrail.recorder.probes.maps.cgroup_maps import TRACEPOINT
from biotrail.recorder.probes.maps.path_maps import DRIVERS, JOURNAL_PROGRAMS
from biotrail.recorder.probes.programs import (
    PROBES,
    choose,
    is_preemptible,
    object_path,
    wanted_letters,
)
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.records import BY_LETTER
from tests.support.paths import ROOT

SOURCE = ROOT / "bpf" / "biotrail.bpf.c"


@pytest.fixture
def btf():
    if not Path("/sys/kernel/btf/vmlinux").exists():
        pytest.skip("needs the kernel's type information: /sys/kernel/btf/vmlinux is missing")
    with KernelBtf() as opened:
        yield opened


class OtherKernel:
    """Answers as another kernel's BTF would."""

    def __init__(self, parameters, functions=(), members=()):
        self._parameters = parameters
        self._functions = functions
        self._members = members

    def parameters(self, tracepoint):
        return self._parameters.get(tracepoint)

    def function_id(self, name):
        return 1 if name in self._functions else None

    def members(self, name):
        return list(self._members) if name == "tp_transition_snapshot" else None

    def has_member(self, name, member):
        return False


DEBIAN_5_10 = OtherKernel(
    {
        "block_bio_queue": 2,
        "block_getrq": 3,
        "block_bio_backmerge": 3,
        "block_bio_frontmerge": 3,
        "block_split": 3,
        "block_bio_remap": 4,
        "block_bio_complete": 2,
        "block_rq_insert": 1,
        "block_rq_requeue": 1,
        "block_rq_merge": 1,
        "block_rq_issue": 1,
        "block_rq_complete": 3,
        "block_plug": 1,
        "block_unplug": 3,
        "block_rq_remap": 3,
    },
    members=("rcu", "srcu", "ongoing"),
)
MODERN = {
    "block_bio_queue": 1,
    "block_getrq": 1,
    "block_bio_backmerge": 1,
    "block_bio_frontmerge": 1,
    "block_split": 2,
    "block_bio_remap": 3,
    "block_bio_complete": 2,
    "block_rq_insert": 1,
    "block_rq_requeue": 1,
    "block_rq_merge": 1,
    "block_rq_issue": 1,
    "block_rq_complete": 3,
    "block_rq_error": 3,
    "block_plug": 1,
    "block_unplug": 3,
    "block_rq_remap": 3,
}
LINUX_6_1 = OtherKernel(MODERN)
LATEST = MODERN | {"block_io_start": 1, "block_io_done": 1}
KFUNC = ("bpf_preempt_disable",)


def _programs(events, kernel):
    return {c.letter: c.name for c in choose(events, kernel) if c.name}


def test_this_kernels_types(btf):
    # GIVEN this kernel WHEN tracepoints are looked up
    # THEN what all kernels have is there, and what none has is not
    assert btf.parameters("block_rq_complete") == 3
    assert btf.parameters("block_bio_complete") == 2
    assert btf.parameters("block_nothing_of_the_kind") is None
    # AND so it is with structs and functions
    assert "bi_iter" in btf.members("bio")
    assert btf.members("no_such_struct") is None
    assert btf.function_id("no_such_function") is None
    # AND the essential events have a program
    assert set("QDC") <= set(_programs("minimal", btf))
    # AND members have an offset, and the struct they point to has its name
    assert btf.offset("list_head", "next") == 0
    assert btf.offset("list_head", "prev") == 8
    assert btf.pointed("list_head", "prev") == "list_head"
    # AND what is not there has neither
    assert btf.offset("list_head", "none") is None
    assert btf.offset("no_such_struct", "next") is None
    assert btf.pointed("list_head", "none") == ""
    assert btf.pointed("hlist_node", "next") == "hlist_node"
    assert btf.pointed("gendisk", "major") == ""
    # GIVEN a module that is not loaded WHEN its types are wanted too THEN the kernel's are there
    with KernelBtf("no_such_module") as opened:
        assert opened.offset("list_head", "prev") == 8
        opened.close()


def test_enums_of_this_kernel(btf):
    # GIVEN this kernel WHEN its operations and flags are read
    enums = kernel_enums(btf)
    # THEN the ones that never changed have their numbers, and prefixes and ends are gone
    assert enums["op_enum"]["READ"] == 0
    assert enums["op_enum"]["WRITE"] == 1
    assert enums["op_enum"]["FLUSH"] == 2
    assert enums["op_enum"]["DISCARD"] == 3
    assert {"SYNC", "META", "FUA", "PREFLUSH", "RAHEAD"} <= set(enums["flag_bits"])
    assert "LAST" not in enums["op_enum"]
    assert "NR_BITS" not in enums["flag_bits"]
    assert all(8 <= bit < 32 for bit in enums["flag_bits"].values())
    assert btf.enum("no_such_enum") is None


def test_debian_5_10_has_leading_queues_on_bio_events_only():
    # GIVEN the prototypes of Debian's 5.10 WHEN programs are chosen
    chosen = _programs("all", DEBIAN_5_10)
    # THEN bio events take the programs with the queue, request events those without
    assert chosen["Q"] == "bt_queue_q"
    assert chosen["M"] == "bt_back_q"
    assert chosen["A"] == "bt_remap_q"
    assert chosen["D"] == "bt_issue"
    assert chosen["C"] == "bt_complete"
    assert not set("sdE") & set(chosen)
    reasons = {c.letter: c.reason for c in choose("all", DEBIAN_5_10) if not c.name}
    assert reasons["s"] == "this kernel has no tracepoint block_io_start"
    # GIVEN a kernel whose queues do not know their disk  WHEN devices are chosen
    choices = choose("all", DEBIAN_5_10, by_device=True)
    # THEN plugs have a reason in place of a program, and nothing else has lost its own
    before = {c.letter for c in choose("all", DEBIAN_5_10) if c.name}
    assert before - {c.letter for c in choices if c.name} == {"P", "U"}
    assert all("which device they are for" in c.reason for c in choices if c.letter in "PU")


def test_getrq_stands_in_where_start_is_missing():
    # GIVEN a kernel without block_io_start, and one with it WHEN the lifecycle set is chosen
    # THEN only the first has G
    assert "G" in _programs("lifecycle", LINUX_6_1)
    assert "G" not in _programs("lifecycle", OtherKernel(LATEST))
    assert "G" not in wanted_letters("minimal", has_start=False)


def test_preemption_is_held_off_only_where_tracepoints_leave_it_on():
    # GIVEN kernels before and after tracepoints became preemptible
    old = OtherKernel(LATEST, KFUNC, ("rcu", "ongoing"))
    new = OtherKernel(LATEST, KFUNC, ("rcu", "srcu_gp", "ongoing"))
    unknown = OtherKernel(LATEST, KFUNC)
    unknown.members = lambda name: None
    # WHEN they are judged THEN the new and the unknown take programs that hold preemption off
    assert [is_preemptible(k) for k in (DEBIAN_5_10, old, new, unknown)] == [
        False,
        False,
        True,
        True,
    ]
    assert _programs("minimal", old)["Q"] == "bt_queue"
    assert set(_programs("minimal", new).values()) >= {"bt_queue_p", "bt_issue_p", "bt_complete_p"}


def test_what_cannot_be_chosen_has_a_reason():
    # GIVEN a kernel whose block_split has five arguments
    kernel = OtherKernel(LATEST | {"block_split": 5})
    # WHEN programs are chosen
    choice = next(c for c in choose("all", kernel) if c.letter == "X")
    # THEN it is left out, and said why
    assert choice.name == ""
    assert "5 arguments" in choice.reason
    # GIVEN a set that does not exist WHEN it is asked for THEN the message lists those that do
    with pytest.raises(ProbeError, match="minimal, lifecycle, all"):
        wanted_letters("everything", has_start=True)


def test_the_table_names_the_programs_of_the_object():
    # GIVEN the source of the programs
    text = SOURCE.read_text()
    single = re.findall(r"^PROGRAM\((\w+), (\w+),", text, re.MULTILINE)
    both = re.findall(r"^PROGRAMS\((\w+), (\w+),", text, re.MULTILINE)
    # WHEN it is compared with the loader's table
    written = dict(single + both)
    # What tells of new cgroups, and what follows forks for --children, records nothing.
    assert written.pop("bt_cgroup_made") == TRACEPOINT
    assert written.pop("bt_fork") == "sched_process_fork"
    for path_probe in path_maps.PROBES:
        for tracepoint, named in path_probe.tracepoints.items():
            for name in named.values():
                assert written.pop(name) == tracepoint
                # Kernels with the older tracepoint run programs with preemption off.
                if name != "bt_dirty_page":
                    assert (name in dict(both)) == path_probe.in_task
    for tracepoint, name in JOURNAL_PROGRAMS.items():
        assert written.pop(name) == tracepoint
        assert name in dict(both)
    known = {name: probe.tracepoint for probe in PROBES for name in probe.programs.values()}
    # THEN both agree, and every event of the schema has its tracepoint
    assert written == known
    # THEN there is a variant that disables preemption of each but those of older kernels
    assert {name for name in known if not name.endswith("_q")} == known.keys() & dict(both).keys()
    for probe in PROBES:
        assert BY_LETTER[probe.letter].tracepoint == probe.tracepoint
    # THEN they fit what the kernel keeps, without the final zero
    names = [name for name, _ in single] + [f"{name}_p" for name, _ in both]
    names += [f"{name}_p" for one in DRIVERS for name in one.programs.values()]
    assert max(map(len, names)) <= 15


def test_the_chosen_programs_of_an_object_are_loaded_alone() -> None:
    # GIVEN the installed object WHEN programs are chosen, then one that it has not
    bpf = BpfObject(object_path())
    autoload = load_library().get("bpf_program__autoload")
    autoload.argtypes, autoload.restype = (ctypes.c_void_p,), ctypes.c_bool
    try:
        bpf.choose({"bt_queue", "bt_fork"}, by_states="bt_queue")
        chosen = {name for name, program in bpf._programs() if autoload(program)}
        with pytest.raises(RefusedError, match="has no program bt_none"):
            bpf.choose({"bt_queue", "bt_none"})
    finally:
        bpf.close()
    # THEN no other is loaded, and a missing one is an error
    assert chosen == {"bt_queue", "bt_fork"}
