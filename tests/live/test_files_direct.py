# SPDX-License-Identifier: Apache-2.0
"""Files of I/O beside the page cache: every bio of a known file named right, and none wrong."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.probes import file_ways
from biotrail.recorder.probes.backend import ProbeConfig
from biotrail.recorder.probes.core import CoreProbes
from biotrail.recorder.schema.records import Kind
from tests.support import devices, file_systems
from tests.support.core_decoder import decode
from tests.support.core_recording import Recording
from tests.support.devices import MakeLoop
from tests.support.file_systems import bytes_by_file, named
from tests.support.record_command import biotrail

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.xdist_group("file_systems")]

MIB = 1 << 20
KINDS = ("ext4", "xfs", "btrfs")
WAYS: dict[str, dict[str, Any]] = {
    "direct": {"direct": True, "ioengine": "psync", "bs": "4k"},
    "direct-vectors": {"direct": True, "ioengine": "pvsync2", "bs": "16k"},
    "direct-aio": {"direct": True, "ioengine": "libaio", "iodepth": 16, "bs": "8k"},
    "buffered": {"direct": False, "ioengine": "psync", "bs": "16k", "end_fsync": 1},
}


@pytest.fixture
def mount(tmp_path: Path, make_loop: MakeLoop) -> Iterator[Any]:
    """A function that makes a file system on new devices, and returns (mount, devices)."""
    with ExitStack() as stack:

        def make(kind: str, count: int = 1, **options: Any) -> tuple[Path, list[str]]:
            file_systems.require(kind)
            paths = [make_loop(size=file_systems.BYTES).path for _ in range(count)]
            at = tmp_path / "disk"
            return stack.enter_context(file_systems.mounted(kind, paths, at, **options)), paths

        yield make


def record(log: Path, paths: list[str], script: str, *more: str) -> None:
    """Record these devices while a Python script runs, with files."""
    which = [word for path in paths for word in ("-d", path)]
    arguments = ["--files", *which, "-o", log, *more, "--", sys.executable, "-c", script]
    biotrail("record", *arguments)


def job(path: Path, **options: Any) -> str:
    """Python that runs a job of fio."""
    return f"import subprocess; subprocess.run({['fio', '--output=/dev/null', *devices.fio_arguments(path, **options)]!r}, check=True)\n"  # noqa: E501


def make_holes(path: Path) -> None:
    """A file of 16 MiB with data in every other block: more extents than its inode holds."""
    with open(path, "wb") as stream:
        for place in range(0, 16 * MIB, 8192):
            os.pwrite(stream.fileno(), b"x" * 4096, place)
        os.ftruncate(stream.fileno(), 16 * MIB)
        os.fsync(stream.fileno())


def reading_holes(path: Path) -> str:
    """Python that reads that file directly."""
    return f"""
import mmap, os
fd, memory = os.open({str(path)!r}, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 1 << 20)
memory.write(bytes(1 << 20))  # btrfs reads anew what it could not put into missing memory
for place in range(0, {16 * MIB}, 1 << 20):
    assert os.preadv(fd, [memory], place) == 1 << 20
