# SPDX-License-Identifier: Apache-2.0
"""What a kernel or process cannot record, and the reason that is given."""

import errno
from pathlib import Path

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.triggers import Triggers
from biotrail.recorder.probes import capability, programs
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.bcc.probes import BccProbes
from biotrail.recorder.probes.kernel import bpf_calls
from biotrail.recorder.probes.maps.path_maps import (
    DRIVERS,
    Driver,
    choose_drivers,
    choose_path,
)
from biotrail.recorder.probes.maps.stack_maps import Stacks
from biotrail.recorder.probes.programs import EVENT_SETS, PROBES
from biotrail.recorder.rights import capabilities
from biotrail.recorder.schema.errors import ProbeError

# recorder/probes/capability.py: why a process may not load programs.


@pytest.mark.parametrize(
    ("holds", "in_host", "refused", "said"),
    [
        ({"CAP_BPF"}, True, None, "lacks CAP_PERFMON"),
        (set(), True, None, "lacks CAP_BPF and CAP_PERFMON"),
        ({"CAP_SYS_ADMIN"}, False, None, "rights in a user namespace of its own"),
        ({"CAP_BPF", "CAP_PERFMON"}, True, errno.EPERM, "may not call bpf(2)"),
        ({"CAP_BPF", "CAP_PERFMON"}, True, errno.ENOSYS, "a seccomp filter or a security module"),
    ],
)
def test_what_refuses_is_named(
    monkeypatch: pytest.MonkeyPatch, holds: set[str], in_host: bool, refused: int | None, said: str
) -> None:
    # GIVEN a process that lacks capabilities, has them in a container's user namespace alone, or
    # may not call bpf(2) with them
    monkeypatch.setattr(capabilities, "holds", holds.__contains__)
    monkeypatch.setattr(capabilities, "in_host_namespace", lambda: in_host)
    monkeypatch.setattr(bpf_calls, "refused", lambda: refused)
    # WHEN it shall record  THEN one message says which of these it is
    with pytest.raises(ProbeError, match=r"cannot record: this process .*; .*") as raised:
        capability.require_rights()
    assert said in str(raised.value)
    # AND doctor says the same
    check = capability.report()[0]
    assert (check.name, check.ok) == ("rights", False)
    assert said in check.detail


def test_enough_rights_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN the two capabilities of the host, or CAP_SYS_ADMIN alone, and bpf(2)
    monkeypatch.setattr(capabilities, "in_host_namespace", lambda: True)
    monkeypatch.setattr(bpf_calls, "refused", lambda: None)
    for holds in ({"CAP_BPF", "CAP_PERFMON"}, {"CAP_SYS_ADMIN"}):
        monkeypatch.setattr(capabilities, "holds", holds.__contains__)
        # THEN nothing is in the way
        assert capability.refusal() is None


# What a recording of the event set light is refused, with the reason.


def config(events: str = "light", **asked: object) -> ProbeConfig:
    return ProbeConfig(events, **asked)


@pytest.mark.parametrize(
    ("option", "asked"),
    [
        ("--pid", {"filters": Filters(pids=(1,))}),
        ("--tid", {"filters": Filters(tids=(1,))}),
        ("--comm", {"filters": Filters(comms=("fio",))}),
        ("--file", {"filters": Filters(files=("/x",))}),
        ("--dir", {"filters": Filters(dirs=("/",))}),
        ("--min-size", {"filters": Filters(min_bytes=4096)}),
        ("--sectors", {"filters": Filters(sectors=((0, 7),))}),
        ("--stacks", {"stacks": Stacks.KERNEL}),
        ("--files", {"files": True}),
        ("--path", {"path": frozenset({"call"})}),
        ("--trigger depth", {"triggers": Triggers(depth=8)}),
        ("--trigger stuck", {"triggers": Triggers(stuck_ns=8)}),
    ],
)
def test_what_a_completion_does_not_tell_is_refused(option: str, asked: dict[str, object]) -> None:
    # GIVEN a light recording that asks for more than a completion tells
    # WHEN it is opened THEN one message says what, and why
    with pytest.raises(ProbeError, match=f"--events light cannot have {option}: "):
        programs.refuse_light(config(**asked))
    # AND other sets may have it
    programs.refuse_light(config("minimal", **asked))


def test_what_a_completion_tells_is_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN filters by operation, flags and cgroup, and triggers by time and error
    filters = Filters(ops=("read",), flags=(("sync",),), cgroups=("/",), below=True)
    # THEN a light recording has them
    programs.refuse_light(config(filters=filters, triggers=Triggers(slow_ns=1, failed=True)))
    # GIVEN the event sets THEN light has one event, which no other set has
    assert EVENT_SETS["light"] == "L"
    assert all("L" not in letters for name, letters in EVENT_SETS.items() if name != "light")
    assert {p.letter for p in PROBES} == set(EVENT_SETS["all"]) | {"L"}
    # GIVEN the bcc backend, with all rights
    monkeypatch.setattr("biotrail.recorder.probes.bcc.probes.require_rights", lambda: None)
    # WHEN a light recording is opened THEN it is refused with what to do
    with pytest.raises(ProbeError, match="--events minimal, or --backend core"):
        BccProbes(config()).open()


