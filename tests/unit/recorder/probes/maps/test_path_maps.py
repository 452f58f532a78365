# SPDX-License-Identifier: Apache-2.0
"""Parts of the path beside the block layer: what is chosen by a kernel's BTF, and what is said."""

import ctypes
import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import BY_OWN, read_left_out
from biotrail.recorder.host import own_io
from biotrail.recorder.host.memory_limit import Room
from biotrail.recorder.host.own_io import OwnFile, own_file, pid_namespace
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.probes.kernel.libbpf import SECTION, MapType, map_bytes
from biotrail.recorder.probes.maps import path_maps
from biotrail.recorder.probes.maps.admission import config
from biotrail.recorder.probes.maps.fitting import LEAST_WITH_FILTERS, ensure_room, fit
from biotrail.recorder.probes.maps.path_maps import (
    COMMITS,
    DRIVERS,
    NO_PATH,
    PROBES,
    PathChoice,
    PathMaps,
    choose_path,
)
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema import shared, syscalls
from biotrail.recorder.schema.errors import ProbeError
from biotrail.recorder.schema.limits import OWN_FILES
from biotrail.recorder.schema.records import PATH_PARTS
from biotrail.recorder.session.session import record
from biotrail.text.record.left_out import filters_text, left_out_text
from tests.support.fake_probes import FakeProbes, options

JBD2 = {
    "jbd2_end_commit": 2,
    "jbd2_commit_logging": 2,
    "jbd2_commit_flushing": 2,
    "jbd2_commit_locking": 2,
    "jbd2_start_commit": 2,
}
MODERN = {
    **JBD2,
    "sys_enter": 2,
    "sys_exit": 2,
    "sched_switch": 4,
    "sched_waking": 1,
    "irq_handler_entry": 2,
    "irq_handler_exit": 3,
    "softirq_raise": 1,
    "softirq_entry": 1,
    "softirq_exit": 1,
    "writeback_dirty_folio": 2,
    "io_uring_complete": 3,
    "iomap_dio_complete": 3,
    "io_uring_queue_async_work": 2,
    "io_uring_poll_arm": 3,
    "io_uring_link": 2,
    "io_uring_cqring_wait": 2,
    "io_uring_submit_req": 1,
}
WITHOUT_5_10 = {"writeback_dirty_folio", *JBD2}
DEBIAN_5_10 = {
    **{name: count for name, count in MODERN.items() if name not in WITHOUT_5_10},
    "sched_switch": 3,
    "writeback_dirty_page": 2,
    "io_uring_complete": 4,
    "io_uring_queue_async_work": 5,
}
LOST_WITH = {"wait": {"wait", "fs"}}
"""Parts that are lost with one that others need."""
ALL = frozenset(PATH_PARTS)
SYMBOLS = (
    "".join(
        f"ffffffff8137ba{number:02x} T __traceiter_{tracepoint}\n"
        for driver in DRIVERS
        for number, tracepoint in enumerate(driver.programs)
    ).encode()
    + b"ffffffff81d710e0 t lo_rw_aio_complete\t[loop]\n"
)
"""Of a kernel with the tracepoints of every driver."""


class Kernel:
    """Answers as a kernel's BTF would. regs: whether it has the helper bpf_task_pt_regs()."""

    def __init__(self, parameters: Mapping[str, int], regs: bool = True) -> None:
        self._parameters = parameters
        self._helpers = {"BPF_FUNC_task_pt_regs": 175} if regs else {"BPF_FUNC_unspec": 0}

    def parameters(self, tracepoint: str) -> int | None:
        return self._parameters.get(tracepoint)

    def function_id(self, name: str) -> int | None:
        return 1 if name == "frozen" else None

    def enum(self, name: str) -> dict[str, int] | None:
        return self._helpers if name == "bpf_func_id" else None


