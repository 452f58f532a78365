# SPDX-License-Identifier: Apache-2.0
"""A recording of the disk that it is written to: its own I/O is known, and nobody else's is."""

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios, Requests
from biotrail.converters.pipeline import Trace
from tests.support import devices
from tests.support.devices import MakeLoop
from tests.support.path_disks import mounted
from tests.support.record_command import biotrail, in_json

pytestmark = pytest.mark.usefixtures("needs_bpf")

SCRIPT = """
set -e
cd "$1"
dd if=/dev/urandom of=theirs bs=64k count=16 status=none
touch direct
until [ -e "$2" ]; do sleep 0.05; done
size=$(stat -c %s "$2")
while
    dd if=/dev/zero of=direct bs=4k count=64 oflag=direct conv=notrunc status=none
    sleep 0.1
    [ "$(stat -c %s "$2")" -le "$size" ]
do :; done
sync
"""
"""Buffered and direct writes until the log has grown; all that is dirty goes to the disk."""

LOAD_A_WHILE = """
set -e
cd "$1"
touch direct
for turn in 1 2 3 4; do
    dd if=/dev/zero of=direct bs=4k count=512 oflag=direct conv=notrunc status=none
    sleep 0.5
    sync
done
"""
"""Direct writes for two seconds; what is dirty goes to the disk after each."""

IN_A_CONTAINER = ("unshare", "--pid", "--fork", "--mount-proc")


