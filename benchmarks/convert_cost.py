# SPDX-License-Identifier: Apache-2.0
"""How fast logs are converted, in how much memory, beside blkparse, btt and perf script.

    python -m benchmarks.convert_cost [--quick] [--sizes 1,10,100] [--loads random-reads,...]
        [--tools tables,...] [--rounds N] [--directory DIR] [--json FILE] [--docs]
    python -m benchmarks.convert_cost --from FILE --docs
    python -m benchmarks.convert_cost --remove

Each load is recorded once, as root, and enlarged by repetition to some millions of events. DIR, by
default in the user's cache, keeps `LOAD.biotrail`, `LOAD.perf.data` (another run of the same load,
by `perf record -e 'block:*'`), and the logs that `enlarged_logs` makes of the first. Every
conversion is a process of its own, tool after tool, round after round, so that what else the
machine does meets all of them: medians of CPU time, all threads, from start to exit. blkparse and
btt read the same events as blktrace's files, up to 10 million; perf script reads perf.data of
another run of the same load, as it was recorded. Logs of more than 10 million events are made of
`--long` loads alone.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.convert_tools import TOOLS, Given, Tool, Used, blktrace_of, events_of_perf, run
from benchmarks.cost_figures import numbers, words
from benchmarks.cost_tools import BIOTRAIL, ROOT
from tests.support.devices import LoopDevice, fio_arguments, loop, make_ext4, unmount
from tests.support.devices import run as run_command

MILLION = 1_000_000
PEERS_UP_TO = 10
"""Millions of events of the largest log that blktrace's files are made of: 50 bytes an event."""
ROUNDS = {1: 5, 10: 3}
DOCS = ROOT / "docs" / "performance.md"


@dataclass(frozen=True)
class Row:
    """A tool at one log; medians of its rounds. cpu: s; max_rss, size: bytes; millions: asked."""

    load: str
    millions: int
    tool: str
    events: int
    rounds: int
    cpu: float
    max_rss: int
    size: int

    @property
    def rate(self) -> float:
        """Millions of events per second of CPU time."""
        return self.events / self.cpu / MILLION

    def __str__(self) -> str:
        return (
            f"  {self.tool:18}{self.events:14,}{self.rate:9.2f}{1e9 * self.cpu / self.events:9,.0f}"
            f"{self.max_rss / (1 << 20):9.0f}{self.size / self.events:9.1f}"
        )


HEAD = f"  {'':18}{'events':>14}{'M/s':>9}{'ns/event':>9}{'MiB':>9}{'B/event':>9}"


# The loads, recorded once and kept: fio on a loop device in memory.

_SIZE = "256m"
_PERF_BUFFER_PAGES = 16384


@dataclass(frozen=True)
class Load:
    """What fio does. queue: files of the device's queue/ in sysfs, and what is written there.

    options: of fio, with as many I/Os as make some 200,000 to 300,000 events.
    """

    name: str
    means: str
    options: dict[str, object]
    queue: dict[str, str] = field(default_factory=dict)
    ext4: bool = False


_ASYNC = {"ioengine": "io_uring", "iodepth": 32, "norandommap": True}
_TOGETHER = {**_ASYNC, "iodepth_batch_submit": 32, "iodepth_batch_complete_min": 32}
LOADS = (
    Load(
        "random-reads",
        "random reads of 4 KiB, depth 32",
        {**_ASYNC, "rw": "randread", "bs": "4k", "io_size": "240m"},
    ),
    Load(
        "merged-writes",
        "4 KiB writes in order through the page cache, written back merged",
        {
            **{"rw": "write", "bs": "4k", "ioengine": "psync", "direct": False, "fdatasync": 1024},
            "loops": 2,
        },
        {"scheduler": "mq-deadline"},
    ),
    Load(
        "fsync-mix",
        "ext4: three reads to two writes of 16 KiB, fsync every 16 writes, four tasks",
        {
            **{"rw": "randrw", "rwmixread": 60, "bs": "16k", "ioengine": "psync", "direct": False},
            **{"fsync": 16, "numjobs": 4, "io_size": "300m", "norandommap": True, "size": "32m"},
            "invalidate": 1,
        },
        {"scheduler": "mq-deadline"},
        ext4=True,
    ),
    Load(
        "split-large",
        "direct reads of 4 MiB that the device takes in pieces of 64 KiB",
        {"rw": "randread", "bs": "4m", "ioengine": "io_uring", "iodepth": 8, "io_size": "4g"},
        {"max_sectors_kb": "64"},
    ),
    Load(
        "hot-sector",
        "reads of one block of 4 KiB, depth 32",
        {**_ASYNC, "rw": "randread", "bs": "4k", "size": "4k", "io_size": "240m"},
    ),
    Load(
        "all-merged",
        "direct 4 KiB writes in order, 32 in a batch, which merge under the plug",
        {**_TOGETHER, "rw": "write", "bs": "4k", "loops": 2},
        {"scheduler": "mq-deadline"},
    ),
)


