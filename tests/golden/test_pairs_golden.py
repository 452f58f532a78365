# SPDX-License-Identifier: Apache-2.0
"""What is said of pairs of events, of a log made by hand; `--update` rewrites the files."""

import io
from pathlib import Path

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.payloads import PairCounts
from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.perfetto_check import read, render
from tests.support.site_logs import SiteLog

EXPECTED = Path(__file__).parent / "pairs"
SAID = {
    "report.txt": ("report",),
    "report.json": ("report", "--json"),
    "hist.txt": ("hist",),
    "hist-us.json": ("hist", "--in", "us", "--json"),
    "slow.txt": ("slow", "-n", "4"),
    "slow.json": ("slow", "-n", "2", "--over", "5us", "--json"),
    "export.csv": ("export", "--what", "pairs"),
    "dump.txt": ("dump",),
    "info.txt": ("info",),
}
_UNPAIRED: PairCounts = {"begins_open": 2, "ends_alone": 1, "overwritten": 3, "full": 0}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "140")
    return Cli(capsys)


def pairs() -> SiteLog:
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
    return log


def written(path: Path) -> Path:
    path.write_bytes(pairs().data(events={"set": "sites", "letters": ["p"]}))
    return path


def compare(name: str, text: str, expect: Expect) -> None:
    """The text is that on file, but for spaces at the ends of lines."""
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    expect(EXPECTED / name, text)


@pytest.mark.parametrize("name", SAID)
def test_pairs_of_events(name: str, cli: Cli, tmp_path: Path, expect: Expect) -> None:
    # GIVEN a log of three declared pairs  WHEN a command reads it
    command, *options = SAID[name]
    log = written(tmp_path / "pairs.biotrail")
    done = cli(command, *options, log)
    # THEN it says what is on file
    assert done.status == 0, done.err
    compare(name, done.out.replace(str(tmp_path), "DIR"), expect)


def test_pairs_in_perfetto(tmp_path: Path, expect: Expect) -> None:
    # GIVEN the same log  WHEN it is converted
    trace = Trace(written(tmp_path / "pairs.biotrail"))
    out = io.BytesIO()
    convert(trace.lifecycles(), trace.context, out)
    # THEN there is a track for each key, with lanes where pairs overlap
    compare("perfetto.txt", render(read(out.getvalue())), expect)
