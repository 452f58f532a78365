# SPDX-License-Identifier: Apache-2.0
"""--file and --dir: the bios of the files meant, all of them and whole, and no others."""

import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import NEVER
from biotrail.recorder.log import LogReader
from biotrail.text.record.left_out import read_left_out
from tests.support import devices, file_systems
from tests.support.devices import MakeLoop
from tests.support.file_systems import bytes_by_file
from tests.support.kernel_completions import done_again
from tests.support.record_command import biotrail, read, recorder, stop

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.xdist_group("file_systems")]

KIB = 1024
FILES = {
    "wanted/direct": 64 * KIB,
    "wanted/deep/er/cached": 96 * KIB,
    "other/direct": 128 * KIB,
    "wanted-not/cached": 160 * KIB,
    "top": 32 * KIB,
}
"""By name below the mount: bytes. Direct ones are written in blocks of 4 KiB, one by one."""
LOAD = """
import mmap, os, sys
here = sys.argv[1]
memory = mmap.mmap(-1, 4096)
memory.write(b"x" * 4096)
for name, size in {files}.items():
    direct = os.O_DIRECT if name.endswith("direct") else 0
    fd = os.open(here + "/" + name, os.O_RDWR | direct)
    for at in range(0, size, 4096):
        assert os.pwritev(fd, [memory], at) == 4096
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    for at in range(0, size, 4096):
        assert os.preadv(fd, [memory], at) == 4096
"""


@pytest.fixture(params=["ext4", "xfs", "btrfs"])
def disk(request: pytest.FixtureRequest, tmp_path: Path, make_loop: MakeLoop) -> Any:
    """(mount, device) of a file system with FILES on the disk."""
    file_systems.require(request.param)
    device = make_loop(size=file_systems.BYTES)
    with file_systems.mounted(request.param, [device.path], tmp_path / "disk") as at:
        for name, size in FILES.items():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_bytes(b"y" * size)
        devices.run("sync", "--file-system", at)
        yield at, device


def load(at: Path) -> None:
    devices.run(sys.executable, "-c", LOAD.format(files=FILES), at)


def twice(*names: str, at: Path) -> dict[tuple[str, str], int]:
    """Each of these files written and read once."""
    return {(f"{at}/{name}", op): FILES[name] for name in names for op in ("read", "write")}


def left_out(log: Path) -> dict[str, int]:
    return dict(read_left_out(LogReader(log).end).bios)


FILTERS = {
    "one file": (("--file", "wanted/direct"),),
    "files and a directory": (
        ("--dir", "wanted/deep"),
        ("--file", "top"),
        ("--file", "other/direct"),
    ),
    "a directory whose name others begin with": (("--dir", "wanted"),),
    "the mount point": (("--dir", "."),),
}
MEANT = {
    "one file": ("wanted/direct",),
    "files and a directory": ("wanted/deep/er/cached", "top", "other/direct"),
    "a directory whose name others begin with": ("wanted/direct", "wanted/deep/er/cached"),
}
"""By filter: the files whose bytes its log has."""


@done_again
def test_each_filter_has_its_files_whole_and_nothing_else(tmp_path: Path, disk: Any) -> None:
    # GIVEN files that are written and read WHEN that is recorded by four filters at once
    at, device = disk
    logs = {name: tmp_path / f"{number}.biotrail" for number, name in enumerate(FILTERS)}
    with ExitStack() as stack:
        recording = []
        for name, wanted in FILTERS.items():
            words = [word for option, path in wanted for word in (option, str(at / path))]
            words += ["--files"] if name in MEANT else ["--op", "read,write"]
            recording.append(
                stack.enter_context(recorder("-d", device.path, "-o", logs[name], *words))
            )
        load(at)
        assert [stop(one, signal.SIGINT)[0] for one in recording] == [0] * len(recording)
    # THEN each log has the bytes of its files, through the page cache and directly, however deep,
    # and no other bio
    for name, files in MEANT.items():
        assert +bytes_by_file(logs[name]) == twice(*files, at=at), name
    # AND what was left out is counted: other files, and what is of no file that is known
    one = logs["one file"]
    assert left_out(one)["file"] > 0
    assert set(left_out(one)) <= {"file", "no_file", "own", "device", "no_bio"}
    # AND lifecycles are whole
    assert np.all(read(one).bios.complete != NEVER)
    # AND the log says by what it was chosen
    assert f"--file {at}/wanted/direct" in biotrail("info", one).stdout
    # AND without names there are the bytes of all files, and no metadata
    whole = read(logs["the mount point"])
    assert int(whole.bios.bytes.sum()) == 2 * sum(FILES.values())
    assert not {"f", "N"} & set(whole.account.by_letter())