def recorded(load: Load, directory: Path) -> Path:
    """Return the load's log, recorded now where it is not kept yet. Needs root and fio for that."""
    log = directory / f"{load.name}.biotrail"
    if not log.exists():
        _may_record()
        part = log.with_suffix(".part")
        with _target(load) as (device, command):
            words = [*BIOTRAIL, "record", "-q", "--force", "-d", device.name, "-o", str(part), "--"]
            subprocess.run([*words, *command], check=True, cwd=ROOT)
        part.replace(log)
    return log


def perf_data(load: Load, directory: Path) -> Path | None:
    """Return perf.data of another run of the load, recorded where it is not kept yet.

    None where perf is not installed. Raises subprocess.CalledProcessError where it cannot record.
    """
    data = directory / f"{load.name}.perf.data"
    if shutil.which("perf") is None:
        return None
    if not data.exists():
        _may_record()
        part = data.with_suffix(".part")
        with _target(load) as (device, command):
            only = f"dev == {device.dev}"
            words = ["perf", "record", "-q", "-a", "-m", str(_PERF_BUFFER_PAGES), "-o", str(part)]
            words += ["-e", "block:block_bio_*", "--filter", only]
            words += ["-e", "block:block_rq_*", "--filter", only, "--"]
            subprocess.run([*words, *command], check=True)
        part.replace(data)
    return data


def _may_record() -> None:
    if os.geteuid() != 0:
        sys.exit("convert_cost.py: recording the loads needs root")
    if shutil.which("fio") is None:
        sys.exit("convert_cost.py: needs fio: install it")


@contextmanager
def _target(load: Load) -> Iterator[tuple[LoopDevice, list[str]]]:
    """Yield the load's device, and fio's command line. Device and file system are gone after it."""
    with ExitStack() as stack:
        device = stack.enter_context(loop(size=256 << 20))
        for name, value in load.queue.items():
            (Path("/sys/block") / device.name / "queue" / name).write_text(value)
        path, options = device.path, {"size": _SIZE, **load.options}
        if load.ext4:
            make_ext4(device.path)
            where = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            run_command("mount", device.path, where)
            stack.callback(unmount, where)
            path = str(where / "file")
            options = {**options, "filename_format": f"{path}.$jobnum"}
        yield device, ["fio", "--output=/dev/null", *fio_arguments(path, **options)]


def main() -> None:
    arguments = _arguments()
    if arguments.remove:
        shutil.rmtree(arguments.directory, ignore_errors=True)
        return
    if arguments.given is not None:
        found = json.loads(arguments.given.read_text(encoding="utf-8"))
    else:
        found = _measured(arguments)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    if arguments.docs:
        write_docs(DOCS, found)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    loads, tools = [load.name for load in LOADS], [tool.name for tool in TOOLS]
    parser.add_argument("--sizes", type=numbers, default=[1, 10, 100], help="millions of events")
    parser.add_argument("--loads", type=words, default=loads, help=", ".join(loads))
    parser.add_argument("--long", type=words, default=loads[:1], help="for more than 10 million")
    parser.add_argument("--tools", type=words, default=tools, help=", ".join(tools))
    parser.add_argument("--rounds", type=int, help="default: 5 of 1, 3 of 10 million, else 1")
    parser.add_argument("--quick", action="store_true", help="1 million events, two rounds")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    kept = cache / "biotrail" / "bench-convert"
    parser.add_argument("--directory", type=Path, default=kept, help="keeps the logs")
    parser.add_argument("--remove", action="store_true", help="only remove the kept logs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--docs", action="store_true", help="put the tables into docs/")
    parser.add_argument("--from", dest="given", type=Path, metavar="FILE", help="figures of --json")
    arguments = parser.parse_args()
    for chosen, known in ((arguments.loads, loads), (arguments.tools, tools)):
        if unknown := set(chosen) - set(known):
            parser.error(f"there is no {', '.join(sorted(unknown))}: choose of {', '.join(known)}")
    if arguments.quick:
        vars(arguments).update(sizes=[1], rounds=arguments.rounds or 2)
    return arguments


