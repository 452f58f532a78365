# SPDX-License-Identifier: Apache-2.0
"""Files of real I/O: whose bytes they are, and by which name."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support.file_systems import bytes_by_file, named
from tests.support.path_disks import Disk
from tests.support.record_command import biotrail, in_json

pytestmark = pytest.mark.usefixtures("needs_bpf")

KIB = 1024
WRITE = """
import time

def write(name, size, block=65536):
    fd = os.open(f"{here}/{name}", os.O_RDWR | os.O_CREAT)
    for at in range(0, size, block):
        os.pwrite(fd, b"x" * block, at)
    os.fsync(fd)
    return fd

"""
"""What the loads have."""


def record(disk: Disk, log: Path, load: str, *arguments: str) -> None:
    disk.record(log, disk.program(WRITE + load), "--files", *arguments)


def tells_direct(log: Path) -> bool:
    """Whether files of direct I/O are known: by an address that the kernel may hide."""
    return bool(LogReader(log).header["files"]["direct"])


def test_bytes_of_each_file_are_those_written_and_read(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a file that is on the disk alone
    disk.prepare("read", 768 * KIB)
    (disk.mount / "deep" / ("d" * 100)).mkdir(parents=True)
    second = f"deep/{'d' * 100}/second"
    log = tmp_path / "x.biotrail"
    # WHEN it is read and two others are written through the page cache, and it is read directly
    record(
        disk,
        log,
        f"""
write("first", {1 << 20})
write({second!r}, {256 * KIB}, 4096)
with open(f"{{here}}/read", "rb") as stream:
    assert len(stream.read()) == {768 * KIB}
fd = os.open(f"{{here}}/read", os.O_RDONLY | os.O_DIRECT)
assert os.preadv(fd, [mmap.mmap(-1, {64 * KIB})], 0) == {64 * KIB}
""",
    )
    # THEN each file has its own bytes, and no more; what was read directly, where the kernel
    # shows the address by which that is known
    direct = 64 * KIB if tells_direct(log) else 0
    assert named(bytes_by_file(log), disk.mount) == {
        ("first", "write"): 1 << 20,
        (second, "write"): 256 * KIB,
        ("read", "read"): 768 * KIB + direct,
    }
    # AND the report has the same
    made = in_json("report", "--by", "file", log)
    told = {g["file"]: (g["bytes"], g["inode"]) for g in made["groups"] if g["file"]}
    first = str(disk.mount / "first")
    assert told[first] == (1 << 20, os.stat(first).st_ino)
    unknown = sum(g["bytes"] for g in made["groups"] if g["file_kind"] == "not known")
    assert unknown == 64 * KIB - direct
    assert first[-40:] in biotrail("report", log).stdout


def test_renamed_files_have_their_last_name_deleted_ones_keep_theirs(
    tmp_path: Path, disk: Disk
) -> None:
    # GIVEN a file that is renamed, one that is deleted while it is written, one that is deleted
    # before its first byte is on the disk, and one whose inode's number is used again
    log = tmp_path / "x.biotrail"
    record(
        disk,
        log,
        f"""
fd = write("before", {64 * KIB})
os.rename(f"{{here}}/before", f"{{here}}/after")
os.pwrite(fd, b"y" * {64 * KIB}, 0)
os.fsync(fd)
fd = write("deleted", {64 * KIB})
os.unlink(f"{{here}}/deleted")
os.pwrite(fd, b"y" * {64 * KIB}, 0)
os.fsync(fd)
fd = os.open(f"{{here}}/early", os.O_RDWR | os.O_CREAT)
os.unlink(f"{{here}}/early")
os.pwrite(fd, b"y" * {64 * KIB}, 0)
os.fsync(fd)
one = write("one", {64 * KIB})
number = os.fstat(one).st_ino
os.close(one)
os.unlink(f"{{here}}/one")
other = write("other", {128 * KIB})
assert os.fstat(other).st_ino == number
""",
    )
    # WHEN bytes are added up  THEN each has the last name that it had
    found = {name: size for (name, _), size in named(bytes_by_file(log), disk.mount).items()}
    assert found == {
        "after": 128 * KIB,
        "deleted": 128 * KIB,
        "early (deleted)": 64 * KIB,
        "one": 64 * KIB,
        "other": 128 * KIB,
    }


def test_files_of_a_renamed_directory_have_its_last_name(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a log that is begun in a directory which is then renamed, as databases do
    log = tmp_path / "x.biotrail"
    record(
        disk,
        log,
        f"""
