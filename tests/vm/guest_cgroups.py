# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: cgroup v2 filters recordings, and limits and weighs I/O."""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tests.vm.guest_case import Case, Unavailable, disk, fio, module, put, run, scheduler, tool
from tests.vm.guest_devices import null_blk
from tests.vm.guest_repeats import Load, record_loads, until_whole

ROOT = Path("/sys/fs/cgroup")
MINE, THEIRS = "vm-mine", "vm-theirs"
ABOVE, BELOW = "vm-above", "vm-above/below"
MOUNT = "/mnt"
RATE = 1 << 20
"""Bytes a second."""
IOPS = 10


@contextmanager
def cgroup(name: str) -> Iterator[Path]:
    there = set((ROOT / "cgroup.controllers").read_text().split())
    if missing := {"io", "memory"} - there:
        raise Unavailable(f"cgroup v2 has no controller {' '.join(sorted(missing))}")
    place = ROOT / name
    put(place.parent / "cgroup.subtree_control", "+io +memory")
    place.mkdir()
    try:
        yield place
    finally:
        place.rmdir()


@contextmanager
def mounted(name: str) -> Iterator[None]:
    tool("mkfs.ext4")
    module("ext4")
    run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", f"/dev/{name}")
    run("mount", f"/dev/{name}", MOUNT)
    try:
        yield
    finally:
        run("umount", MOUNT)


def inside(place: Path, words: list[str]) -> str:
    """For a shell: a program in a cgroup."""
    return f"(echo $BASHPID >{place}/cgroup.procs; exec {' '.join(words)})"


def written(name: str, blocks: int) -> list[str]:
    """Writes a file through the page cache and leaves it there."""
    return ["dd", "if=/dev/zero", f"of={MOUNT}/{name}", "bs=64k", f"count={blocks}", "status=none"]


def cgroup_filter(case: Case) -> None:
    """Two cgroups read and write one disk directly, a file system through the page cache."""
    direct, cached = disk("nvme0"), disk("virtio")
    names = (MINE, THEIRS)
    with ExitStack() as stack:
        mine, theirs = (stack.enter_context(cgroup(name)) for name in names)
        stack.enter_context(mounted(cached))
        jobs = [
            fio(filename=f"/dev/{direct}", output=case.directory / f"{name}.json", size=size)
            for name, size in zip(names, ("1m", "2m"), strict=True)
        ]
        script = case.directory / "load.sh"
        lines = [
            f"{inside(mine, jobs[0])} & {inside(theirs, jobs[1])} & wait",
            inside(mine, written(MINE, 32)),
            inside(theirs, written(THEIRS, 16)),
            "sync",  # a third cgroup's
        ]
        script.write_text("\n".join(["set -e", *lines]) + "\n", encoding="utf-8")
        options = ["--cgroup", f"/{MINE}", "--files"]
        load = ["bash", str(script)]
        until_whole(case, lambda: case.record([direct, cached], load, more=options))
    case.told |= {"devices": [direct, cached], "cgroup": f"/{MINE}", "written": 32 << 16}


@dataclass
class Limit:
    """What is written into which files, `{dev}` being the device; a load for it."""

    files: dict[str, str]
    options: dict[str, object]


MODEL = f"rbps=1000000000 rseqiops={IOPS} rrandiops={IOPS} wbps=1 wseqiops=1 wrandiops=1"
LIMITS = {
    "io_max_bytes": Limit(
        {f"{MINE}/io.max": f"{{dev}} rbps={RATE}"},
        {"bs": "64k", "size": "3m"},
    ),
    "io_max_ios": Limit(
        {f"{MINE}/io.max": f"{{dev}} riops={IOPS}"},
        {"size": "160k"},
    ),
    "io_cost": Limit(
        {
            "io.cost.model": f"{{dev}} ctrl=user model=linear {MODEL}",
            "io.cost.qos": "{dev} enable=1 ctrl=user min=100.00 max=100.00",
        },
        {"size": "160k", "iodepth": 1},
    ),
}


@contextmanager
def limited(key: str, limit: Limit) -> Iterator[str]:
    """A device that answers at once, but for the limit; gives its name."""
    for path in limit.files:
        if not (ROOT / path).exists():
            raise Unavailable(f"this kernel has no {Path(path).name}")
    with null_blk(key, irqmode=0) as name:
        scheduler(name, "none")
        Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
        number = os.stat(f"/dev/{name}").st_rdev
        for path, text in limit.files.items():
            put(ROOT / path, text.format(dev=f"{os.major(number)}:{os.minor(number)}"))
        yield name


def cgroup_limits(whole: Case) -> None:
    """The same cgroup reads devices, each under another limit."""
    with ExitStack() as stack:
        place = stack.enter_context(cgroup(MINE))
        loads: list[Load] = []
        for key, limit in LIMITS.items():
            case = Case(key)
            with case.ending():
                name = stack.enter_context(limited(key, limit))
                job = fio(filename=f"/dev/{name}", output=case.directory / "log.json",
                          rw="randread", **limit.options)  # fmt: skip
                loads.append((case, [inside(place, job)]))
                case.told |= {"devices": [name], "cgroup": f"/{MINE}", "rate": RATE, "iops": IOPS}
        names = [case.told["devices"][0] for case, _ in loads]
        record_loads(whole, names, loads)
        for case, _ in loads:
            case.save()


def cgroup_holds(whole: Case) -> None:
    """Reads one after the other, each waited for, under limits of its cgroup, or of one above."""
    one = {"ioengine": "psync", "iodepth": 1, "bs": "64k", "size": "1m"}
    small = one | {"bs": "4k", "size": "40k"}
    rate = f"{{dev}} rbps={RATE}"
    held = {
        "held_own": (MINE, Limit({f"{MINE}/io.max": rate}, one)),
        "held_above": (BELOW, Limit({f"{ABOVE}/io.max": rate}, one)),
        "held_by_cost": (MINE, replace(LIMITS["io_cost"], options=small)),
    }
    with ExitStack() as stack:
        places = {name: stack.enter_context(cgroup(name)) for name in (MINE, ABOVE, BELOW)}
        loads: list[Load] = []
        for key, (name, limit) in held.items():
            case = Case(key)
            with case.ending():
                device = stack.enter_context(limited(key, limit))
                job = fio(filename=f"/dev/{device}", output=case.directory / "log.json",
                          rw="randread", **limit.options)  # fmt: skip
                loads.append((case, [inside(places[name], job)]))
                case.told |= {"devices": [device], "rate": RATE}
        names = [case.told["devices"][0] for case, _ in loads]
        path = ["--path=call,time,wait,fs", "--call-budget", "0"]
        record_loads(whole, names, loads, path)
        for case, _ in loads:
            case.save()


CASES = (cgroup_filter, cgroup_limits, cgroup_holds)
