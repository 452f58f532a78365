# SPDX-License-Identifier: Apache-2.0
"""Live truth: real loads, associated twice, by identity and by intervals alone.

Prints a table, a row per load, and exits 1 when a bound of docs/lifecycles.md does not hold:
every bio's sectors are served exactly once, stages add up to the latency, intervals agree
with identity on at least 99.8 %, and every disagreement is marked.
"""

import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import click
import numpy as np

from biotrail.converters.events.context import Context
from biotrail.converters.events.tables import NEVER, Bios, Certainty, Edges, Requests, Stages
from biotrail.converters.lifecycles.account import Account, Reason
from biotrail.converters.pipeline import Trace
from biotrail.recorder.host.devices import resolve
from biotrail.recorder.session.session import RecordOptions, record
from tests.support import devices

AGREE, MARKED = 0.998, 0.01
SECTOR = 512
SCHEDULERS = ("none", "mq-deadline", "bfq", "kyber")
COMPARED = ("queue", "issue", "complete", "merge", "fragments", "requests", "requeues", "status")
SEEN = (Certainty.EXACT, Certainty.INTERVAL)


@dataclass
class Tables:
    """All of one log, associated in one way."""

    bios: Bios
    requests: Requests
    edges: Edges
    stages: Stages
    account: Account
    context: Context


@dataclass
class Row:
    """What one load showed. Shares are of bios. smallest: bytes of a bio."""

    load: str
    bios: int
    events: int
    not_seen: int
    served_wrong: int
    stages_wrong: int
    left_out: int
    reads: int
    writes: int
    discards: int
    flushes: int
    smallest: int
    agree: float
    unmarked: int
    marked: float

    @property
    def holds(self) -> bool:
        right = not (self.served_wrong or self.stages_wrong or self.unmarked)
        mixed = min(self.reads, self.writes, self.discards, self.flushes) > 0
        return right and mixed and self.agree >= AGREE and self.marked <= MARKED


def tables(log: Path, associate: str) -> Tables:
    trace = Trace(log, associate)
    windows = list(trace.lifecycles())
    return Tables(
        Bios.concatenate([w.bios for w in windows]),
        Requests.concatenate([w.requests for w in windows]),
        Edges.concatenate([w.edges for w in windows]),
        Stages.concatenate([w.bio_stages for w in windows]),
        trace.account,
        trace.context,
    )


def served_wrong(found: Tables) -> int:
    """Complete bios whose pieces do not cover each of their bytes exactly once."""
    bios, edges = found.bios, found.edges
    whole = (bios.complete != NEVER) & (bios.queue != NEVER) & (bios.fragments > 0)
    order = np.argsort(bios.number)
    row = order[np.searchsorted(bios.number[order], edges.bio)]
    served = np.bincount(row, edges.bytes, len(bios)).astype(np.int64)
    by_place = np.lexsort((edges.sector, edges.bio))
    bio, first = edges.bio[by_place], edges.sector[by_place].astype(np.int64)
    last = first + edges.bytes[by_place] // SECTOR
    overlap = (bio[1:] == bio[:-1]) & (first[1:] < last[:-1])
    return int((whole & (served != bios.bytes)).sum() + overlap.sum())


def stages_wrong(found: Tables) -> int:
    bios, stages = found.bios, found.stages
    order = np.argsort(bios.number)
    row = order[np.searchsorted(bios.number[order], stages.owner)]
    # Integers: a float loses nanoseconds after 104 days.
    total = np.zeros(len(bios), dtype=np.int64)
    np.add.at(total, row, stages.end - stages.start)
    whole = (bios.complete != NEVER) & (bios.queue != NEVER)
    return int((whole & (total != bios.complete - bios.queue)).sum())


def compare(load: str, log: Path) -> Row:
    """Associates a log both ways."""
    exact, found = tables(log, "identity"), tables(log, "intervals")
    seen = exact.bios.take((exact.bios.queue != NEVER) & (exact.bios.complete != NEVER))
    order = np.argsort(found.bios.number)
    at = np.searchsorted(found.bios.number[order], seen.number)
    other = found.bios.take(order[np.minimum(at, len(order) - 1)])
    same = other.number == seen.number
    for name in COMPARED:
        same &= getattr(other, name) == getattr(seen, name)
    plain = np.isin(other.certainty, SEEN)
    reasons = exact.account.by_reason()
    counts = _operations(exact)
    return Row(
        load,
        len(exact.bios),
        exact.account.total,
        exact.account.completions_not_seen,
        served_wrong(exact),
        stages_wrong(exact) + stages_wrong(found),
        sum(n for reason, n in reasons.items() if reason != Reason.USED),
        *(counts.get(name, 0) for name in ("read", "write", "discard", "flush")),
        int(exact.bios.bytes[exact.bios.bytes > 0].min(initial=1 << 31)),
        float(same.mean()),
        int((~same & plain).sum()),
        float((~plain).mean()),
    )


