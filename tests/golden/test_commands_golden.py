# SPDX-License-Identifier: Apache-2.0
"""What commands say of known logs, as people see it; `--update` rewrites what is expected."""

import io
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.payloads import PairCounts
from tests.scenarios.causes import FLOOD
from tests.scenarios.tools import events_of
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.follow_logs import FollowLog
from tests.support.follow_scenes import LOST, by_functions, by_tracepoints
from tests.support.golden_files import Expect
from tests.support.light_logs import FLUSH, PREFLUSH, WRITE, Light, write_log
from tests.support.paths import DATA, SAMPLE
from tests.support.perfetto_check import read, render
from tests.support.site_logs import SiteLog

HERE = Path(__file__).parent
TRACE = "ext4-on-loop.pftrace"
MS = 1_000_000


def copied(path: Path, directory: Path) -> Path:
    """A file of tests/data, in the directory in which commands run."""
    shutil.copy(DATA / path, directory)
    return Path(path.name)


def captured(name: str, directory: Path) -> Path:
    events = events_of(FLOOD) if name == "flood" else captures.load(name)
    return captures.write_log(directory / "a.biotrail", events)


def light(directory: Path) -> Path:
    """A light log with every kind of request."""
    no_bio = {"sector": (1 << 64) - 1, "bytes": 0, "opf": FLUSH, "bios": 0}
    slots = [0xFFFF888000001000 + n * 384 for n in range(8)]
    rows = [
        Light((n + 2) * MS, n * MS, n * MS + 100_000, sector=n * 8, rq=slot)
        for n, slot in enumerate(slots)
    ]
    rows += [
        Light(12 * MS, 9 * MS, 10 * MS, sector=800, bytes=65536, opf=WRITE, bios=16),
        Light(13 * MS, 11 * MS, None, sector=900),
        Light(14 * MS, None, 13 * MS, sector=908),
        Light(15 * MS, 14 * MS, 14 * MS + 1000, **no_bio),
        Light(16 * MS, 13 * MS, None, opf=WRITE | PREFLUSH, bytes=0),
        Light(17 * MS, 16 * MS, 16 * MS + 1000, sector=1000, opf=WRITE, status=10),
    ]
    write_log(directory / "light.biotrail", rows)
    return Path("light.biotrail")


def followed(name: str, make: Callable[[], FollowLog], directory: Path) -> Path:
    """Lives of objects by functions (nested, recursive, interrupted, lost …) or by tracepoints."""
    log, path = make(), directory / name
    end = {"sites": {"follow": {"born": 9, "ended": 7, "full": 3, "unmatched": 2}}}
    path.write_bytes(log.data(losses=[LOST] if log.kind == "request" else [], end=end))
    return path


_UNPAIRED: PairCounts = {"begins_open": 2, "ends_alone": 1, "overwritten": 3, "full": 0}


def paired(directory: Path) -> Path:
    """Softirqs on two CPUs, requests that overlap at one key, work without --by."""
    log = SiteLog(counts={"pairs": [{"name": "softirq", "pairs": 5, **_UNPAIRED}]})
    for number in range(4):
        at = 10_000 * number
        log.pair(at, at + 1_500 * (number + 1), 1, number % 2, by=1, cpu=number % 2)
    log.pair(5_000, 90_000, 4, 0, by=4, tid=0, comm=b"swapper/0")
    device = 254 << 20
    log.pair(1_000, 61_000, device, 2048, pair=1)
    log.pair(2_000, 52_000, device, 2048, pair=1, cpu=1)
    log.pair(3_000, 3_700, 0xFFFF888000001000, pair=2, tid=7, comm=b"kworker/0:1")
    path = directory / "pairs.biotrail"
    path.write_bytes(log.data(events={"set": "sites", "letters": ["p"]}))
    return path


@dataclass(frozen=True)
class Told:
    """Commands on a log: the file of what each says, below `folder`, and its words."""

    folder: str
    log: Callable[[Path], Path]
    """Makes the log in a directory, and gives its path."""
    commands: dict[str, str]
    columns: int = 100
    here: str = ""
    """What stands in the files for the directory; then not for spaces at the ends of lines."""