def test_a_directory_stands_for_what_is_mounted_below_it(
    tmp_path: Path, make_loop: MakeLoop
) -> None:
    # GIVEN a directory in which a file system is mounted, and a part of it once more elsewhere
    file_systems.require("ext4")
    device = make_loop(size=file_systems.BYTES)
    outside, inside = tmp_path / "disk", tmp_path / "above" / "part"
    inside.mkdir(parents=True)
    with ExitStack() as stack:
        at = stack.enter_context(file_systems.mounted("ext4", [device.path], outside))
        for name, size in FILES.items():
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_bytes(b"y" * size)
        devices.run("sync", "--file-system", at)
        devices.run("mount", "--bind", at / "wanted", inside)
        stack.callback(devices.run, "umount", "--lazy", inside)
        # WHEN the directory above is recorded
        log = tmp_path / "x.biotrail"
        options = ("-d", device.path, "-o", log, "--dir", tmp_path / "above", "--files")
        with recorder(*options) as recording:
            load(at)
            assert stop(recording, signal.SIGINT)[0] == 0
    # THEN the part that is mounted there is, by whatever path it was opened
    assert +bytes_by_file(log) == twice("wanted/direct", "wanted/deep/er/cached", at=at)


def test_files_that_move_and_deep_ones(tmp_path: Path, disk: Any) -> None:
    # GIVEN a file that is moved into the directory while it is recorded, one that is moved out,
    # and one too deep
    at, device = disk
    deep = at / "wanted"
    script = f"""
import os
os.chdir({str(at)!r})

def write(name, size):
    fd = os.open(name, os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, b"z" * size, 0)
    os.fsync(fd)
    return fd

fd = write("other/moved", {4 * KIB})
os.rename("other/moved", "wanted/moved")
os.pwrite(fd, b"z" * {8 * KIB}, 0)
os.fsync(fd)
os.rename("wanted/moved", "top-moved")
os.pwrite(fd, b"z" * {16 * KIB}, 0)
os.fsync(fd)
os.chdir("wanted")
for _ in range(200):
    os.mkdir("d")
    os.chdir("d")
write("deep", {32 * KIB})
"""
    log = tmp_path / "x.biotrail"
    arguments = ["-d", device.path, "-o", log, "--dir", deep, "--op", "write"]
    biotrail("record", *arguments, "--", sys.executable, "-c", script)
    # WHEN the log is read THEN it has what was written where the file was at the time
    assert int(read(log).bios.bytes.sum()) == 8 * KIB
    # AND what was too deep is counted as such
    assert left_out(log)["no_dir"] > 0
    assert "whose directory is not known" in biotrail("info", log).stdout


@pytest.mark.parametrize(
    ("option", "path", "message"),
    [
        ("--file", "/nowhere/*", "it takes a path, no pattern"),
        ("--dir", "/nowhere", "No such file or directory"),
        ("--file", "/usr", "it is a directory: use --dir"),
        ("--dir", sys.executable, "it is not a directory: use --file"),
        ("--file", "/dev/null", "it is no regular file"),
        ("--file", "/proc/version", "has no block device of its own"),
        ("--dir", "/proc/self/task", "has no block device of its own"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, option: str, path: str, message: str
) -> None:
    # GIVEN a path that names no file, or one without I/O on a disk WHEN it is recorded
    log = tmp_path / "x.biotrail"
    done = biotrail("record", "-o", log, "--duration", "1s", option, path, status=1)
    # THEN one message says why, and there is no log
    assert message in done.stderr
    assert path in done.stderr
    assert not os.path.exists(log)
