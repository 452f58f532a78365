# SPDX-License-Identifier: Apache-2.0
"""Call stacks of real I/O: whose they are, and that none is missing."""

import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.recorder.log import LogReader
from biotrail.recorder.symbols.kallsyms import KernelSymbols
from tests.support import devices
from tests.support.devices import LoopDevice, MakeLoop
from tests.support.record_command import biotrail, fio_command, in_json, read

pytestmark = pytest.mark.usefixtures("needs_bpf")

BUFFERED = "import os, sys; f = os.open(sys.argv[1], 2); os.write(f, b'x' * 65536); os.fsync(f)"


def stacks_of(path: Path) -> dict[str, Any]:
    made: dict[str, Any] = in_json("stacks", path)
    return made


def names(entry: dict[str, Any]) -> list[str]:
    return [frame["name"] for frame in entry["kernel"]]


def needs_names() -> None:
    if not len(KernelSymbols()):
        pytest.skip("the kernel hides its symbols")


def test_direct_reads_have_the_readers_stack(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a recording of a program that reads a loop device directly, and one that writes it
    # through the page cache
    needs_names()
    log = tmp_path / "x.biotrail"
    shell = fio_command(
        loop_device.path, tmp_path / "fio.json", rw="randread", bs="4k", size="1m", ioengine="psync"
    )
    write = [sys.executable, "-c", BUFFERED, loop_device.path]
    command = ["sh", "-c", f"{shlex.join(shell)} && exec {shlex.join(write)}"]
    biotrail("record", "--stacks", "-d", loop_device.path, "-o", log, "--", *command)
    # WHEN its stacks are added up
    made = stacks_of(log)
    whole = read(log)
    report = devices.read_fio_report(tmp_path / "fio.json")["jobs"][0]["read"]
    # THEN every bio has one: counts and bytes are those of the bios
    assert made["bios"] == len(whole.bios)
    assert made["bytes"] == int(whole.bios.bytes.sum(dtype=np.int64))
    assert (whole.bios.stack >= 0).all()
    assert all(not entry["missing"] for entry in made["stacks"])
    # AND fio's direct reads came from a system call that reads, the writes from another
    by_comm: dict[str, list[dict[str, Any]]] = {}
    for entry in made["stacks"]:
        by_comm.setdefault(entry["comm"], []).append(entry)
    reads = [e for e in by_comm["fio"] if any("read" in name for name in names(e))]
    assert sum(entry["bytes"] for entry in reads) >= report["io_bytes"]
    assert all(names(entry)[0].startswith("submit_bio") for entry in made["stacks"])
    syncs = [e for e in made["stacks"] if any("fsync" in name for name in names(e))]
    assert sum(entry["bytes"] for entry in syncs) >= 65536
    assert not {tuple(names(e)) for e in reads} & {tuple(names(e)) for e in syncs}
    # AND the histogram holds every bio that ended
    for entry in made["stacks"]:
        assert sum(bucket["bios"] for bucket in entry["histogram"]) == entry["ended"]
    folded = biotrail("stacks", log, "--folded").stdout.splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in folded) == made["bios"]


