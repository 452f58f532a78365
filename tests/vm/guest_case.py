# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: cases, each a device with a load that is recorded.

A case's directory in $VM_OUT holds its logs, what the load says of itself, and `case.json`:
what the test shall expect, or why the case was skipped, or how it failed. Tests on the host judge.
"""

import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import biotrail.cli.record  # noqa: F401 - what main() would import in each child
from biotrail.cli.main import main

OUT = Path(os.environ.get("VM_OUT", "/run/out"))
DISK_BYTES = 64 << 20
SECTORS = DISK_BYTES >> 9
COMMAND_SECONDS = 600
"""Ends a hang; emulation on a busy machine is slow."""


class Unavailable(Exception):
    """What the case needs is not in this kernel or on this machine."""


def run(*words: object) -> str:
    """Returns what the command prints; raises RuntimeError with what it said if it fails."""
    command = [str(word) for word in words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def command(*words: str) -> None:
    """Runs a biotrail command in a child: the imports, slow in emulation, are done once."""
    child = os.fork()
    if child == 0:
        sys.argv = ["biotrail", *words]  # what the log says it was made by
        try:
            main(list(words))
        except SystemExit as end:
            sys.stderr.flush()
            os._exit(int(end.code or 0))
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status != 0:
        raise RuntimeError(f"biotrail {' '.join(words)}: exit {status}")


def module(name: str, *parameters: str) -> None:
    """Loads a kernel module."""
    done = subprocess.run(["modprobe", name, *parameters], capture_output=True, text=True)
    if done.returncode != 0:
        raise Unavailable(f"no module {name}: {done.stderr.strip()}")


def tool(name: str) -> None:
    """Wants a program of the machine."""
    if shutil.which(name) is None:
        raise Unavailable(f"{name} is not installed")


def wait_for(path: Path) -> Path:
    """Until it is there: probing is asynchronous."""
    for _ in range(600):
        if path.exists():
            return path
        time.sleep(0.1)
    raise RuntimeError(f"{path} did not appear")


def put(path: Path, value: object) -> None:
    path.write_text(f"{value}\n")


def virtio_disk(serial: str) -> str:
    (mine,) = virtio_disks(f"v{serial}")
    return mine


def virtio_disks(serial: str) -> set[str]:
    """The names of virtio-blk disks with this whole serial number."""
    serials = Path("/sys/block").glob("vd*/serial")
    return {path.parent.name for path in serials if path.read_text().strip() == serial}


def nvme_disk(serial: str) -> str:
    """The name of the NVMe disk with this serial number; a disk of several paths is one."""
    serials = Path("/sys/block").glob("nvme*n1/device/serial")
    (mine,) = {
        path.parent.parent.name
        for path in serials
        if path.read_text().strip() == f"n{serial}" and is_shown(path.parent.parent)
    }
    return mine


def is_shown(disk: Path) -> bool:
    """Whether a disk of sysfs can be opened: a path to one cannot."""
    hidden = disk / "hidden"
    return not hidden.exists() or hidden.read_text().strip() == "0"


def disk(by: str) -> str:
    """The name of a disk of the machine: "virtio", "nvme0", "nvme1", "scsi0", "scsi1", "ata0"."""
    if by == "virtio":
        return virtio_disk("0")
    if by.startswith("nvme"):
        return nvme_disk(by.removeprefix("nvme"))
    models = Path("/sys/block").glob("sd*/device/model")
    disks = sorted(p.parent.parent for p in models if p.read_text().startswith("QEMU HARDDISK"))
    mine = [p.name for p in disks if ("virtio" in os.path.realpath(p)) == by.startswith("scsi")]
    return mine[int(by[-1])]


def scheduler(name: str, value: str) -> None:
    """Sets a disk's I/O scheduler."""
    put(Path(f"/sys/block/{name}/queue/scheduler"), value)


@contextmanager
def dm(name: str, table: str) -> Iterator[str]:
    """A device-mapper device of `table`; gives its kernel name."""
    tool("dmsetup")
    run("dmsetup", "create", name, "--noudevsync", "--noudevrules", "--table", table)
    try:
        minor = run("dmsetup", "info", "-c", "--noheadings", "-o", "minor", name).strip()
        wait_for(Path(f"/dev/dm-{minor}"))
        yield f"dm-{minor}"
    finally:
        run("dmsetup", "remove", "--noudevsync", "--noudevrules", name)


def fio(**options: object) -> list[str]:
    """A fio command; direct, asynchronous reads and writes of 1 MiB, unless told otherwise."""
    job: dict[str, object] = {
        "name": "job",
        "direct": 1,
        "ioengine": "libaio",
        "iodepth": 4,
        "rw": "randrw",
        "bs": "4k",
        "size": "1m",
        "randseed": 7,
        "output-format": "json",
        "eta": "never",
    }
    return ["fio", *(f"--{k}={v}" for k, v in (job | options).items())]


def fio_script(case: "Case", device: str, loads: Mapping[str, Mapping[str, object]]) -> Path:
    lines = [
        " ".join(fio(filename=f"/dev/{device}", output=case.directory / f"{load}.json", **options))
        for load, options in loads.items()
    ]
    script = case.directory / "loads.sh"
    script.write_text("\n".join(["set -e", *lines]) + "\n", encoding="utf-8")
    return script


class Case:
    """One case's directory, and what it tells the test."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.directory = OUT / name
        self.directory.mkdir(parents=True, exist_ok=True)
        self.told: dict[str, Any] = {}

    def record(
        self, devices: list[str], load: list[str], name: str = "log", more: Sequence[str] = ()
    ) -> None:
        """Records a load on `devices`, with `more` options."""
        names = [word for device in devices for word in ("-d", device)]
        out = self.directory / f"{name}.biotrail"
        command("record", "-q", "--force", *more, *names, "-o", str(out), "--", *map(str, load))

    def record_sites(self, words: Sequence[str], load: Sequence[object], name: str = "log") -> None:
        """Records chosen sites, by `biotrail WORDS` ("pairs", "follow", …), while a load runs."""
        out = self.directory / f"{name}.biotrail"
        command(*words, "-q", "--force", "-o", str(out), "--", *map(str, load))

    @contextmanager
    def ending(self) -> Iterator[None]:
        """Writes how what is done within ended, whatever comes."""
        start = time.monotonic()
        try:
            yield
            self.told["ended"] = "done"
        except Unavailable as reason:
            self.told |= {"ended": "skipped", "reason": str(reason)}
        except Exception:
            self.told |= {"ended": "failed", "reason": traceback.format_exc()}
        self.told["seconds"] = round(time.monotonic() - start, 1)
        self.save()

    def save(self) -> None:
        """Writes what the test shall know."""
        text = json.dumps(self.told, indent=1)
        (self.directory / "case.json").write_text(text, encoding="utf-8")


def perform(name: str, body: Callable[[Case], None]) -> None:
    """Runs a case and writes how it ended."""
    case = Case(name)
    with case.ending():
        body(case)
    seconds = case.told["seconds"]
    print(f"{name}: {case.told['ended']}, {seconds} s", flush=True)