@pytest.fixture(autouse=True)
def _no_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel has no types of the module jbd2."""
    monkeypatch.setattr(path_maps, "KernelBtf", lambda _: nullcontext(Kernel({})))


def chosen(
    wanted: frozenset[str],
    parameters: Mapping[str, int],
    regs: bool = True,
    hold: bool = False,
    symbols: bytes = SYMBOLS,
) -> PathChoice:
    kernel = Kernel(parameters, regs)
    return choose_path(wanted, kernel, hold, symbols)  # type: ignore[arg-type]


def test_all_nothing_or_one_part_is_chosen() -> None:
    # GIVEN a kernel with all tracepoints and the helper for registers WHEN all parts are wanted
    choice = chosen(ALL, MODERN)
    # THEN all are recorded, by one program for each tracepoint, in the order of the table
    assert (choice.parts, choice.lacking) == (ALL, {})
    of_drivers = ["driver"] * sum(len(driver.programs) for driver in DRIVERS)
    of_commits = ["fs"] * len(JBD2)
    expected = [probe.part for probe in PROBES] + of_commits + of_drivers
    assert [program.part for program in choice.programs] == expected
    drivers = dict.fromkeys(("nvme", "scsi", "loop"), "")
    assert choice.facts() == {"parts": list(PATH_PARTS), "missing": [], "drivers": drivers}
    assert choice.messages() == []
    # GIVEN any kernel WHEN no part is wanted THEN none is recorded, and the header has no entry
    assert chosen(frozenset(), MODERN) == NO_PATH
    assert NO_PATH.facts() is None
    # GIVEN a kernel with everything WHEN one part is wanted THEN no other's program is loaded
    assert chosen(frozenset({"dirty"}), MODERN).programs == (
        ("dirty", "bt_dirty", "writeback_dirty_folio"),
    )
    # AND the call of a bio needs none: the program of Q writes it
    call = chosen(frozenset({"call"}), MODERN)
    assert (call.parts, call.programs) == ({"call"}, ())
    # GIVEN a kernel with everything WHEN waits are wanted and timed calls are not
    choice = chosen(frozenset({"wait", "fs"}), MODERN)
    # THEN they are recorded, with what they are for
    assert choice.parts == {"wait", "fs"}
    assert {program.part for program in choice.programs} == {"wait", "fs"}
    # AND stacks of waits need waits
    assert chosen(frozenset({"fs"}), MODERN).lacking["fs"] == "it needs the part wait"


@pytest.mark.parametrize(
    "probe",
    [probe for probe in PROBES if not probe.optional],
    ids=lambda probe: next(iter(probe.tracepoints)),
)
def test_a_part_without_one_of_its_tracepoints_is_left_out_whole(probe: Any) -> None:
    # GIVEN a kernel that lacks one tracepoint WHEN all parts are wanted
    tracepoint = next(iter(probe.tracepoints))
    choice = chosen(ALL, {name: n for name, n in MODERN.items() if name != tracepoint})
    # THEN its part has a reason and no program, and so has a part that needs it
    reason = f"this kernel has no tracepoint {tracepoint}"
    if probe.part == "dirty":
        reason = "this kernel has no tracepoint writeback_dirty_folio or writeback_dirty_page"
    if tracepoint == "io_uring_submit_req":
        reason = "this kernel has no tracepoint io_uring_submit_req or io_uring_submit_sqe"
    lost = LOST_WITH.get(probe.part, {probe.part})
    assert choice.parts == ALL - lost
    assert choice.lacking[probe.part] == reason
    assert lost.isdisjoint(program.part for program in choice.programs)
    assert f"--path {probe.part} is not recorded: {reason}" in choice.messages()


def test_older_tracepoints_and_optional_ones() -> None:
    # GIVEN a kernel before 6.6, which does not report when direct I/O completes WHEN all is wanted
    choice = chosen(ALL, {name: n for name, n in MODERN.items() if name != "iomap_dio_complete"})
    # THEN every part is recorded, without that program
    assert (choice.parts, choice.lacking) == (ALL, {})
    assert "bt_aio_done" not in {program.name for program in choice.programs}
    # GIVEN the prototypes of 6.1 WHEN submissions are wanted
    old = {name: n for name, n in MODERN.items() if name != "io_uring_submit_req"}
    choice = chosen(frozenset({"uring"}), old | {"io_uring_submit_sqe": 2, "io_uring_complete": 7})
    # THEN their programs are taken
    programs = [program.name for program in choice.programs]
    assert (programs[0], programs[-1]) == ("bt_ring_end", "bt_ring_sqe")
    # GIVEN a kernel whose sched_switch has five arguments WHEN all parts are wanted
    choice = chosen(ALL, MODERN | {"sched_switch": 5})
    # THEN waits are not recorded, and all else is
    assert choice.lacking == {
        "wait": "sched_switch has 5 arguments: there is no program for that",
        "fs": "it needs the part wait",
    }
    assert choice.parts == ALL - {"wait", "fs"}


def test_debian_5_10_has_all_but_the_call_of_a_bio() -> None:
    # GIVEN the prototypes of 5.10, which has no bpf_task_pt_regs() WHEN all parts are wanted
    choice = chosen(ALL, DEBIAN_5_10, regs=False)
    # THEN the old programs for a switch and a dirty page are taken, and calls are timed only
    programs = {program.name: program.part for program in choice.programs}
    assert programs["bt_switch_old"] == "wait"
    assert programs["bt_dirty_page"] == "dirty"
    assert not {"bt_switch", "bt_dirty"} & programs.keys()
    assert choice.parts == ALL - {"call", "uring"}
    assert choice.facts() == {
        "parts": ["time", "wait", "irq", "dirty", "fs", "driver"],
        "missing": [{"part": part, "reason": why} for part, why in choice.lacking.items()],
        "drivers": dict.fromkeys(("nvme", "scsi", "loop"), ""),
    }
    # AND completions of io_uring do not name their request there
    assert "io_uring_complete has 4 arguments" in choice.lacking["uring"]
    assert "5.15" in choice.lacking["call"]
    # AND what waits are for is recorded, without commits: modules have no types there
    assert "5.11" in choice.lacking[COMMITS]
    assert not any("jbd" in program for program in programs)


def test_commits_are_found_in_the_module_with_the_right_to_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a kernel whose jbd2 is a module
    kernel = Kernel({n: c for n, c in MODERN.items() if n not in JBD2})
    monkeypatch.setattr(path_maps, "KernelBtf", lambda _: nullcontext(Kernel(JBD2)))
    for right, count in ((True, len(JBD2)), (False, 0)):
        # WHEN the part is wanted, with and without CAP_SYS_ADMIN
        monkeypatch.setattr("biotrail.recorder.rights.capabilities.holds", lambda _: right)  # noqa: B023
        choice = choose_path(frozenset({"time", "wait", "fs"}), kernel, False)  # type: ignore[arg-type]
        # THEN the part is recorded, and commits with that right alone
        assert "fs" in choice.parts
        assert [program.part for program in choice.programs].count("fs") == count
        assert ("CAP_SYS_ADMIN" in choice.lacking.get(COMMITS, "")) == (not right)


def test_commits_are_recorded_whole_or_not_at_all() -> None:
    # GIVEN a kernel that lacks one tracepoint of jbd2 WHEN all parts are wanted
    for tracepoint in JBD2:
        choice = chosen(ALL, {name: n for name, n in MODERN.items() if name != tracepoint})
        # THEN no program of commits is loaded, the reason is said, and nothing else is missing
        assert "fs" not in {program.part for program in choice.programs}
        assert choice.lacking.keys() == {COMMITS}
        assert choice.parts == ALL
        assert choice.messages() == [f"--path {COMMITS} is not recorded: {choice.lacking[COMMITS]}"]


def test_where_tracepoints_are_preemptible_programs_hold_it_off() -> None:
    # GIVEN a kernel whose tracepoints leave preemption on WHEN all parts are wanted
    names = {program.name for program in chosen(ALL, MODERN, hold=True).programs}
    # THEN what a task reaches with interrupts on has the other program, and nothing else has
    held = {"bt_sys_enter_p", "bt_sys_exit_p", "bt_dirty_p"}
    held |= {name for name in names if name.startswith(("bt_ring_", "bt_aio_"))}
    held |= {name for name in names if name.startswith("bt_jbd_")}
    held |= {f"{name}_p" for driver in DRIVERS for name in driver.programs.values()}
    assert {name for name in names if name.endswith("_p")} == held
    plain = {program.name for program in chosen(ALL, MODERN).programs}
    assert {name.removesuffix("_p") for name in names} == plain


class Object:
    """A BPF object that notes what it is told."""

    def __init__(self) -> None:
        self.entries: dict[str, int] = {}
        self.sizes: dict[str, tuple[int | None, int]] = {}
        self.sections: dict[str, Any] = {}
        self.attached: list[str] = []

    def set_initial_value(self, section: str, value: Any) -> None:
        self.sections[section] = value

    def set_map_size(self, name: str, value_bytes: int | None, entries: int) -> None:
        self.entries[name] = entries
        self.sizes[name] = value_bytes, entries

    def put(self, section: str, key: Any, value: Any) -> None:
        assert key is SECTION
        self.sections[section] = value

    def detach(self, program: str) -> None:
        self.attached.remove(program)


def test_programs_and_maps_are_those_of_recorded_parts() -> None:
    # GIVEN an object WHEN nothing of the path is recorded
    bpf = Object()
    PathMaps(bpf, NO_PATH, 1_000_000)  # type: ignore[arg-type]
    # THEN its maps have one entry
    assert set(bpf.entries.values()) == {1}
    section = bpf.sections[".rodata.path"]
    assert not any(getattr(section, part) for part in PATH_PARTS)
    # GIVEN an object and timed calls WHEN its maps are set and it is attached
    bpf = Object()
    choice = chosen(frozenset({"time", "wait"}), MODERN)
    PathMaps(bpf, choice, 5_000_000)  # type: ignore[arg-type]
    # THEN those of what was chosen have their sizes
    assert bpf.entries["bt_call_slots"] == 1 << 16
    assert bpf.entries["bt_dirty_slots"] == 1
    # AND the constants say so to the programs
    section = bpf.sections[".rodata.path"]
    assert (section.time, section.wait, section.call, section.over_ns) == (1, 1, 0, 5_000_000)
    # GIVEN all parts recorded WHEN calls cease to be timed
    bpf = Object()
    maps = PathMaps(bpf, chosen(ALL, MODERN), 1)  # type: ignore[arg-type]
    bpf.attached = [program.name for program in chosen(ALL, MODERN).programs]
    maps.stop_timing()
    # THEN programs of calls are gone, those of waits are not, and calls that were begun are void
    parts = {one.name: one.part for one in chosen(ALL, MODERN).programs}
    assert {parts[name] for name in bpf.attached} == {
        *("wait", "irq", "dirty", "fs", "uring", "driver"),
    }
    assert bpf.sections[".data.timing"].value == 2


@pytest.mark.parametrize(
    ("memory", "table"),
    [(128, 1), (1 << 10, 1), (3 << 10, 4), (24 << 10, 32), (64 << 10, 64), (1 << 20, 128)],
)
def test_the_table_of_who_dirtied_pages_grows_with_memory(
    memory: int, table: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a machine with so many MiB of memory, in pages of 4 KiB
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": memory << 8}.__getitem__)
    # WHEN who dirtied pages is recorded THEN the table has so many MiB, and the programs know
    bpf = Object()
    maps = PathMaps(bpf, chosen(frozenset({"dirty"}), MODERN), 0)  # type: ignore[arg-type]
    assert maps.dirty_bytes == table * MIB
    assert bpf.entries["bt_dirty_slots"] == table * MIB // 8
    assert 512 << (64 - bpf.sections[".rodata.path"].dirty_shift) == table * MIB // 16
    assert maps.short_of_memory() == ""
    # WHEN it is made smaller THEN that is said
    maps.size_dirty(MIB // 2)
    assert f"is 512 KiB instead of {table << 10}: a memory limit" in maps.short_of_memory()


def test_calls_are_told_apart_by_their_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN x86-64 WHEN constants are made
    monkeypatch.setattr("platform.machine", lambda: "x86_64")
    bpf = Object()
    PathMaps(bpf, chosen(ALL, MODERN), 1)  # type: ignore[arg-type]
    section = bpf.sections[".rodata.path"]

    def bits(words: Any) -> set[str]:
        return {
            syscalls.call_name(number, "x86_64")
            for number in range(len(words) * 64)
            if words[number >> 6] >> (number & 63) & 1
        }

    # THEN each call of the lists has its bit, and no other number has one
    known = {syscalls.call_name(number, "x86_64") for number in range(512)}
    assert bits(section.idles) == syscalls.IDLE_CALLS & known
    assert bits(section.reaps) == syscalls.REAPING_CALLS
    assert bits(section.fds) == syscalls.FD_CALLS


# Maps and constants of the part uring: by whether it is recorded, and what kallsyms shows.


def prepared(*parts: str) -> tuple[Any, tuple[int, int]]:
    """The constants, and the entries of the maps."""
    bpf = Object()
    PathMaps(bpf, chosen(frozenset(parts), MODERN), 1)  # type: ignore[arg-type]
    maps = bpf.sizes["bt_ring_sets"], bpf.sizes["bt_running_reqs"]
    assert [size for size, _ in maps] == [256, 16]
    return bpf.sections[".rodata.uring"], (maps[0][1], maps[1][1])


def test_the_part_uring_has_maps_and_functions_where_it_is_recorded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN a kernel that shows its symbols WHEN the part is not recorded
    monkeypatch.setattr(path_maps, "addresses_of", lambda names: dict.fromkeys(names, 7))
    section, entries = prepared("irq")
    # THEN its maps have one entry, and no function is known
    assert entries == (1, 1)
    assert not any(getattr(section, member.name) for member in shared.URING.members)
    # GIVEN a kernel that lacks a function WHEN the part is recorded
    names = {"io_complete_rw": 0xFFFFFFFF81000010, "aio_complete_rw": 0xFFFFFFFF81000020}
    monkeypatch.setattr(path_maps, "addresses_of", lambda _: names)
    section, entries = prepared("uring")
    # THEN programs have the addresses of the others, and the maps their sizes
    assert (section.ring_complete, section.aio_complete) == tuple(names.values())
    assert (section.iomap_end_io, section.ring_complete_polled) == (0, 0)
    assert entries == (1 << 14, 1 << 16)


# What the recorder's own I/O is known by: its process, and the files it writes.

ENUMS: dict[str, dict[str, int]] = {
    "op_enum": {"READ": 0, "WRITE": 1, "ZONE_APPEND": 7},
    "flag_bits": {},
}


class Map:
    """A BPF object that keeps what its section was set to."""

    def put(self, name: str, key: Any, value: Any) -> None:
        assert name == ".data.own"
        self.section = value


def told(*files: OwnFile) -> Any:
    """The section of files that are the recorder's, once each of `files` was told."""
    probes = CoreProbes(ProbeConfig())
    probes._object = known = Map()  # type: ignore[assignment]
    for file in files:
        probes.own_file(file)
    return known.section