def _measured(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure and print all that the arguments choose; return the machine, the date and rows."""
    from benchmarks.record_cost import describe

    arguments.directory = arguments.directory.absolute()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    print(describe(), HEAD, sep="\n", flush=True)
    rows: list[Row] = []
    try:
        for load in [known for known in LOADS if known.name in arguments.loads]:
            for millions in arguments.sizes:
                if millions > PEERS_UP_TO and load.name not in arguments.long:
                    continue
                print(f"{load.name}, {millions} M: {load.means}", flush=True)
                rows += _rows(load, millions, arguments)
    except KeyboardInterrupt:
        print("interrupted: the table ends here")
    return {
        "machine": describe(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "loads": {load.name: load.means for load in LOADS},
        "rows": [asdict(row) | {"rate": row.rate} for row in rows],
    }


def _rows(load: Load, millions: int, arguments: argparse.Namespace) -> Iterator[Row]:
    """Measure the tools at one log, in turn; print and yield their rows."""
    given = prepared(load, millions, arguments.directory, arguments.tools)
    rounds = arguments.rounds or ROUNDS.get(millions, 1)
    tools = [tool for tool in TOOLS if tool.name in arguments.tools]
    used: dict[Tool, list[Used]] = {}
    out = arguments.directory / "out"
    for _ in range(rounds):
        for tool in tools:
            if tool.name == "perf script" and millions != min(arguments.sizes):
                continue
            if (one := run(tool, given, out)) is not None:
                used.setdefault(tool, []).append(one)
    for tool, runs in used.items():
        row = Row(
            *(load.name, millions, tool.name, tool.events(given), len(runs)),
            cpu=statistics.median(one.cpu for one in runs),
            max_rss=max(one.max_rss for one in runs),
            size=runs[-1].size,
        )
        print(row, flush=True)
        yield row


def prepared(load: Load, millions: int, directory: Path, tools: Collection[str]) -> Given:
    """Return a load's log of so many million events and what the tools read, made where missing.

    The log is made by another process, whose memory is not that of those which this one starts.
    """
    log = directory / f"{load.name}-{millions}M.biotrail"
    short = recorded(load, directory)
    count = log.with_suffix(".events")
    if not log.exists() or not count.exists():
        given = ["benchmarks.enlarged_logs", short, str(millions * MILLION), log]
        made = subprocess.run(
            [sys.executable, "-m", *given], check=True, cwd=ROOT, capture_output=True, text=True
        )
        count.write_text(made.stdout, encoding="ascii")
    data = perf_data(load, directory) if "perf script" in tools else None
    blktrace = millions <= PEERS_UP_TO and {"btt", "blkparse", "blkparse -d + btt"} & set(tools)
    pair = blktrace_of(log) if blktrace else (None, None)
    events = int(count.read_text(encoding="ascii"))
    return Given(log, events, *pair, data, 0 if data is None else events_of_perf(data))


BEGIN = "<!-- made by `make bench-convert`; begin -->"
END = "<!-- made by `make bench-convert`; end -->"
_MIB = 1 << 20
Rows = Sequence[Mapping[str, Any]]


def write_docs(page: Path, found: Mapping[str, Any]) -> None:
    """Replace what is between the marks of a page by tables of what `convert_cost.py` found.

    Raises ValueError where the page has not both marks, once each.
    """
    text = page.read_text(encoding="utf-8")
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise ValueError(f"{page}: needs the lines {BEGIN} and {END} once")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    page.write_text(f"{before}{BEGIN}\n\n{section(found)}\n\n{END}{after}", encoding="utf-8")


def section(found: Mapping[str, Any]) -> str:
    """Return the text between the marks: the machine, loads, speed, memory and bytes."""
    rows: Rows = found["rows"]
    sizes = sorted({row["millions"] for row in rows})
    parts = [
        f"Measured {found['date'][:10]} on: {found['machine']}.",
        "\n".join(f"- `{name}`: {means}" for name, means in found["loads"].items()),
    ]
    for millions in sizes:
        some = [row for row in rows if row["millions"] == millions]
        number = ", ".join(str(n) for n in sorted({row["rounds"] for row in some}))
        parts.append(
            f"Logs of {millions} million events: millions of events per second of CPU time, "
            f"medians (rounds: {number}); in brackets the ratio to btt."
        )
        parts.append(_table(some, _speed))
    parts.append("Peak memory in MiB.")
    memory = lambda row, _: f"{row['max_rss'] / _MIB:.0f}"  # noqa: E731
    parts.append(_table(rows, memory, sized=True))
    parts.append("Bytes written per event.")
    each = lambda row, _: f"{row['size'] / row['events']:.1f}"  # noqa: E731
    parts.append(_table([row for row in rows if row["millions"] == sizes[0]], each))
    return "\n\n".join(parts)


def _speed(row: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]) -> str:
    """Return `2.35 (1.20)`: the rate, and its ratio to btt's, if that ran and is another's."""
    text = f"{row['rate']:.2f}"
    if "btt" in others and row["tool"] != "btt":
        text += f" ({row['rate'] / others['btt']['rate']:.2f})"
    return text


def _table(rows: Rows, cell: Any, *, sized: bool = False) -> str:
    """Return a table with a line per load (and size) and a column per tool; `-`: not measured."""
    tools = list(dict.fromkeys(row["tool"] for row in rows))
    lines: dict[tuple[str, int], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        lines.setdefault((row["load"], row["millions"]), {})[row["tool"]] = row
    head = ["load", *(["M events"] if sized else []), *tools]
    text = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for (load, millions), by_tool in lines.items():
        cells = [cell(by_tool[t], by_tool) if t in by_tool else "-" for t in tools]
        text.append("| " + " | ".join([load, *([str(millions)] if sized else []), *cells]) + " |")
    return "\n".join(text)


if __name__ == "__main__":
    main()
