# SPDX-License-Identifier: Apache-2.0
"""What `convert` says before it writes a trace that a browser does not open well."""

import io
import re
from pathlib import Path

import pytest

from biotrail.cli.converting import perfetto
from biotrail.converters.outputs.perfetto.convert import convert
from biotrail.converters.outputs.perfetto.names import Detail, Options
from biotrail.converters.outputs.perfetto.sizes import expected
from biotrail.converters.pipeline import Trace
from tests.support.cli_runner import Cli
from tests.support.cut_logs import write
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("expecting") / "log.biotrail"
    write(path, 300)
    return path


def sizes(text: str) -> list[float]:
    """Bytes that a text names, in its order."""
    units = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
    return [float(n) * units[unit] for n, unit in re.findall(r"([\d.]+) (GB|MB|kB)", text)]


def test_a_small_trace_is_no_matter(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN a log whose trace a browser opens well / WHEN it is converted THEN nothing is said
    assert cli("convert", log, "-o", tmp_path / "a.pftrace").err == ""


def test_a_large_trace_is_announced(
    cli: Cli, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a limit that the trace exceeds / WHEN it is converted
    monkeypatch.setattr(perfetto, "LARGE", 50_000)
    done = cli("convert", log, "-o", tmp_path / "a.pftrace")
    # THEN it is said how large it will be, and what makes it smaller, and it is written
    assert done.status == 0
    assert "a browser opens 50 kB comfortably" in done.err
    assert "--detail stages about" in done.err and "--detail bios about" in done.err
    assert "--detail full" not in done.err
    assert all(option in done.err for option in ("--from", "--slower-than", "--max-size", "-d"))
    # AND no less detail is offered where there is none, and a part makes it less
    least = cli("convert", "-f", "--detail", "bios", log, "-o", tmp_path / "a.pftrace")
    assert "--detail" not in least.err and "comfortably" in least.err
    # AND nothing is said of files that are small by request
    parts = cli("convert", "--max-size", "1M", log, "-o", tmp_path / "b.pftrace")
    assert parts.err == ""


def test_ftraces_events_are_reckoned(
    cli: Cli, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log / WHEN its requests are written as ftrace's events, too
    monkeypatch.setattr(perfetto, "LARGE", 1_000)
    plain, more = tmp_path / "a.pftrace", tmp_path / "b.pftrace"
    told = [
        sizes(cli("convert", log, "-o", plain).err)[0],
        sizes(cli("convert", "--ftrace", log, "-o", more).err)[0],
    ]
    # THEN the trace is expected to be larger by about what they take
    taken = more.stat().st_size - plain.stat().st_size
    assert told[1] - told[0] == pytest.approx(taken, rel=0.3)


def test_a_cut_is_reckoned_as_a_cut(
    cli: Cli, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a log / WHEN a tenth of its time is converted
    monkeypatch.setattr(perfetto, "LARGE", 1_000)
    whole = cli("convert", log, "-o", tmp_path / "a.pftrace")
    tenth = cli("convert", "--from", "60s", "--to", "90s", log, "-o", tmp_path / "b.pftrace")
    # THEN its trace is expected to be about a tenth
    assert sizes(tenth.err)[0] == pytest.approx(sizes(whole.err)[0] / 10, rel=0.3)


def test_of_a_pipe_nothing_is_said(log: Path) -> None:
    # GIVEN a log that comes by a pipe / WHEN its first window is there THEN its share is unknown
    class Pipe(io.RawIOBase):
        def __init__(self) -> None:
            self.data = io.BytesIO(log.read_bytes())

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: bytearray) -> int:
            return self.data.readinto(buffer)

    from biotrail.cli.options.cuts import Cut, cut_of

    source = cut_of(lambda: Trace(io.BufferedReader(Pipe())), Cut())
    window = next(w for w in source.trace.lifecycles() if len(w.bios))
    assert perfetto.share_read(source, window) is None


@pytest.mark.parametrize("detail", list(Detail))
def test_what_is_expected_is_about_what_comes(detail: Detail) -> None:
    # GIVEN a recorded log / WHEN it is drawn THEN its size is about what was expected
    trace, out = Trace(SAMPLE), io.BytesIO()
    windows = list(trace.lifecycles())
    convert(iter(windows), trace.context, out, options=Options(detail=detail))
    ratio = out.tell() / sum(expected(window, Options(detail)) for window in windows)
    # A log as short as this one is drawn nearly in full.
    assert 0.5 < ratio < (4 if detail == Detail.STANDARD else 2.5)