class Told(FakeProbes):
    """Probes that are told of files."""

    def __init__(self) -> None:
        super().__init__()
        self.named: list[OwnFile] = []

    def own_file(self, file: OwnFile) -> None:
        self.named.append(file)


def test_a_file_as_the_kernel_knows_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file WHEN asked THEN its inode is what fstat says
    with (tmp_path / "x").open("wb") as stream:
        found = own_file(stream.fileno())
        assert found is not None
        assert found.inode == os.fstat(stream.fileno()).st_ino
        assert found.dev > 0
        assert own_io._super_block(stream.fileno()) is not None
    assert own_io._super_block(1 << 20) is None
    # GIVEN a file whose fstat names another device than its mount's (btrfs)
    monkeypatch.setattr(own_io, "_super_block", lambda _fd: 0 << 20 | 44)
    with (tmp_path / "x").open("wb") as stream:
        # WHEN asked THEN the mount's is taken
        found = own_file(stream.fileno())
        assert found is not None
        assert found.dev == 44
    # GIVEN a pipe, and a descriptor that is none WHEN asked THEN there is nothing to know
    read, write = os.pipe()
    assert own_file(write) is None
    os.close(read)
    os.close(write)
    assert own_file(write) is None


def test_the_newest_files_are_told() -> None:
    # GIVEN more files than there are places WHEN each is told
    found = told(*(OwnFile(n, 1, n * 10) for n in range(1, OWN_FILES + 3)))
    # THEN the newest are there, the last first
    expected = [(n, n * 10) for n in range(OWN_FILES + 2, 2, -1)]
    assert [(file.inode, file.generation) for file in found] == expected
    # GIVEN a file system that does not tell generations WHEN a second file is told
    found = told(OwnFile(1, 1, None), OwnFile(2, 1, 7))
    # THEN the first is not known any more
    assert [(file.inode, file.generation) for file in found if file.inode] == [(2, 7)]
    # GIVEN the C struct's layout / THEN ours is the same
    found = told(OwnFile(3, 4, None))
    assert ctypes.sizeof(found) == OWN_FILES * 24
    assert (found[0].has_generation, found[0].dev) == (0, 4)


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({}, 1),
        ({"rotate": Limit(bytes=1), "max_events": 8}, 2),
        ({"keep": Limit(bytes=1 << 20)}, 1),
    ],
)
def test_every_file_is_told(tmp_path: Path, more: dict[str, Any], count: int) -> None:
    # GIVEN outputs of each kind WHEN something is recorded
    probes = Told()
    summary = record(options(tmp_path / "log", duration=0.05, **more), probes=probes)
    # THEN the probes were told of each file that there is
    files = summary.files or [str(tmp_path / "log")]
    assert len(probes.named) >= min(count, len(files))
    assert {os.stat(path).st_ino for path in files} <= {file.inode for file in probes.named}


