# SPDX-License-Identifier: Apache-2.0
"""Maps and constants of the part uring: by whether it is recorded, and what kallsyms shows."""

from typing import Any

import pytest

from biotrail.recorder.probes.maps import path_maps
from biotrail.recorder.schema import shared


class Object:
    """A BPF object that notes what it is told."""

    def __init__(self) -> None:
        self.sizes: dict[str, tuple[int, int]] = {}
        self.sections: dict[str, Any] = {}

    def set_initial_value(self, section: str, value: Any) -> None:
        self.sections[section] = value

    def set_map_size(self, name: str, value_bytes: int, entries: int) -> None:
        self.sizes[name] = value_bytes, entries


def prepared(recorded: bool) -> Object:
    bpf = Object()
    path_maps._prepare_uring(bpf, recorded)  # type: ignore[arg-type]
    return bpf


def test_a_part_that_is_not_recorded_takes_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel that shows its symbols WHEN the part is not recorded
    monkeypatch.setattr(path_maps, "addresses_of", lambda names: dict.fromkeys(names, 7))
    bpf = prepared(False)
    # THEN its maps have one entry, and no function is known
    assert {entries for _, entries in bpf.sizes.values()} == {1}
    section = bpf.sections[".rodata.uring"]
    assert not any(getattr(section, member.name) for member in shared.URING.members)


def test_functions_that_the_kernel_hides_are_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a kernel that lacks a function WHEN the part is recorded
    names = {"io_complete_rw": 0xFFFFFFFF81000010, "aio_complete_rw": 0xFFFFFFFF81000020}
    monkeypatch.setattr(path_maps, "addresses_of", lambda _: names)
    bpf = prepared(True)
    # THEN programs have the addresses of the others, and the maps their sizes
    section = bpf.sections[".rodata.uring"]
    assert (section.ring_complete, section.aio_complete) == tuple(names.values())
    assert (section.iomap_end_io, section.ring_complete_polled) == (0, 0)
    assert bpf.sizes == {"bt_ring_sets": (256, 1 << 14), "bt_running_reqs": (16, 1 << 16)}