os.mkdir(f"{{here}}/w.tmp")
fd = write("w.tmp/0.wal", {64 * KIB})
os.rename(f"{{here}}/w.tmp", f"{{here}}/w")
for number in range(3):
    write("w/0.wal", {64 * KIB})
""",
    )
    # WHEN it is reported on  THEN all of its I/O has the last name, with the one before beside it
    report = in_json("report", "--by", "file", log)
    found = [g for g in report["groups"] if str(g["file"]).endswith(".wal")]
    assert [(g["file"], g["file_was"], g["bytes"]) for g in found] == [
        (f"{disk.mount}/w/0.wal", f"{disk.mount}/w.tmp/0.wal", 4 * 64 * KIB)
    ]
    # AND patterns find it by that name
    chosen = in_json("report", "--file", "*/w/0.wal", log)
    assert chosen["total"]["bytes"] == 4 * 64 * KIB


def test_memory_of_a_file_given_to_direct_io_is_not_that_file(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a program that maps one file and writes from there to another, directly
    disk.prepare("source", 64 * KIB)
    log = tmp_path / "x.biotrail"
    record(
        disk,
        log,
        f"""
fd = os.open(f"{{here}}/source", os.O_RDWR)
memory = mmap.mmap(fd, {64 * KIB}, mmap.MAP_SHARED)
assert memory[0] == memory[-1] == ord("x")
out = os.open(f"{{here}}/target", os.O_RDWR | os.O_CREAT | os.O_DIRECT)
assert os.pwrite(out, memory, 0) == {64 * KIB}
""",
    )
    # WHEN bytes are added up
    found = named(bytes_by_file(log), disk.mount)
    # THEN the source was read, and nothing was written to it
    assert found["source", "read"] == 64 * KIB
    assert ("source", "write") not in found
    assert found.get(("target", "write"), 0) == (64 * KIB if tells_direct(log) else 0)


def test_direct_io_to_the_device_itself_is_the_devices(tmp_path: Path, loop_device: Any) -> None:
    # GIVEN direct reads of a device, and reads through its own page cache
    log = tmp_path / "x.biotrail"
    load = f"""
import mmap, os
fd = os.open({loop_device.path!r}, os.O_RDONLY | os.O_DIRECT)
assert os.preadv(fd, [mmap.mmap(-1, {64 * KIB})], {1 << 20}) == {64 * KIB}
fd = os.open({loop_device.path!r}, os.O_RDONLY)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
assert len(os.pread(fd, 4096, {2 << 20})) == 4096
"""
    arguments = ["--files", "-d", loop_device.path, "-o", log]
    biotrail("record", *arguments, "--", sys.executable, "-c", load)
    # WHEN bytes are added up by file  THEN all are the device's own
    made = in_json("report", "--by", "file", log)
    told = {g["file_kind"]: (g["bytes"], g.get("device")) for g in made["groups"]}
    assert told == {"device": (68 * KIB, loop_device.name)}
    assert f"({loop_device.name}: metadata, or the device itself)" in biotrail("report", log).stdout


def test_each_rotated_file_and_a_dump_name_their_files(tmp_path: Path, disk: Disk) -> None:
    # GIVEN a recording of writes to one file that is rotated, and one that is kept
    load = f"""
for turn in range(10):
    os.close(write("again", {64 * KIB}))
    time.sleep(0.1)
"""
    for name, arguments in (("r", ["--rotate", "400ms"]), ("k", ["--keep", "1s"])):
        record(disk, tmp_path / f"{name}.biotrail", load, *arguments)
    rotated = sorted(tmp_path.glob("r-*.biotrail"))
    (dump,) = tmp_path.glob("k-*.biotrail")
    assert len(rotated) > 1
    # WHEN each is read alone  THEN it names the file
    total = 0
    for log in (*rotated, dump):
        found = named(bytes_by_file(log), disk.mount)
        # On a busy machine a file may have been rotated before the next write.
        size = found.pop(("again", "write"), 0)
        assert not found
        total += 0 if log == dump else size
    # AND all files of the series together have all bytes
    assert total == 10 * 64 * KIB
