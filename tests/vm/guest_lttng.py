# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: LTTng beside biotrail, both of the same load on three disks.

LTTng is attached first and ends last, so what it saw is all, and its probes run first at each
event. It is the distribution's; its modules are those that `fetch --headers` built.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.vm.guest_blktrace import SYSFS, WAIT_SECONDS, loads
from tests.vm.guest_case import Case, Unavailable, disk, module, put, run, scheduler, tool

CHANNEL = ("--subbuf-size=4M", "--num-subbuf=8", "blk")
EVENTS = "block_*,lttng_statedump_block_device,sched_waking"
CONTEXT = ("--type=pid", "--type=tid", "--type=procname")


def wait_until_ready(daemon: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while subprocess.run(["lttng", "--no-sessiond", "list"], capture_output=True).returncode:
        if daemon.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"LTTng's daemon did not begin: {daemon.poll()}")
        time.sleep(0.2)


@contextmanager
def sessions() -> Iterator[None]:
    with tempfile.TemporaryDirectory() as home:
        os.environ["LTTNG_HOME"] = home
        daemon = subprocess.Popen(
            ["lttng-sessiond"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            wait_until_ready(daemon)
            yield
        finally:
            daemon.terminate()
            daemon.wait(WAIT_SECONDS)


@contextmanager
def lttng(case: Case) -> Iterator[None]:
    """Traces all block events, and scheduling, into the case's directory `lttng`."""
    with tempfile.TemporaryDirectory() as place, sessions():
        run("lttng", "create", "beside", f"--output={place}/trace")
        run("lttng", "enable-channel", "--kernel", *CHANNEL)
        run("lttng", "enable-event", "--kernel", "--channel=blk", EVENTS)
        run("lttng", "add-context", "--kernel", "--channel=blk", *CONTEXT)
        run("lttng", "start")
        try:
            yield
        finally:
            case.told["lttng"] = run("lttng", "stop") + run("lttng", "list", "beside")
            run("lttng", "destroy", "beside")
            shutil.copytree(f"{place}/trace", case.directory / "lttng", dirs_exist_ok=True)


def lttng_beside(case: Case) -> None:
    """A disk without a scheduler, one whose scheduler merges, one that takes 16 KiB at once."""
    tool("lttng-sessiond")
    if not Path(f"/lib/modules/{os.uname().release}/lttng").is_dir():
        raise Unavailable("LTTng's modules cannot be built for this kernel")
    names = [disk("nvme0"), disk("scsi0"), disk("scsi1")]
    module("mq-deadline")
    limit = SYSFS / names[2] / "queue/max_sectors_kb"
    limited = limit.read_text().strip()
    put(limit, 16)
    for name, value in zip(names, ("none", "mq-deadline", "mq-deadline"), strict=True):
        scheduler(name, value)
        Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
    script = case.directory / "loads.sh"
    script.write_text(loads(case, names), encoding="utf-8")
    try:
        with lttng(case):
            case.record(names, ["bash", str(script)], more=["--events", "all"])
    finally:
        put(limit, limited)
        for name in names:
            scheduler(name, "none")
    case.told["devices"] = names


CASES = (lttng_beside,)