def test_devices_without_requests_are_refused(tmp_path: Path, monkeypatch) -> None:
    # GIVEN a disk with requests, and one of dm without
    for name in ("8:0/mq", "252:0"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setattr(programs, "_DEVICES", tmp_path)
    disk, mapped = 8 << 20, 252 << 20
    # WHEN the latter is recorded alone THEN that is refused with what to do
    with pytest.raises(ProbeError, match="add --below"):
        programs.refuse_light(config(devices=[(mapped, 0)]))
    # AND with the former, as --below has it, it is not, nor is a disk that sysfs does not have
    programs.refuse_light(config(devices=[(mapped, 0), (disk, 0)]))
    programs.refuse_light(config(devices=[(9 << 20, 0)]))


# Which drivers' steps a kernel can tell, by its symbols.

END = b"ffffffffc0a710e0 t lo_rw_aio_complete\t[loop]\n"


def symbols(*tracepoints: str) -> bytes:
    """The lines of kallsyms for these tracepoints, as of a module."""
    lines = [f"ffffffffc031a0b0 T __traceiter_{name}\t[some_module]\n" for name in tracepoints]
    return "".join(lines).encode()


def of(*drivers: Driver) -> bytes:
    return symbols(*(name for driver in drivers for name in driver.programs))


def test_drivers_are_known_by_all_their_modules() -> None:
    # GIVEN the symbols of all drivers WHEN their programs are chosen
    programs, without = choose_drivers(False, of(*DRIVERS) + END)
    # THEN each driver's are there, in the order of a request's way, and no reason
    assert [program.name for program in programs] == [
        name for driver in DRIVERS for name in driver.programs.values()
    ]
    assert without == {}
    # GIVEN such a kernel with preemptible tracepoints WHEN programs are chosen
    programs = choose_drivers(True, of(*DRIVERS) + END)[0]
    # THEN all are the variants
    assert all(program.name.endswith("_p") for program in programs)
    # GIVEN a symbol that only begins with a tracepoint's name WHEN programs are chosen
    text = b"ffffffff81 T __traceiter_nvme_sq_more\nffffffff81 T __pfx___traceiter_nvme_sq\n"
    # THEN it is not taken for it
    assert "nvme" in choose_drivers(False, text)[1]
    # GIVEN a kernel that shows no symbols WHEN the part is wanted
    path = choose_path(frozenset({"driver"}), None, False, b"")  # type: ignore[arg-type]
    # THEN it is left out whole, with each driver's reason
    assert (path.parts, path.programs) == (frozenset(), ())
    for driver in DRIVERS:
        assert f"{driver.name}: this kernel has no tracepoint" in path.lacking["driver"]
    assert path.facts() == {
        "parts": [],
        "missing": [{"part": "driver", "reason": path.lacking["driver"]}],
    }


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_driver_needs_all_its_tracepoints(driver: Driver) -> None:
    # GIVEN a kernel that lacks the last tracepoint of one driver WHEN programs are chosen
    *_, last = driver.programs
    text = of(*DRIVERS).replace(f"__traceiter_{last}\t".encode(), b"another\t") + END
    programs, without = choose_drivers(False, text)
    # THEN this driver is lacking, with reason, and the others are recorded
    assert without.keys() == {driver.name}
    assert f"this kernel has no tracepoint {last} (" in without[driver.name]
    others = [name for one in DRIVERS if one != driver for name in one.programs.values()]
    assert [program.name for program in programs] == others


@pytest.mark.parametrize("end", [b"", b"0000000000000000 t lo_rw_aio_complete\t[loop]\n"])
def test_loop_needs_the_address_of_its_function(end: bytes) -> None:
    # GIVEN a kernel without the loop driver, or that hides addresses WHEN programs are chosen
    programs, without = choose_drivers(False, of(*DRIVERS) + end)
    # THEN loop is lacking, and the others are recorded
    others = [name for one in DRIVERS[:2] for name in one.programs.values()]
    assert [program.name for program in programs] == others
    assert without.keys() == {"loop"}
    assert "lo_rw_aio_complete" in without["loop"]


@pytest.mark.parametrize("nvme", [True, False])
def test_a_lacking_driver_is_named_while_others_are_recorded(
    monkeypatch: pytest.MonkeyPatch, nvme: bool
) -> None:
    # GIVEN a kernel with SCSI alone, a host with NVMe devices or without WHEN the part is wanted
    have = {"/sys/class/nvme": ["nvme0"] if nvme else []}
    monkeypatch.setattr(
        "biotrail.recorder.probes.maps.path_maps.os.listdir", lambda path: have[path]
    )
    path = choose_path(frozenset({"driver"}), None, False, of(DRIVERS[1]))  # type: ignore[arg-type]
    # THEN the header has each driver, and messages name those of its devices that have no steps
    facts = path.facts()
    assert facts is not None
    assert facts["parts"] == ["driver"]
    assert facts["missing"] == []
    assert facts["drivers"]["scsi"] == ""
    assert "nvme_setup_cmd" in facts["drivers"]["nvme"]
    assert [message.split(":")[1] for message in path.messages()] == [
        *([" requests of nvme have no steps"] if nvme else []),
        " requests of loop have no steps",
    ]
