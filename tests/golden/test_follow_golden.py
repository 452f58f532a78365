# SPDX-License-Identifier: Apache-2.0
"""What is said of followed objects, of logs made by hand; `--update` rewrites the files."""

import io
from pathlib import Path

import pytest

from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.follow_logs import FollowLog
from tests.support.follow_scenes import LOST, by_functions, by_tracepoints
from tests.support.golden_files import Expect
from tests.support.perfetto_check import read, render

EXPECTED = Path(__file__).parent / "follow"
FUNCTIONS = {
    "trees.txt": ("tree", "--slowest", "20"),
    "merged.txt": ("tree",),
    "functions.txt": ("tree", "--functions"),
    "folded.txt": ("tree", "--folded"),
    "life-4.json": ("tree", "--life", "4", "--json"),
    "lives.csv": ("export", "--what", "lives"),
    "spans.csv": ("export", "--what", "spans"),
    "hits.csv": ("export", "--what", "hits"),
    "dump.txt": ("dump", "-n", "12"),
    "info.txt": ("info",),
}
TRACEPOINTS = {
    "packets.txt": ("tree",),
    "packet.txt": ("tree", "--life", "3"),
    "packets-functions.txt": ("tree", "--functions"),
    "packets-folded.txt": ("tree", "--folded"),
}


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Cli:
    monkeypatch.setenv("COLUMNS", "140")
    return Cli(capsys)


def written(path: Path, log: FollowLog) -> Path:
    end = {"sites": {"follow": {"born": 9, "ended": 7, "full": 3, "unmatched": 2}}}
    path.write_bytes(log.data(losses=[LOST] if log.kind == "request" else [], end=end))
    return path


def compare(name: str, text: str, expect: Expect) -> None:
    """The text is that on file, but for spaces at the ends of lines."""
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    expect(EXPECTED / name, text)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_lives_of_functions(name: str, cli: Cli, tmp_path: Path, expect: Expect) -> None:
    # GIVEN lives with functions nested, recursive, interrupted, requeued, lost and unfinished
    log = written(tmp_path / "rq.biotrail", by_functions())
    # WHEN a command is asked  THEN it says what is on file
    done = cli(*FUNCTIONS[name], log)
    assert done.status == 0
    compare(name, done.out.replace(str(tmp_path), "."), expect)


@pytest.mark.parametrize("name", TRACEPOINTS)
def test_lives_of_tracepoints(name: str, cli: Cli, tmp_path: Path, expect: Expect) -> None:
    # GIVEN packets of which only tracepoints were recorded, with the stack at each
    log = written(tmp_path / "skb.biotrail", by_tracepoints())
    # WHEN a command is asked  THEN it says what is on file
    done = cli(*TRACEPOINTS[name], log)
    assert done.status == 0
    compare(name, done.out.replace(str(tmp_path), "."), expect)


def test_the_trace_of_lives(tmp_path: Path, expect: Expect) -> None:
    # GIVEN the same lives of functions  WHEN converted  THEN the trace is that on file
    trace = Trace(io.BytesIO(written(tmp_path / "rq.biotrail", by_functions()).read_bytes()))
    out = io.BytesIO()
    convert(trace.lifecycles(), trace.context, out)
    compare("perfetto.txt", render(read(out.getvalue())), expect)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files  THEN each belongs to a test
    found = {path.name for path in EXPECTED.iterdir()}
    assert found == {*FUNCTIONS, *TRACEPOINTS, "perfetto.txt"}
