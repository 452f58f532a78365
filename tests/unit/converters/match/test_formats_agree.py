# SPDX-License-Identifier: Apache-2.0
"""Every output of one log holds the same bios, as each format's own reader sees them."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.csv
import pyarrow.dataset as ds
import pyarrow.feather
import pyarrow.json
import pyarrow.parquet as pq
import pytest

from tests.scenarios.tools import events_of
from tests.support import captures, otf2_archives, perfetto_check
from tests.support.cli_runner import Cli

Bios = dict[int, tuple[int, int | None]]
"""By number: bytes, ns from queue to completion."""

MERGES_AND_SPLITS = """
0   QGs W 0+8 bio=1 rq=1
3   QM W 8+8 bio=2
5   Q W 2000+4096 bio=3
6   X W 2000+2560 bio=4 parent=3
7   G W 2000+2560 bio=4
8   sI W 2000+2560 bio=4 rq=2
10  G W 4560+1536 bio=3
11  sI W 4560+1536 bio=3 rq=3
13  I W 0+16 bio=1 rq=1
14  D W 0+16 bio=1 rq=1 tag=1/1
15  D W 2000+2560 bio=4 rq=2 tag=2/2
16  D W 4560+1536 bio=3 rq=3 tag=3/3
20  C W 0+16 bio=1 rq=1
30  C W 2000+2560 bio=4 rq=2
41  C W 4560+1536 bio=3 rq=3
50  QGs R 9000+8 bio=5 rq=4
53  D R 9000+8 bio=5 rq=4 tag=4/4
"""
"""Two writes that merge, one that is split, and a read whose end is not in the log."""

CASES = [*sorted(path.stem for path in captures.DATA.glob("*.txt")), "merges-and-splits"]


def of_perfetto(cli: Cli, log: Path, out: Path) -> Bios:
    assert cli("convert", log, "-o", out / "x.pftrace").status == 0
    slices = perfetto_check.read((out / "x.pftrace").read_bytes()).slices("bio")
    return {s.args["number"]: (s.args["bytes"], s.args.get("latency_ns")) for s in slices}


def of_otf2(cli: Cli, log: Path, out: Path) -> Bios:
    pytest.importorskip("otf2", reason="needs the otf2 package")
    assert cli("convert", log, "-o", out / "x.otf2").status == 0
    found = {}
    for (location, number), operation in otf2_archives.operations(
        out / "x.otf2" / "traces.otf2"
    ).items():
        if location.endswith(" bios"):
            at = dict(operation.events)
            cut = any("truncated" in told for told in operation.attributes.values())
            latency = None if cut or "complete" not in at else at["complete"] - at["begin"]
            found[number] = (operation.asked, latency)
    return found


def of_dataset(cli: Cli, log: Path, out: Path) -> Bios:
    assert cli("archive", log, "-o", out / "set").status == 0
    return of_table(ds.dataset(out / "set" / "bios", partitioning="hive").to_table())


def of_table(table: pyarrow.Table) -> Bios:
    columns = (table[name].to_pylist() for name in ("number", "bytes", "latency_ns"))
    return {number: (size, latency) for number, size, latency in zip(*columns, strict=True)}


def exported(ending: str, read: Callable[[Path], pyarrow.Table]) -> Callable[..., Bios]:
    def of_export(cli: Cli, log: Path, out: Path) -> Bios:
        assert cli("export", log, "-o", out / f"x.{ending}").status == 0
        return of_table(read(out / f"x.{ending}"))

    return of_export


FORMATS: dict[str, Callable[[Cli, Path, Path], Bios]] = {
    "otf2": of_otf2,
    "csv": exported("csv", pyarrow.csv.read_csv),
    "jsonl": exported("jsonl", pyarrow.json.read_json),
    "parquet": exported("parquet", pq.read_table),
    "arrow": exported("arrow", pyarrow.feather.read_table),
    "dataset": of_dataset,
}


@pytest.mark.parametrize("name", CASES)
def test_all_outputs_hold_the_same_bios(name: str, cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log
    crafted = name == "merges-and-splits"
    events = events_of(MERGES_AND_SPLITS) if crafted else captures.load(name)
    log = captures.write_log(tmp_path / "x.biotrail", events)
    # WHEN it is written in every format, and read by each one's own reader
    wanted = of_perfetto(cli, log, tmp_path)
    found = {form: of(cli, log, tmp_path) for form, of in FORMATS.items()}
    # THEN they hold the same bios, each with the same bytes and latency
    assert wanted
    if crafted:
        # The two that merged end together; the split one with its second piece.
        told = [(4096, 17_000), (4096, 20_000), (4096, None), (2 << 20, 36_000)]
        assert sorted(wanted.values(), key=str) == sorted(told, key=str)
    for form, bios in found.items():
        assert bios == wanted, form