def _operations(found: Tables) -> dict[str, int]:
    """How many bios of each operation there are; writes without data are flushes."""
    codes, names = found.context.op_codes(found.bios.opf)
    names = [*names, *({"write"} - set(names))]
    counts = dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))
    empty = int(((found.bios.bytes == 0) & (codes == names.index("write"))).sum())
    return counts | {"write": counts.get("write", 0) - empty, "flush": empty}


def jobs(path: str, size: int, seconds: int, trim: bool) -> list[str]:
    """A mix: random and sequential, buffered and direct, fsync, discard, 512 B to 8 MiB.

    One job after the other joins in, up to four. trim: path is a device; a file's holes
    become discards when its file system is mounted so.
    """
    region = size // 4
    shared = [
        f"--filename={path}",
        f"--size={region}",
        "--time_based",
        "--randrepeat=0",
        "--norandommap",
        "--group_reporting",
    ]
    hole = ["--ioengine=falloc", "--rw=randtrim", "--bs=1m", "--rate_iops=40"]
    discard = ["--direct=1", "--rw=randtrimwrite", "--bsrange=4k-1m", "--rate_iops=200"]
    asynchronous = "--ioengine=libaio"
    mix = [
        ["small", asynchronous, "--direct=1", "--rw=randrw", "--bsrange=512-64k", "--iodepth=8"],
        ["big", asynchronous, "--direct=1", "--rw=rw", "--bsrange=64k-8m", "--iodepth=2"],
        ["cached", "--rw=randrw", "--percentage_random=50", "--bs=4k", "--fsync=32"],
        ["trim", *([asynchronous, *discard] if trim else hole)],
    ]
    result = ["fio", "--output=/dev/null"]
    for number, (name, *job) in enumerate(mix):
        later = seconds * 1000 * number // (2 * len(mix))
        when = [f"--startdelay={later}ms", f"--runtime={seconds * 1000 - later}ms"]
        result += [f"--name={name}", *job, *shared, *when, f"--offset={number * region}"]
    return result


def measure(load: str, device: str, command: list[str]) -> Row:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        log = Path(directory) / "load.biotrail"
        options = RecordOptions(
            "live agreement",
            sys.argv,
            str(log),
            devices=[device],
            command=tuple(command),
        )
        summary = record(options)
        if summary.command_status:
            raise RuntimeError(f"{load}: fio ended with status {summary.command_status}")
        return compare(load, log)


def rows(seconds: int) -> Iterator[Row]:
    size = 256 * devices.MEBIBYTE
    for scheduler in SCHEDULERS:
        with devices.loop(size) as loop:
            queue = Path(f"/sys/block/{loop.name}/queue/scheduler")
            if scheduler not in queue.read_text():
                continue
            queue.write_text(scheduler)
            yield measure(f"loop, {scheduler}", loop.name, jobs(loop.path, size, seconds, True))
            queue.write_text("none")
    with tempfile.TemporaryDirectory(dir=".") as directory:
        path = Path(directory) / "file"
        path.write_bytes(b"")
        major, minor = divmod(resolve(_mount_of(path))[0], 1 << 20)
        disk = Path(f"/sys/dev/block/{major}:{minor}").resolve().name
        yield measure(
            f"system disk, {disk}", _mount_of(path), jobs(str(path), size, seconds, False)
        )


def _mount_of(path: Path) -> str:
    found = path.resolve()
    while not found.is_mount():
        found = found.parent
    return str(found)


@click.command()
@click.option("--seconds", default=5, show_default=True, help="Length of each load.")
def main(seconds: int) -> None:
    """Print the table; exit 1 when a bound does not hold."""
    names = [f.name for f in fields(Row)]
    click.echo("| " + " | ".join(names) + " |\n|" + "---|" * len(names))
    good = True
    for row in rows(seconds):
        cells = [getattr(row, n) for n in names]
        shown = [f"{c:.3%}" if isinstance(c, float) else str(c) for c in cells]
        click.echo("| " + " | ".join(shown) + " |" + ("" if row.holds else "  ← does not hold"))
        good &= row.holds
    sys.exit(not good)


if __name__ == "__main__":
    main()