def test_a_pipe_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a pipe as output
    read, write = os.pipe()
    monkeypatch.setattr("biotrail.recorder.session.opening._STDOUT", write)
    probes = Told()
    # WHEN something is recorded THEN there is no file to tell of
    record(options(None, duration=0.01), probes=probes)
    assert probes.named == []
    os.close(read)
    os.close(write)


def test_what_the_programs_know_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the host's processes, and a container's
    for space in (None, (4, 99)):
        monkeypatch.setattr(
            "biotrail.recorder.probes.maps.admission.pid_namespace", lambda space=space: space
        )
        found = config(RingSizes(1 << 16, 1 << 13), [], Filters(own_io=bool(space)), ENUMS)
        # WHEN the programs are told THEN it is the number there, and where
        assert found.recorder == os.getpid()
        assert (found.ns_dev, found.ns_inode) == (space or (0, 0))
        # AND whether what they find is to be left out; of the operations those that write files
        assert found.leave_own == (space is None)
        assert found.file_ops == 1 << 1 | 1 << 7
    monkeypatch.undo()
    # GIVEN this machine / THEN the namespace is the initial one, or one with an inode
    space = pid_namespace()
    assert space is None or space[1] == os.stat("/proc/self/ns/pid").st_ino


def test_reasons_and_maps_are_counted_apart() -> None:
    # GIVEN counters in which only the last reason counted
    counters = [0] * 16
    counters[BY_OWN] = 12
    found = read_left_out(counters, [12])
    # THEN it has a name, after those that were there before
    assert found.bios == {"own": 12}
    assert "12 of the recorder itself" in left_out_text(found)
    assert filters_text(Filters(pids=(1,), own_io=True).header()) == "--pid 1 --own-io"
    # GIVEN maps WHEN they leave the recorder enough, or there is no limit THEN nothing is said
    ensure_room(10 * MIB, Room(30 * MIB, ""))
    ensure_room(10 * MIB, None, LEAST_WITH_FILTERS)
    # AND filters take more
    with pytest.raises(ProbeError, match="needs 38 MiB more"):
        ensure_room(10 * MIB, Room(30 * MIB, ""), LEAST_WITH_FILTERS)