def test_programs_have_their_own_stacks(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a program that reads directly, and whose C library has a build id
    log = tmp_path / "x.biotrail"
    command = fio_command(
        loop_device.path, tmp_path / "fio.json", rw="randread", bs="4k", size="1m", ioengine="psync"
    )
    arguments = ["--stacks", "--user-stacks", "-d", loop_device.path, "-o", log]
    biotrail("record", *arguments, "--", *command)
    # WHEN its stacks are looked at
    made = stacks_of(log)
    # THEN its reads come from functions of its own, by name, in a file
    reads = [e for e in made["stacks"] if e["comm"] == "fio" and e["user"]]
    assert sum(entry["bytes"] for entry in reads) >= 1 << 20
    leaves = [entry["user"][0] for entry in reads]
    assert any(leaf["name"] and leaf["where"].startswith("/") for leaf in leaves)
    # AND that is said by info, and in each folded line between the command and the kernel
    assert "call stacks, of programs too" in biotrail("info", log).stdout
    assert LogReader(log).header["stacks"] == {"user": True}


def test_work_of_kernel_threads_has_another_stack(tmp_path: Path, make_loop: MakeLoop) -> None:
    # GIVEN a loop device over a loop device, read through the upper one: a kernel worker queues
    # the lower one's I/O
    needs_names()
    lower = make_loop()
    log = tmp_path / "x.biotrail"
    with devices.loop_over(lower.path, direct_io=True) as upper:
        command = fio_command(
            upper.path, tmp_path / "fio.json", rw="read", bs="64k", size="1m", ioengine="psync"
        )
        both = ["-d", upper.path, "-d", lower.path]
        biotrail("record", "--stacks", *both, "-o", log, "--", *command)
    # WHEN stacks are looked at by command
    made = stacks_of(log)
    fio = {tuple(names(e)) for e in made["stacks"] if e["comm"] == "fio"}
    worker = {tuple(names(e)) for e in made["stacks"] if e["comm"].startswith("kworker")}
    # THEN the worker's are others than the program's, and begin in a thread of the kernel
    assert fio
    assert worker
    assert not fio & worker
    assert any("kthread" in stack for stack in worker)


def test_every_rotated_file_has_the_stacks_of_its_events(
    tmp_path: Path, loop_device: LoopDevice
) -> None:
    # GIVEN a recording with stacks that was rotated while a program ran
    load = {"ioengine": "psync", "time_based": True, "runtime": 2, "rate_iops": 1000}
    command = fio_command(
        loop_device.path, tmp_path / "fio.json", rw="randread", bs="4k", size="1m", **load
    )
    target = tmp_path / "x.biotrail"
    arguments = ["--stacks", "-d", loop_device.path, "--rotate", "300ms", "-o", target]
    biotrail("record", *arguments, "--", *command)
    files = sorted(tmp_path.glob("x-*.biotrail"))
    assert len(files) > 1
    for file in files:
        # WHEN each is read alone
        made = stacks_of(file)
        # THEN every stack that its events name is in it, with names where the kernel shows them
        assert all(not entry["missing"] for entry in made["stacks"])
        assert all(entry["kernel"] for entry in made["stacks"])
        assert LogReader(file).header["stacks"] == {"user": False}


def test_a_flight_recorders_dump_has_stacks(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a flight recorder with stacks  WHEN it ends
    command = fio_command(
        loop_device.path, tmp_path / "fio.json", rw="randread", bs="4k", size="1m", ioengine="psync"
    )
    target = tmp_path / "x.biotrail"
    arguments = ["--stacks", "-d", loop_device.path, "--keep", "30s", "-o", target]
    biotrail("record", *arguments, "--", *command)
    (dump,) = tmp_path.glob("x-*.biotrail")
    # THEN the dump has the stacks of all its bios
    made = stacks_of(dump)
    assert made["bios"] >= 256
    assert all(not entry["missing"] for entry in made["stacks"])


def test_nothing_is_there_without_the_option(tmp_path: Path, loop_device: LoopDevice) -> None:
    # GIVEN a recording without stacks and files
    command = fio_command(
        loop_device.path, tmp_path / "fio.json", rw="read", bs="64k", size="1m", ioengine="psync"
    )
    log = tmp_path / "x.biotrail"
    biotrail("record", "-d", loop_device.path, "-o", log, "--", *command)
    # WHEN it is asked for these  THEN there is a message, and no record of them
    assert "record --stacks" in biotrail("stacks", log, status=1).stderr
    assert "record --files" in biotrail("report", "--by", "file", log, status=1).stderr
    assert not {"S", "f", "N"} & set(read(log).account.by_letter())
