# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: what small rings lose, by how a machine that reorders publishes heads."""

import statistics
import time
from pathlib import Path

from biotrail.recorder.probes import core
from biotrail.recorder.probes.rings.barriers import Barrier, is_strongly_ordered, weak_barrier
from biotrail.recorder.probes.rings.head_stores import exchanges_offered
from tests.vm.guest_case import Case, Unavailable, fio, run, scheduler
from tests.vm.guest_devices import null_blk

RINGS = ("128K", "2M")
IOS = 10_000
"""Of each of two jobs."""
ACQUIRES = 50
LOAD = {"numjobs": 2, "iodepth": 16, "size": "48m", "number_ios": IOS, "group_reporting": 1}


def waits(barrier: Barrier) -> float:
    """Median microseconds that a reader waits before it copies records."""
    spans = []
    for _ in range(ACQUIRES):
        start = time.monotonic_ns()
        barrier.acquire()
        spans.append(time.monotonic_ns() - start)
    return statistics.median(spans) / 1000


def small_rings(case: Case) -> None:
    """The same load of a device that answers at once, with each size of rings, in both ways."""
    if is_strongly_ordered():
        raise Unavailable("this processor orders stores itself")
    offered = exchanges_offered()
    case.told |= {"exchanges": offered, "recordings": []}
    case.told["waits_us"] = {
        "exchange": waits(weak_barrier(ordered=True)),
        "membarrier": waits(weak_barrier(ordered=False)),
    }
    (case.directory / "doctor.json").write_text(run(".venv/bin/biotrail", "doctor", "--json"))
    with null_blk("nullb_order", irqmode=0, submit_queues=2) as name:
        scheduler(name, "none")
        Path(f"/dev/{name}").open("rb").close()  # the first who opens a disk reads it
        for way in ("exchange", "membarrier") if offered else ("membarrier",):
            core.ordered_heads = lambda way=way: way == "exchange"  # type: ignore[assignment]
            for size in RINGS:
                recording = f"{way}-{size}"
                account = case.directory / f"{recording}.json"
                load = fio(filename=f"/dev/{name}", output=account, **LOAD)
                more = ["--events", "all", "--buffer-size", size]
                case.record([name], load, recording, more)
                case.told["recordings"].append(recording)


CASES = (small_rings,)