# What a recording takes of memory is reckoned before, and made to fit.

MIB = 1 << 20


def fitted(room: int | None, table: int = 0, others: int = 0) -> tuple[int, int]:
    """Bytes of a ring of level 0, and of the table, of 2 CPUs with rings of 64 MiB, in `room`."""
    limit = None if room is None else Room(room, "are left")
    sizes, fits = fit(RingSizes.choose(2, 64 * MIB), 2, table, others, limit, MIB, 20 * MIB)
    return sizes.ring_bytes, fits


@pytest.mark.parametrize(
    ("room", "size"),
    [
        (None, 64 * MIB),
        (2 * 80 * MIB + 33 * MIB, 64 * MIB),
        (2 * 80 * MIB + 31 * MIB, 32 * MIB),
        (33 * MIB, 256 << 10),
        (21 * MIB, 64 << 10),
    ],
)
def test_rings_leave_room_for_the_recorder(room: int | None, size: int) -> None:
    # GIVEN two CPUs with rings of 64 MiB, 80 MiB each with those above
    # WHEN there is that much memory THEN they are halved until 32 MiB of it are left, if they can
    assert fitted(room) == (size, 0)


@pytest.mark.parametrize(
    ("room", "rings", "table"),
    [
        (300 * MIB, 64 * MIB, 16 * MIB),
        (100 * MIB, 16 * MIB, 16 * MIB),
        (60 * MIB, 2 * MIB, 8 * MIB),
        (45 * MIB, 512 << 10, MIB),
        (34 * MIB, 64 << 10, MIB),
    ],
)
def test_the_larger_of_rings_and_table_gives_way(room: int, rings: int, table: int) -> None:
    # GIVEN a table of 16 MiB and other maps of 10 beside the rings
    # WHEN memory is limited THEN the larger is halved, until the least of both
    assert fitted(room, 16 * MIB, 10 * MIB) == (rings, table)


