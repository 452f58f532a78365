# SPDX-License-Identifier: Apache-2.0
"""What the recorder's poll costs on hosts with many CPUs: rings in memory, filled from here.

    python -m benchmarks.many_rings [--cpus 2,8,64,512] [--rounds 20]

Idle: what a round of the poll loop does with the rings while nothing comes, and which share of a
core that is where it naps. Loaded: a poll that finds 4 KiB in the task ring of each CPU, and what
its chunk takes to be encoded, compressed and written to memory. CPU time, the least of all rounds;
caches are warm, so cold ones come on top: a line or two for each ring. Needs no rights.
"""

import argparse
import io
import mmap
import time
from collections.abc import Callable

import numpy as np

from benchmarks.cost_figures import numbers
from biotrail.recorder.accounting.loss import LossCounters
from biotrail.recorder.accounting.meter import Meter
from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.probes.rings.barriers import Barrier
from biotrail.recorder.probes.rings.ring import Rings, RingSizes
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.records import BLOCK_BYTES, BY_KIND, TIMESTAMP_BITS, Kind
from biotrail.recorder.session.running import NAP

MEBIBYTE = 1 << 20
LIFE = (Kind.Q, Kind.START, Kind.D, Kind.C)
HEAD = (
    f"{'CPUs':>5}{'ring KiB':>10}{'all MiB':>9}{'idle µs':>9}{'share %':>9}"
    f"{'poll µs':>9}{'drain ns':>10}{'write ns':>10}"
)


class FilledRings(Rings):
    """Rings of the sizes that `record` chooses, with a block of records for each CPU's first."""

    def __init__(self, cpus: int) -> None:
        sizes = RingSizes.choose(cpus)
        buffer = mmap.mmap(-1, cpus * sizes.area_bytes)
        super().__init__(buffer, cpus, sizes, Barrier())
        self._next = 0
        for cpu in range(cpus):
            block, self.records = _block(cpu)
            base = cpu * sizes.area_bytes + sizes.offset(0)
            for at in range(0, sizes.ring_bytes, BLOCK_BYTES):
                self._bytes[base + at : base + at + BLOCK_BYTES] = block

    def publish(self) -> None:
        """Have a block more in the task ring of each CPU."""
        self._next += BLOCK_BYTES
        self._heads[:, 0] = self._next


def _block(seed: int) -> tuple[bytes, int]:
    """Return a block full of lives, their fields at random, and its number of records."""
    random = np.random.default_rng(seed)
    data, count = b"", 0
    while len(data) + max(BY_KIND[kind].size for kind in LIFE) <= BLOCK_BYTES:
        kind = LIFE[count % len(LIFE)]
        head = int(kind) << TIMESTAMP_BITS | 1_000_000 + 700 * count
        fields = random.integers(0, 1 << 30, BY_KIND[kind].size // 8 - 1, dtype=np.uint64)
        data += head.to_bytes(8, "little") + fields.tobytes()
        count += 1
    pad = int(Kind.PAD) << TIMESTAMP_BITS | 1_000_000 + 700 * count
    return (data + pad.to_bytes(8, "little")).ljust(BLOCK_BYTES, b"\0")[:BLOCK_BYTES], count


def least(act: Callable[[], object], rounds: int) -> float:
    """Return the least CPU time of a call, in ns."""
    took = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        act()
        took.append(time.thread_time_ns() - began)
    return float(min(took))


def measure(cpus: int, rounds: int) -> str:
    rings, losses = FilledRings(cpus), LossCounters(0)
    sizes = rings.sizes

    def idle() -> None:
        rings.fill()
        rings.drain()
        losses.sample_rings(rings.lost(), rings.too_deep(), time.monotonic_ns())

    idle_ns = least(idle, rounds)
    polls: list[float] = []
    segments: list[Segment] = []
    for _ in range(rounds):
        rings.publish()
        polls.append(least(lambda: segments.extend(rings.drain()), 1))
    records = cpus * rings.records
    log = LogWriter(io.BytesIO(), {}, level=1)
    clock = dict.fromkeys(("monotonic", "boottime", "realtime", "uncertainty"), 10**9)
    # As many polls as a chunk of about 4 MiB has.
    many = min(rounds, max(1, 4 * MEBIBYTE // (cpus * BLOCK_BYTES)))

    def write() -> None:
        log.write_chunk(segments[: many * cpus], clock)
        Meter().add(segments[: many * cpus])

    write_ns = least(write, 3) / (many * records)
    poll_ns = min(polls)
    return (
        f"{cpus:>5}{sizes.ring_bytes >> 10:>10}{cpus * sizes.area_bytes >> 20:>9}"
        f"{idle_ns / 1e3:>9.0f}{100 * idle_ns / 1e9 / NAP:>9.3f}"
        f"{poll_ns / 1e3:>9.0f}{poll_ns / records:>10.1f}{write_ns:>10.1f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cpus", type=numbers, default=[2, 8, 64, 512])
    parser.add_argument("--rounds", type=int, default=20, help="of which the least counts")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the recorder does
    print(HEAD)
    for cpus in arguments.cpus:
        print(measure(cpus, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