"""


@pytest.mark.parametrize("kind", KINDS)
def test_each_file_has_its_bytes(mount: Any, tmp_path: Path, kind: str) -> None:
    # GIVEN two files of known sizes for each way of I/O, which are written and then read, cold
    at, paths = mount(kind)
    sizes = {f"{n}-{way}": size for way in WAYS for n, size in (("one", 2 * MIB), ("two", 3 * MIB))}
    script = "".join(
        job(at / name, rw=rw, size=size, **WAYS[name.partition("-")[2]])
        for rw in ("randwrite", "randread")
        for name, size in sizes.items()
    )
    # WHEN that is recorded
    log = tmp_path / "x.biotrail"
    record(log, paths, script)
    # THEN each file has every byte that was written to it and read from it, and no other
    expected = {(name, op): size for name, size in sizes.items() for op in ("read", "write")}
    assert named(bytes_by_file(log), at) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_metadata_that_a_direct_read_needs_is_not_the_files(
    mount: Any, tmp_path: Path, kind: str
) -> None:
    # GIVEN a file of so many extents that the file system has to read where they are
    at, paths = mount(kind)
    make_holes(at / "holes")
    file_systems.remount(paths[0], at)
    # WHEN it is read directly, cold
    log = tmp_path / "x.biotrail"
    record(log, paths, reading_holes(at / "holes"))
    # THEN the file has its data alone, though the call read more than that
    found = bytes_by_file(log)
    assert named(found, at) == {("holes", "read"): 8 * MIB}
    assert sum(size for (_, op), size in found.items() if op == "read") > 8 * MIB


class _Kernel:
    """What is recorded of files where the kernel hides its functions' addresses."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        patch.setattr(file_ways, "address_of", lambda name: 0)
        patch.setattr(file_ways, "addresses_of", lambda names: {})

    def bytes_by_inode(self, device: str, load: Callable[[], Any]) -> Counter[tuple[int, int]]:
        """Bytes by (inode, dev) while `load` runs; (0, 0): without a file."""
        dev = devices.dev_of(device)
        with CoreProbes(ProbeConfig("all", [(dev, 0)], files=True)) as probes:
            assert probes.files.ways == ("call",)
            recording = Recording(probes)
            recording.start()
            load()
            recording.finish()
        events = decode(recording.segments)
        files = {(e.cpu, e.time, e.bio): (e.inode, e.dev) for e in events.of(Kind.FILE)}
        found = Counter[tuple[int, int]]()
        for queued in events.of(Kind.Q, dev=dev):
            found[files.get((queued.cpu, queued.time, queued.bio), (0, 0))] += queued.bytes
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_call_alone_tells_the_file(
    mount: Any, fio: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    # GIVEN a kernel that hides its addresses, two files, and one of many extents, which is cold
    kernel = _Kernel(monkeypatch)
    at, paths = mount(kind)
    make_holes(at / "holes")
    file_systems.remount(paths[0], at)

    def load() -> None:
        for name in ("one", "two"):
            fio(at / name, rw="randwrite", size="1m", **WAYS["direct"])
            fio(at / name, rw="randread", size="1m", **WAYS["direct-vectors"])
        subprocess.run([sys.executable, "-c", reading_holes(at / "holes")], check=True)

    # WHEN they are written and read by calls that name them
    found = kernel.bytes_by_inode(paths[0], load)
    # THEN each has its bytes
    numbers = {os.stat(at / name).st_ino: size for name, size in EXPECTED.items()}
    told = {inode: size for (inode, dev), size in found.items() if dev and inode in numbers}
    assert told == numbers
    # AND metadata, whose reads and writes run in the same calls, is no file's
    others = {key for key in found if key[1] and key[0] not in numbers}
    assert others <= {(1, key[1]) for key in others}  # btrfs's metadata


EXPECTED = {"one": 2 * MIB, "two": 2 * MIB, "holes": 8 * MIB}


def test_a_device_itself(tmp_path: Path, loop_device: Any, fio: Any) -> None:
    # GIVEN direct I/O on a device by single calls, by vectors of calls, and asynchronously
    log = tmp_path / "x.biotrail"
    engines = ("psync", "pvsync2", "libaio", "io_uring")
    script = "".join(
        job(loop_device.path, rw="randread", bs="8k", size=MIB, ioengine=engine, iodepth=8)
        for engine in engines
    )
    # WHEN it is recorded
    record(log, [loop_device.path], script)
    # THEN all of it is the device's
    assert bytes_by_file(log)[loop_device.name, "read"] == len(engines) * MIB


@pytest.mark.parametrize("how", ["zstd", "zlib"])
def test_compressed_data_of_btrfs_has_its_file(mount: Any, tmp_path: Path, how: str) -> None:
    # GIVEN btrfs that compresses, so that bios carry pages that are no file's
    at, paths = mount("btrfs", how=f"compress-force={how}")
    script = f"""
import os
for name in ("one", "two"):
    fd = os.open({str(at)!r} + "/" + name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"compressible " * 100_000, 0)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    assert len(os.pread(fd, 1 << 20, 0)) == 1 << 20
"""
    # WHEN two files are written and read
    log = tmp_path / "x.biotrail"
    record(log, paths, script)
    # THEN each is named, with less than its length, and nothing is not known
    found = bytes_by_file(log)
    told = named(found, at)
    assert set(told) == {(n, op) for n in ("one", "two") for op in ("read", "write")}
    assert all(0 < size < MIB for size in told.values())
    assert not sum(size for (path, _), size in found.items() if not path)


def test_each_copy_of_btrfs_on_two_devices_has_its_file(mount: Any, tmp_path: Path) -> None:
    # GIVEN btrfs that writes each block to two devices
    at, paths = mount("btrfs", 2, made=("-d", "raid1", "-m", "raid1"))
    script = "".join(
        job(at / way, rw="randwrite", size=MIB, **WAYS[way]) for way in ("direct", "buffered")
    )
    # WHEN files are written
    log = tmp_path / "x.biotrail"
    record(log, paths, script)
    # THEN both copies are the file's
    told = named(bytes_by_file(log), at)
    assert told == {("direct", "write"): 2 * MIB, ("buffered", "write"): 2 * MIB}


def test_data_that_btrfs_moves_by_its_place_is_called_that(mount: Any, tmp_path: Path) -> None:
    # GIVEN a file on btrfs, on the disk alone
    at, paths = mount("btrfs")
    (at / "data").write_bytes(os.urandom(8 * MIB))
    file_systems.remount(paths[0], at)
    for words, written, what, trees in (
        (("scrub", "start", "-B"), 0, "data by address", 2 * MIB),
        (("balance", "start", "-d"), 8 * MIB, "data that is relocated", 0),
    ):
        # WHEN it is scrubbed, and balanced
        log = tmp_path / f"{words[0]}.biotrail"
        which = ("-d", paths[0], "--files")
        biotrail("record", *which, "-o", log, "--", "btrfs", *words, str(at))
        # THEN its bytes are called that (scrub reads trees likewise), and no metadata is a file
        found = bytes_by_file(log)
        moved = f"({at}: {what})"
        assert 8 * MIB <= found[moved, "read"] <= 8 * MIB + trees, found
        assert found[moved, "write"] == written, found
        assert not [path for path, _ in found if path.startswith("inode")], found


def test_files_of_subvolumes_and_snapshots_are_told_apart(mount: Any, tmp_path: Path) -> None:
    # GIVEN files of one inode number in two subvolumes and in a snapshot of one of these
    at, paths = mount("btrfs")
    for name in ("a", "b"):
        devices.run("btrfs", "subvolume", "create", at / name)
        (at / name / "file").write_bytes(b"x" * 4096)
    devices.run("btrfs", "subvolume", "snapshot", at / "a", at / "c")
    devices.run("btrfs", "filesystem", "sync", at)
    subvolumes = ("a", "b", "c")
    assert len({os.stat(at / name / "file").st_ino for name in subvolumes}) == 1
    # WHEN each is written with a length of its own
    script = "".join(
        job(at / name / "file", rw="write", size=(number + 1) * MIB, **WAYS["buffered"])
        for number, name in enumerate(subvolumes)
    )
    log = tmp_path / "x.biotrail"
    record(log, paths, script)
    # THEN each has its own bytes
    assert named(bytes_by_file(log), at) == {
        (f"{name}/file", "write"): (number + 1) * MIB for number, name in enumerate(subvolumes)
    }


def test_swapping_inside_a_direct_read_is_not_the_files(
    monkeypatch: pytest.MonkeyPatch, loop_device: Any
) -> None:
    # GIVEN a buffer that maps another file of the device's page cache, where only calls are known
    kernel = _Kernel(monkeypatch)
    script = f"""
import mmap, os
cached = os.open({loop_device.path!r}, os.O_RDWR)
memory = mmap.mmap(cached, 1 << 20)
direct = os.open({loop_device.path!r}, os.O_RDONLY | os.O_DIRECT)
assert os.preadv(direct, [memory], 8 << 20) == 1 << 20
"""
    # WHEN a direct read has the kernel read that buffer first
    command = [sys.executable, "-c", script]
    found = kernel.bytes_by_inode(loop_device.path, lambda: subprocess.run(command, check=True))
    # THEN all is the device's, which is both
    assert set(found) == {(loop_device.dev, 0)}