@pytest.mark.parametrize("room", [20 * MIB, 0, -5])
def test_what_does_not_fit_is_one_message(room: int) -> None:
    # GIVEN room for less than the recorder itself WHEN it is held against that THEN it is said
    with pytest.raises(ProbeError, match=r"needs 21 MiB more with the smallest .* MiB are left: "):
        fitted(room)


@pytest.mark.parametrize(
    ("kind", "key", "value", "entries", "size"),
    [
        (MapType.ARRAY, 4, 64, 1 << 18, 16 * MIB),
        (MapType.ARRAY, 4, 3, 512, 4096),
        (MapType.HASH, 8, 8, 1 << 16, 5 * MIB + 4096),
        (MapType.PERCPU_ARRAY, 4, 4096, 2, 20480),
        (MapType.STACK_TRACE, 4, 1016, 16384, 16384 * (1032 + 8)),
        (MapType.RINGBUF, 0, 0, MIB, MIB + 3 * 4096),
    ],
)
def test_maps_have_the_sizes_that_the_kernel_gives_them(
    kind: MapType, key: int, value: int, entries: int, size: int
) -> None:
    # GIVEN maps WHEN their bytes are reckoned, for two CPUs THEN they are those of the kernel
    assert map_bytes(kind, key, value, entries, 2) == size
