# SPDX-License-Identifier: Apache-2.0
"""A trace in parts holds all that the whole one does; compressed, it is the same bytes."""

import gzip
from collections import Counter
from pathlib import Path

import pytest
import zstandard

from tests.support import cut_logs
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT
from tests.support.perfetto_check import Slice, read

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
KIB = 1024


def parts_of(directory: Path, name: str = "disk") -> list[Path]:
    found = directory.glob(f"{name}-*.pftrace")
    return sorted(found, key=lambda path: int(path.stem.rsplit("-", 1)[1]))


def facts(one: Slice) -> tuple[object, ...]:
    """What a slice says, wherever it is drawn."""
    return one.start, one.end, one.name, tuple(sorted(one.args.items()))


CATEGORIES = ("bio", "request")


def test_the_parts_together_hold_everything(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log, and its whole trace
    assert cli("convert", "--detail", "full", SAMPLE, "-o", tmp_path / "whole.pftrace").status == 0
    trace = read((tmp_path / "whole.pftrace").read_bytes())
    whole = Counter(facts(s) for category in CATEGORIES for s in trace.slices(category))
    # WHEN it is converted in parts
    part = ("--detail", "full", "--max-size", "600K")
    done = cli("convert", *part, SAMPLE, "-o", tmp_path / "disk.pftrace")
    assert done.status == 0, done.err
    paths = parts_of(tmp_path)
    assert f"wrote {len(paths)} parts (" in done.out
    assert len(paths) >= 3
    found: Counter[tuple[object, ...]] = Counter()
    borders = 0
    for path in paths:
        # THEN each part is a sound trace
        part = read(path.read_bytes())
        assert f"{path} (" in done.out
        slices = [s for category in CATEGORIES for s in part.slices(category)]
        # AND what crosses a border is marked in the part that it does not end in
        borders += sum("open_at_end" in s.args for s in slices)
        found.update(facts(s) for s in slices if "open_at_end" not in s.args)
    # AND whole in the one in which it ends, and in no other
    endless = Counter({f: n for f, n in whole.items() if ("open_at_end", True) in f[3]})
    assert found == whole - endless
    assert borders > 0


def test_losses_stand_in_the_part_of_their_time(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a loss window far into it, of which its index tells at once
    log = tmp_path / "disk.biotrail"
    cut_logs.write(log, 120)
    # WHEN it is converted in parts
    done = cli("convert", "--max-size", "256K", log)
    assert done.status == 0, done.err
    traces = [read(path.read_bytes()) for path in parts_of(tmp_path)]
    # THEN none is larger than was asked for
    assert len(traces) > 1
    assert all(path.stat().st_size <= 256 * KIB for path in parts_of(tmp_path))
    # AND one part has it, and no part goes on to where others are
    having = [len(trace.slices("loss")) for trace in traces]
    assert sum(having) == 1 and having[0] == 0
    ends = [max(s.end for s in trace.slices("bio")) for trace in traces]
    assert ends == sorted(ends)


def test_parts_are_not_overwritten(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a file in the place of a later part
    (tmp_path / "disk-2.pftrace").write_text("mine")
    # WHEN a log is converted in parts THEN nothing is written
    options = ("convert", "--max-size", "300K", SAMPLE, "-o", tmp_path / "disk.pftrace")
    done = cli(*options)
    assert done.status == 1
    assert "disk-2.pftrace already exists" in done.err
    assert [path.name for path in tmp_path.iterdir()] == ["disk-2.pftrace"]
    # AND with --force it is, and what is left of earlier is named
    (tmp_path / "disk-99.pftrace").write_text("mine")
    assert cli(*options, "--force").status == 0
    assert (tmp_path / "disk-2.pftrace").read_bytes()[:1] == b"\x0a"


def test_parts_need_files_and_room(cli: Cli, tmp_path: Path) -> None:
    # GIVEN outputs that cannot be in parts, and parts too small / THEN that is wrong usage
    for target, size in (("-", "1M"), (tmp_path / "x.otf2", "1M"), (tmp_path / "x.pftrace", "1K")):
        assert cli("convert", "--max-size", size, SAMPLE, "-o", target).status == 2


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_outputs_decode_to_the_plain_one(cli: Cli, tmp_path: Path, ending: str) -> None:
    # GIVEN a trace as it is, and one whose name asks for compression
    plain, packed = tmp_path / "a.pftrace", tmp_path / f"a.pftrace{ending}"
    for path in (plain, packed):
        assert cli("convert", SAMPLE, "-o", path).status == 0
    # WHEN that is decompressed THEN the bytes are the same
    data = packed.read_bytes()
    opened = gzip.decompress(data) if ending == ".gz" else unpacked(data)
    assert opened == plain.read_bytes()
    assert len(data) < len(opened) / 3
    # AND it is made the same each time, and parts have the ending, too
    assert cli("convert", "-f", SAMPLE, "-o", packed).status == 0
    assert packed.read_bytes() == data
    done = cli("convert", "--max-size", "1M", SAMPLE, "-o", packed)
    assert done.status == 0, done.err
    assert (tmp_path / f"a-1.pftrace{ending}").exists()
    # AND an archive, which is a directory, cannot be compressed so
    assert cli("convert", SAMPLE, "-o", tmp_path / f"a.otf2{ending}").status == 2


def unpacked(data: bytes) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(data) as reader:
        return reader.read()
