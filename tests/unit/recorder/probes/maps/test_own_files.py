# SPDX-License-Identifier: Apache-2.0
"""What the recorder's own I/O is known by: its process, and the files it writes."""

import ctypes
import os
from collections import deque
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.filters.left_out import BY_OWN, read_left_out
from biotrail.recorder.host import own_io
from biotrail.recorder.host.own_io import OwnFile, own_file, pid_namespace
from biotrail.recorder.output.sinks import Limit
from biotrail.recorder.probes.backend import Capabilities
from biotrail.recorder.probes.maps.admission import config
from biotrail.recorder.probes.maps.own_files import OwnFiles, Section, section
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.shared import OWN_FILES
from biotrail.recorder.session.session import record
from biotrail.text.record.left_out import filters_text, left_out_text
from tests.support.fake_probes import FakeProbes, options

ENUMS: dict[str, dict[str, int]] = {
    "op_enum": {"READ": 0, "WRITE": 1, "ZONE_APPEND": 7},
    "flag_bits": {},
}


class Map:
    """A BPF object that keeps what its section was set to."""

    def __init__(self) -> None:
        self.files: list[tuple[int, int]] = []

    def update_section(self, name: str, value: Section) -> None:
        assert name == ".data.own"
        self.files = [(f.inode, f.generation) for f in value.files if f.inode]


class Told(FakeProbes):
    """Probes that are told of files."""

    capabilities = Capabilities("core", own_files=True)

    def __init__(self) -> None:
        super().__init__()
        self.named: list[OwnFile] = []

    def own_file(self, file: OwnFile) -> None:
        self.named.append(file)


def test_a_file_as_the_kernel_knows_it(tmp_path: Path) -> None:
    # GIVEN a file WHEN asked THEN its inode is what fstat says
    with (tmp_path / "x").open("wb") as stream:
        found = own_file(stream.fileno())
        assert found is not None
        assert found.inode == os.fstat(stream.fileno()).st_ino
        assert found.dev > 0


def test_what_is_no_file_has_no_pages() -> None:
    # GIVEN a pipe, and a descriptor that is none WHEN asked THEN there is nothing to know
    read, write = os.pipe()
    assert own_file(write) is None
    os.close(read)
    os.close(write)
    assert own_file(write) is None


def test_the_super_block_of_a_subvolume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a file whose fstat names another device than its mount's (btrfs)
    monkeypatch.setattr(own_io, "_super_block", lambda _fd: 0 << 20 | 44)
    with (tmp_path / "x").open("wb") as stream:
        # WHEN asked THEN the mount's is taken
        found = own_file(stream.fileno())
        assert found is not None
        assert found.dev == 44


def test_the_mount_of_a_file_is_found(tmp_path: Path) -> None:
    # GIVEN a file WHEN its mount is looked for THEN there is one, and of no other is there any
    with (tmp_path / "x").open("wb") as stream:
        assert own_io._super_block(stream.fileno()) is not None
    assert own_io._super_block(1 << 20) is None


def test_the_newest_files_are_told() -> None:
    # GIVEN more files than there are places
    known = Map()
    files = OwnFiles(known)  # type: ignore[arg-type]
    # WHEN each is told
    for inode in range(1, OWN_FILES + 3):
        files.add(OwnFile(inode, 1, inode * 10))
    # THEN the newest are there, the last first
    assert known.files == [(n, n * 10) for n in range(OWN_FILES + 2, 2, -1)]


def test_an_inode_that_may_be_used_again_is_forgotten() -> None:
    # GIVEN a file system that does not tell generations WHEN a second file is told
    known = Map()
    files = OwnFiles(known)  # type: ignore[arg-type]
    files.add(OwnFile(1, 1, None))
    files.add(OwnFile(2, 1, 7))
    # THEN the first is not known any more
    assert known.files == [(2, 7)]


def test_the_section_is_what_the_programs_read() -> None:
    # GIVEN the C struct's layout / THEN ours is the same
    assert ctypes.sizeof(Section) == OWN_FILES * 24
    found = section(deque([OwnFile(3, 4, None)]))
    assert (found.files[0].has_generation, found.files[0].dev) == (0, 4)


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


def test_the_namespace_of_this_process() -> None:
    # GIVEN this machine / THEN the namespace is the initial one, or one with an inode
    space = pid_namespace()
    assert space is None or space[1] == os.stat("/proc/self/ns/pid").st_ino


def test_own_is_a_reason_of_its_own() -> None:
    # GIVEN counters in which only the last reason counted
    counters = [0] * 16
    counters[BY_OWN] = 12
    found = read_left_out(counters, [12])
    # THEN it has a name, after those that were there before
    assert found.bios == {"own": 12}
    assert "12 of the recorder itself" in left_out_text(found)
    assert filters_text(Filters(pids=(1,), own_io=True).header()) == "--pid 1 --own-io"
