# SPDX-License-Identifier: Apache-2.0
"""Which drivers' steps a kernel can tell, by its symbols."""

import pytest

from biotrail.recorder.probes.drivers import DRIVERS, Driver, choose_drivers
from biotrail.recorder.probes.maps.path_maps import all_path_programs, choose_path

END = b"ffffffffc0a710e0 t lo_rw_aio_complete\t[loop]\n"


def symbols(*tracepoints: str) -> bytes:
    """The lines of kallsyms for these tracepoints, as of a module."""
    lines = [f"ffffffffc031a0b0 T __traceiter_{name}\t[some_module]\n" for name in tracepoints]
    return "".join(lines).encode()


def of(*drivers: Driver) -> bytes:
    return symbols(*(name for driver in drivers for name in driver.programs))


def test_a_kernel_with_all_modules_has_every_driver() -> None:
    # GIVEN the symbols of all drivers WHEN their programs are chosen
    choice = choose_drivers(False, of(*DRIVERS) + END)
    # THEN each driver's are there, in the order of a request's way, and no reason
    assert choice.recorded == ["nvme", "scsi", "loop"]
    assert list(choice.programs) == [n for driver in DRIVERS for n in driver.programs.values()]
    assert (choice.lacking, choice.reason) == ((), "")


def test_programs_that_disable_preemption_are_taken_where_tracepoints_do_not() -> None:
    # GIVEN such a kernel with preemptible tracepoints WHEN programs are chosen
    programs = choose_drivers(True, of(*DRIVERS) + END).programs
    # THEN all are variants that the object has
    assert all(name.endswith("_p") for name in programs)
    assert set(programs) <= set(all_path_programs())


@pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)
def test_a_driver_needs_all_its_tracepoints(driver: Driver) -> None:
    # GIVEN a kernel that lacks the last tracepoint of one driver WHEN programs are chosen
    *_, last = driver.programs
    text = of(*DRIVERS).replace(f"__traceiter_{last}\t".encode(), b"another\t") + END
    choice = choose_drivers(False, text)
    # THEN this driver is lacking, with reason, and the others are recorded
    assert dict(choice.lacking).keys() == {driver.name}
    assert f"this kernel has no tracepoint {last} (" in dict(choice.lacking)[driver.name]
    assert set(choice.programs).isdisjoint(driver.programs.values())
    assert len(choice.recorded) == 2
    assert choice.reason == ""


def test_a_longer_name_is_another_tracepoint() -> None:
    # GIVEN a symbol that only begins with a tracepoint's name WHEN programs are chosen
    text = b"ffffffff81 T __traceiter_nvme_sq_more\nffffffff81 T __pfx___traceiter_nvme_sq\n"
    # THEN it is not taken for it
    assert "nvme" in dict(choose_drivers(False, text).lacking)


@pytest.mark.parametrize("end", [b"", b"0000000000000000 t lo_rw_aio_complete\t[loop]\n"])
def test_loop_needs_the_address_of_its_function(end: bytes) -> None:
    # GIVEN a kernel without the loop driver, or that hides addresses WHEN programs are chosen
    choice = choose_drivers(False, of(*DRIVERS) + end)
    # THEN loop is lacking, and the others are recorded
    assert choice.recorded == ["nvme", "scsi"]
    assert "lo_rw_aio_complete" in dict(choice.lacking)["loop"]


def test_without_any_driver_the_part_is_not_recorded() -> None:
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


@pytest.mark.parametrize("nvme", [True, False])
def test_a_lacking_driver_is_named_while_others_are_recorded(
    monkeypatch: pytest.MonkeyPatch, nvme: bool
) -> None:
    # GIVEN a kernel with SCSI alone, a host with NVMe devices or without WHEN the part is wanted
    have = {"/sys/class/nvme": ["nvme0"] if nvme else []}
    monkeypatch.setattr("biotrail.recorder.probes.drivers.os.listdir", lambda path: have[path])
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
