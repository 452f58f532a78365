# SPDX-License-Identifier: Apache-2.0
"""A small log with the whole path in every timeline and report; `--update` rewrites the files."""

import io
import json
from pathlib import Path

import pytest

from biotrail.converters.outputs.otf2.convert import convert as to_otf2
from biotrail.converters.outputs.perfetto.convert import convert as to_perfetto
from biotrail.converters.pipeline import Trace
from tests.support import path_sample
from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect
from tests.support.otf2_archives import Call, calls
from tests.support.perfetto_check import read, render
from tests.support.stack_logs import START

EXPECTED = Path(__file__).parent / "path"
REPORTS = {
    "report.txt": ("report", "--limit", "0"),
    "by-call.txt": ("report", "--limit", "0", "--by", "call"),
    "by-writer.txt": ("report", "--limit", "0", "--by", "writer"),
    "report.json": ("report", "--json"),
}
WINDOWS = [1, 250_000]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return path_sample.write(tmp_path / "a.biotrail")


@pytest.mark.parametrize("size", WINDOWS)
def test_the_trace(log: Path, size: int, expect: Expect) -> None:
    # GIVEN the log, whole or in windows / WHEN it is converted to Perfetto / THEN it is as expected
    trace, out = Trace(log), io.BytesIO()
    to_perfetto(trace.lifecycles(size), trace.context, out)
    expect(EXPECTED / "perfetto.txt", render(read(out.getvalue())))


@pytest.mark.parametrize("size", WINDOWS)
def test_the_archive(log: Path, size: int, tmp_path: Path, expect: Expect) -> None:
    # GIVEN the log, whole or in windows / WHEN it is converted to OTF2 / THEN it is as expected
    otf2 = pytest.importorskip("otf2")
    trace = Trace(log)
    summary = to_otf2(trace.lifecycles(size), trace.context, tmp_path / "archive")
    lines = []
    with otf2.reader.open(str(summary.anchor)) as archive:
        known = archive.definitions
        lines += sorted(
            f"location {place.name!r} of {place.group.name!r} in "
            f"{place.group.system_tree_parent.name!r}: {place.number_of_events} events"
            for place in known.locations
        )
        lines += sorted(
            f"region {region.name!r}: {region.description}, {region.region_role}"
            for region in known.regions
        )
        lines += sorted(
            f"handle {handle.name!r} {handle.io_paradigm.identification} "
            f"{handle.file.name if handle.file else '-'}"
            for handle in known.io_handles
        )
    for place, mine in sorted(calls(summary.anchor).items()):
        lines.append(place)
        lines += [line for call in mine for line in call_lines(call)]
    expect(EXPECTED / "otf2.txt", "\n".join(lines) + "\n")


def call_lines(call: Call) -> list[str]:
    """A call and its waits: when it began since START, and how long it took."""
    texts = [f"  {call.begin - START}+{call.end - call.begin} {call.name} {call.asked} {call.told}"]
    if call.operation:
        handle, mode, asked, done = call.operation
        texts.append(f"    {mode} via {handle!r}: {done} of {asked} bytes")
    texts += [f"    {begin - START}+{end - begin} {name}" for name, begin, end in call.waits]
    return texts


@pytest.mark.parametrize("name", REPORTS)
def test_the_report(
    name: str,
    log: Path,
    expect: Expect,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # GIVEN the log / WHEN a report of it is printed / THEN it is as expected
    monkeypatch.setenv("COLUMNS", "160")
    text = Cli(capsys)(*REPORTS[name], log).out
    if name.endswith(".json"):
        assert json.loads(text)["calls"]
    text = "".join(line.rstrip() + "\n" for line in text.splitlines())
    expect(EXPECTED / name, text)


def test_nothing_else_is_expected() -> None:
    # GIVEN the files / THEN each belongs to a test
    assert {path.name for path in EXPECTED.iterdir()} == {"perfetto.txt", "otf2.txt", *REPORTS}