@dataclass
class Disk:
    """A loop device with a file system, mounted."""

    device: devices.LoopDevice
    mount: Path

    @property
    def log(self) -> Path:
        return self.mount / "own.biotrail"

    def record(self, *arguments: str, before: tuple[str, ...] = ()) -> str:
        """Records the disk to a file on it; what was said."""
        load = ["sh", "-c", SCRIPT, "sh", str(self.mount), str(self.log)]
        where = ("-d", self.device.name, "-o", self.log)
        done = biotrail("record", *where, *arguments, "--", *load, by=before)
        devices.run("sync")
        return done.stderr

    def sectors(self, name: str) -> np.ndarray[Any, Any]:
        """Whether each sector of the disk is the file's."""
        told = devices.run("filefrag", "-v", "-b512", self.mount / name)
        found = np.zeros(self.device.size // 512, dtype=np.bool_)
        for line in told.splitlines():
            cells = line.replace("..", " ").replace(":", " ").split()
            if cells and cells[0].isdecimal() and len(cells) > 5:
                found[int(cells[3]) : int(cells[4]) + 1] = True
        assert found.any(), told
        return found


@pytest.fixture
def disk(request: pytest.FixtureRequest, make_loop: MakeLoop, tmp_path: Path) -> Iterator[Disk]:
    """Parametrize it indirectly with options of mkfs."""
    for tool in ("mkfs.ext4", "filefrag", "mount"):
        if shutil.which(tool) is None:
            pytest.skip(f"needs {tool}")
    with ExitStack() as stack:
        device = make_loop(size=128 << 20)
        devices.make_ext4(device.path, *getattr(request, "param", ()))
        mount = tmp_path / "disk"
        mount.mkdir()
        devices.run("mount", device.path, mount)
        stack.callback(devices.run, "umount", "--lazy", mount)  # a failed test holds files open
        yield Disk(device, mount)


@dataclass
class Log:
    """A log, read with all that is in it or without its own I/O."""

    trace: Trace
    bios: Bios
    requests: Requests
    tgid: np.ndarray[Any, Any]
    """Of each bio's submitter; -1 unknown."""

    @classmethod
    def read(cls, path: Path, own_io: bool) -> "Log":
        trace = Trace(path, own_io=own_io)
        windows = list(trace.lifecycles())
        bios = Bios.concatenate([w.bios for w in windows])
        tgid = np.append(windows[-1].tasks.tgid.astype(np.int64), -1)[bios.task]
        requests = Requests.concatenate([w.requests for w in windows])
        return cls(trace, bios, requests, tgid)

    def writes(self) -> Bios:
        """Writes of data."""
        context = self.trace.context
        ops = np.array([context.op_name(int(opf)) for opf in self.bios.opf])
        meta = self.bios.opf & np.uint32(context.flag_mask("META")) != 0
        return self.bios.take((ops == "write") & (self.bios.bytes > 0) & ~meta)


def lies_in(bios: Bios, sectors: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whether each bio begins in the file."""
    return sectors[bios.sector.astype(np.int64)]


def assert_own_is_the_logs(disk: Disk, log: Log) -> Bios:
    """What is marked is the log's file and nothing of the others; the marked writes."""
    writes = log.writes()
    assert lies_in(writes.take(writes.own), disk.sectors(disk.log.name)).all()
    assert writes.own[lies_in(writes, disk.sectors(disk.log.name))].all()
    for name in ("theirs", "direct"):
        theirs = writes.take(lies_in(writes, disk.sectors(name)))
        assert len(theirs) > 0
        assert not theirs.own.any()
    assert writes.own.any()
    return writes.take(writes.own)


def test_pages_that_kworkers_write(disk: Disk) -> None:
    # GIVEN a disk that is recorded to a file on it
    disk.record()
    # WHEN its log is read with all there is THEN the writes of the log's file are own, though no
    # task of the recorder's queued them, and all others' are not
    whole = Log.read(disk.log, own_io=True)
    own = assert_own_is_the_logs(disk, whole)
    names = np.append(whole.trace.tasks.table().comm, "")[own.task]
    assert not [name for name in names if "biotrail" in name or "python" in name]
    # AND by default they are left out, and nothing else is
    shown = Log.read(disk.log, own_io=False)
    assert shown.bios.number.tolist() == whole.bios.number[~whole.bios.own].tolist()
    assert shown.trace.account.own_bios == int(whole.bios.own.sum())
    assert "the recorder's own I/O: " in biotrail("info", disk.log).stdout
    assert "shown, marked own" in biotrail("info", "--own-io", disk.log).stdout


# Without a journal whoever asks for a flush queues it.
@pytest.mark.parametrize("disk", [("-O", "^has_journal")], indirect=True, ids=["no-journal"])
@pytest.mark.parametrize("before", [(), IN_A_CONTAINER], ids=["host", "container"])
def test_what_the_recorder_queues_itself(disk: Disk, before: tuple[str, ...]) -> None:
    # GIVEN a recorder that has each chunk written to the disk at once, by its own task
    if before and subprocess.run([*before, "true"], capture_output=True).returncode:
        pytest.skip("needs namespaces of processes")
    disk.record("--sync", before=before)
    # WHEN its log is read THEN that is own, of whatever operation, and others' writes are not
    whole = Log.read(disk.log, own_io=True)
    assert_own_is_the_logs(disk, whole)
    flushes = whole.bios.own & (whole.bios.bytes == 0)
    assert flushes.any(), "fdatasync ends in a flush, which has no page"
    assert len(np.unique(whole.tgid[flushes])) == 1


def test_filters_leave_it_out_by_themselves(disk: Disk) -> None:
    # GIVEN a filter that the log's own writes match WHEN recorded
    said = disk.record("--op", "write")
    # THEN they are not in the log, and counted by a reason of their own
    log = Log.read(disk.log, own_io=True)
    assert not log.bios.own.any()
    assert not lies_in(log.writes(), disk.sectors(disk.log.name)).any()
    assert (log.trace.reader.end or {})["left_out"]["bios"]["own"] > 0
    assert "of the recorder itself" in said
    # AND the others' writes are there
    for name in ("theirs", "direct"):
        assert lies_in(log.writes(), disk.sectors(name)).any()


def test_filters_keep_it_when_asked_to(disk: Disk) -> None:
    # GIVEN the same filter WHEN the recorder's own I/O is asked for
    disk.record("--op", "write", "--own-io")
    # THEN it is in the log, marked, and left out of what is read from it
    whole = Log.read(disk.log, own_io=True)
    assert_own_is_the_logs(disk, whole)
    assert "own" not in (whole.trace.reader.end or {})["left_out"]["bios"]
    shown = Log.read(disk.log, own_io=False)
    assert len(shown.bios) == int((~whole.bios.own).sum())


@pytest.mark.parametrize(
    "arguments", [("--rotate", "20k"), ("--keep", "16M")], ids=["rotate", "keep"]
)
def test_every_file_of_several(disk: Disk, arguments: tuple[str, ...]) -> None:
    # GIVEN a recording in several files, on its own disk, that goes on over the first
    where = ("-d", disk.device.name, "-o", disk.log, "--level", "0")
    load = ("sh", "-c", LOAD_A_WHILE, "sh", disk.mount)
    biotrail("record", "-q", *where, *arguments, "--", *load)
    devices.run("sync")
    files = sorted(disk.mount.glob("own-*.biotrail"))
    assert files
    # WHEN they are read THEN what is written to any of them is own, and nothing else is
    sectors = np.logical_or.reduce([disk.sectors(path.name) for path in files])
    written = 0
    for path in files:
        writes = Log.read(path, own_io=True).writes()
        assert (writes.own == lies_in(writes, sectors)).all()
        written += int(writes.own.sum())
    assert written > 0 or len(files) == 1


# What a program writes through a stacked device counts once for it, and by device each.

WRITES = 200
SIZE = 4096 * WRITES
LOAD = """
import mmap, os, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)
page = mmap.mmap(-1, 4096)
for number in range(int(sys.argv[2])):
    os.pwrite(fd, page, number * 4096)
"""


def test_what_a_loop_device_splits_counts_once(make_loop: MakeLoop, tmp_path: Path) -> None:
    # GIVEN a file system on a loop device with direct I/O over a file on another one
    lower = make_loop(size=256 << 20)
    log = tmp_path / "x.biotrail"
    size = 64 << 20
    with (
        mounted(lower, "ext4", tmp_path / "disk") as on,
        devices.loop(128 << 20, True, on.mount) as upper,
        mounted(upper, "ext4", tmp_path / "upper") as above,
    ):
        # WHEN a program writes, in bios larger than its requests may be
        dd = ["dd", "if=/dev/zero", f"of={above.mount}/big", "bs=1M", "count=64", "conv=fsync"]
        chosen = ["-d", upper.path, "-d", lower.path]
        biotrail("record", "--files", "--path", "-o", log, *chosen, "--", *dd)
    # THEN its data is what it wrote
    report = in_json("report", "--by", "writer", log)
    [group] = [group for group in report["groups"] if group["process"] == "dd"]
    [written] = [o["bytes"] for o in group["by_operation"] if o["operation"] == "write"]
    assert size <= written < size + (1 << 20)


def test_a_write_through_a_loop_device_counts_once(make_loop: MakeLoop, tmp_path: Path) -> None:
    # GIVEN a loop device with direct I/O over a file on a file system of another
    lower = make_loop(size=64 << 20)
    log = tmp_path / "x.biotrail"
    with (
        mounted(lower, "ext4", tmp_path / "disk") as on,
        devices.loop(16 << 20, True, on.mount) as upper,
    ):
        # WHEN a program writes to it, and both are recorded
        command = [sys.executable, "-c", LOAD, upper.path, str(WRITES)]
        chosen = ["-d", upper.path, "-d", lower.path]
        biotrail("record", "--path", "-o", log, *chosen, "--", *command)
        name = upper.name
    # THEN each device has its own writes
    report = in_json("report", "--by", "writer", log)
    written = {
        (one["device"], op["operation"]): op["bytes"]
        for one in report["devices"]
        for op in one["operations"]
    }
    assert written[name, "write"] == SIZE
    assert written[lower.name, "write"] >= SIZE
    # AND the program has them once, as a submitter and as a writer
    for groups in (report["processes"], report["groups"]):
        mine = [g for g in groups if str(g["process"]).startswith("python")]
        ops = {op["operation"]: op["bytes"] for g in mine for op in g["by_operation"]}
        assert ops["write"] == SIZE
    # AND the total leaves out what the loop device queued for them
    assert report["lower"]["bios"] >= WRITES and report["lower"]["bytes"] >= SIZE
    # AND the lower device alone has its own
    alone = in_json("report", "-d", lower.name, log)
    assert alone["lower"]["bios"] == 0
    writes = sum(
        op["bytes"] for op in alone["devices"][0]["operations"] if op["operation"] == "write"
    )
    assert alone["total"]["bytes"] >= writes >= SIZE


# What the recorder asks a disk about (its serial number, by a driver's command) is in no log.

DRIVER_COMMANDS = ("drv_in", "drv_out")


def virtio_disk() -> str:
    """A disk that is asked for its serial number by a request whenever the attribute is read."""
    for serial in sorted(Path("/sys/block").glob("vd*/serial")):
        return serial.parent.name
    pytest.skip("needs a virtio disk")


def commands(log: Path) -> int:
    """Requests of the log that are commands of a driver."""
    trace = Trace(log)
    found = 0
    for window in trace.lifecycles():
        operations, names = trace.context.op_codes(window.requests.opf)
        found += sum(names[code] in DRIVER_COMMANDS for code in operations.tolist())
    return found


@pytest.mark.alone  # others ask disks for their numbers
@pytest.mark.parametrize("options", [(), ("--path", "--files")])
def test_the_recorders_own_question_is_in_no_log(tmp_path: Path, options: tuple[str, ...]) -> None:
    # GIVEN a disk that answers the question for its serial number by a request
    disk = virtio_disk()
    log = tmp_path / "log.biotrail"
    asked = f"cat /sys/block/{disk}/serial"
    # WHEN nobody else asks during a recording, and when somebody does
    biotrail("record", "-d", disk, *options, "-o", log, "--", "sleep", "0.5")
    [quiet] = tmp_path.glob("log*.biotrail")
    unasked = commands(quiet)
    quiet.unlink()
    biotrail("record", "-d", disk, *options, "-o", log, "--", "sh", "-c", asked)
    # THEN only the latter is recorded
    [other] = tmp_path.glob("log*.biotrail")
    assert unasked == 0
    assert commands(other) > 0