TABLES = {
    "info.txt": "info",
    "report.txt": "report",
    "slow.txt": "slow -n 3",
    "bios.txt": "export --what bios --format csv",
    "requests.txt": "export --what requests --format csv",
}
OF_FUNCTIONS = partial(followed, "rq.biotrail", by_functions)
TOLD = (
    Told(
        "ftrace",
        partial(copied, Path("ftrace/small.dat")),
        {
            "dat-info.txt": "info",
            "dat-report.txt": "report",
            "dat-bios.txt": "export --what bios --format csv",
        },
    ),
    Told(
        "ftrace",
        partial(copied, Path("ftrace/small.trace.txt")),
        {"text-info.txt": "info", "text-report.txt": "report"},
    ),
    *(
        Told("ftrace", partial(copied, Path(f"ftrace/lossy.{ending}")), {f"lossy-{name}": "info"})
        for ending, name in (
            ("dat", "dat-info.txt"),
            ("trace.txt", "text-info.txt"),
            ("report.txt", "report-info.txt"),
        )
    ),
    Told(
        "blame",
        partial(copied, Path("kernels/5.10.biotrail")),
        {"by-owner.txt": "blame", "by-process.json": "blame --by process --json"},
        columns=140,
    ),
    Told("perf_input", partial(copied, Path("perf/ext4-on-loop.data")), TABLES),
    Told("perfetto_input", partial(copied, Path("perfetto", TRACE)), TABLES),
    Told(
        "light",
        light,
        {
            "report.txt": "report",
            "info.txt": "info",
            "slow.txt": "slow -n 3",
            "hist.txt": "hist --stage D2C",
            "dump.txt": "dump",
            "requests.txt": "export --what requests --format csv",
        },
    ),
    *(
        Told("hist", partial(captured, name), {f"{file}.txt": f"hist {options}"}, columns=80)
        for file, name, options in (
            ("latency", "ext4-journal-on-loop", ""),
            ("stage", "plugged-merge-loop", "--stage M2D --in ns"),
            ("size", "split-write-loop", "--size"),
            ("depth", "kyber-loop-and-virtio", "--depth --linear 1"),
        )
    ),
    Told(
        "hist",
        lambda _: SAMPLE,
        {
            "linear.txt": "hist --linear 1ms --op read",
            "heatmap.txt": "hist --heatmap --stage D2C",
        },
        columns=80,
    ),
    *(
        Told("slow", partial(captured, name), {f"{name}.txt": "slow --top 2"}, columns=0)
        for name in (
            *("bio-based-zram", "ext4-journal-on-loop", "partial-completion-error-loop"),
            *("plugged-merge-loop", "split-write-loop", "flood"),
        )
    ),
    Told(
        "follow",
        OF_FUNCTIONS,
        {
            "trees.txt": "tree --slowest 20",
            "merged.txt": "tree",
            "functions.txt": "tree --functions",
            "folded.txt": "tree --folded",
            "life-4.json": "tree --life 4 --json",
            "lives.csv": "export --what lives",
            "spans.csv": "export --what spans",
            "hits.csv": "export --what hits",
            "dump.txt": "dump -n 12",
            "info.txt": "info",
        },
        140,
        ".",
    ),
    Told(
        "follow",
        partial(followed, "skb.biotrail", by_tracepoints),
        {
            "packets.txt": "tree",
            "packet.txt": "tree --life 3",
            "packets-functions.txt": "tree --functions",
            "packets-folded.txt": "tree --folded",
        },
        140,
        ".",
    ),
    Told(
        "pairs",
        paired,
        {
            "report.txt": "report",
            "report.json": "report --json",
            "hist.txt": "hist",
            "hist-us.json": "hist --in us --json",
            "slow.txt": "slow -n 4",
            "slow.json": "slow -n 2 --over 5us --json",
            "export.csv": "export --what pairs",
            "dump.txt": "dump",
            "info.txt": "info",
        },
        140,
        "DIR",
    ),
)
ALL = {f"{told.folder}/{file}": (told, file) for told in TOLD for file in told.commands}
TRACES = {"follow/perfetto.txt": OF_FUNCTIONS, "pairs/perfetto.txt": paired}
TRACKS = "perfetto_input/tracks.txt"


def stripped(text: str) -> str:
    return "".join(line.rstrip() + "\n" for line in text.splitlines())


@pytest.mark.parametrize("name", ALL)
def test_what_commands_say(
    name: str, cli: Cli, tmp_path: Path, expect: Expect, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log, and a terminal of so many columns
    told, file = ALL[name]
    monkeypatch.chdir(tmp_path)
    if told.columns:
        monkeypatch.setenv("COLUMNS", str(told.columns))
    log = told.log(tmp_path)
    # WHEN a command reads it
    done = cli(*told.commands[file].split(), log)
    # THEN what it says is on file
    assert done.status == 0, done.err
    text = stripped(done.out.replace(str(tmp_path), told.here)) if told.here else done.out
    expect(HERE / name, text)


@pytest.mark.parametrize("name", TRACES)
def test_traces_of_pairs_and_lives(name: str, tmp_path: Path, expect: Expect) -> None:
    # GIVEN the same logs of sites  WHEN they are converted  THEN the traces are those on file
    trace, out = Trace(TRACES[name](tmp_path)), io.BytesIO()
    convert(trace.lifecycles(), trace.context, out)
    expect(HERE / name, stripped(render(read(out.getvalue()))))


def test_a_perfetto_trace_and_its_bios(cli: Cli, tmp_path: Path, expect: Expect) -> None:
    # GIVEN a Perfetto trace of the kernel's own events
    source, both = DATA / "perfetto" / TRACE, tmp_path / "both.pftrace"
    # WHEN it is converted
    assert cli("convert", source, "-o", both).status == 0
    # THEN its own bytes come first, unchanged, and what is made of them is on file
    data, theirs = both.read_bytes(), source.read_bytes()
    assert data.startswith(theirs)
    expect(HERE / TRACKS, render(read(data[len(theirs) :])))


def test_ftraces_text_tells_what_its_file_tells() -> None:
    # GIVEN what is expected of a trace.dat and of its text
    texts = [(HERE / "ftrace" / f"{form}-info.txt").read_text() for form in ("dat", "text")]
    # THEN the number of events and the certainty of all I/O are the same
    one, other = (
        [line for line in text.splitlines() if line[:3] in ("eve", "  Q", "  C", "cer", "   ")]
        for text in texts
    )
    assert one == other


def test_nothing_else_is_expected() -> None:
    # GIVEN the files  THEN each belongs to a test
    folders = {HERE / told.folder for told in TOLD}
    found = {f"{path.parent.name}/{path.name}" for folder in folders for path in folder.iterdir()}
    assert found == {*ALL, *TRACES, TRACKS}
