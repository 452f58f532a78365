# SPDX-License-Identifier: Apache-2.0
"""What Perfetto's engine takes to open a trace, and to answer the documented SQL.

    python -m benchmarks.perfetto_load [LOG] [--bios 1000000] [--path] [--detail standard] [--sql]

The log, by default a new recording of fio's 4 KiB random reads (as root; --path: with system
calls), is repeated until it has that many bios. The engine is the browser's, WebAssembly, which
node runs: CPU time and peak memory are those of its process.
"""

import argparse
import math
import os
import platform
import re
import tempfile
from pathlib import Path

from benchmarks.enlarged_logs import enlarge
from benchmarks.log_to_perfetto import record
from biotrail.cli.main import main as biotrail
from biotrail.converters.pipeline import Trace
from tests.support.devices import loop
from tests.support.paths import ROOT
from tests.support.perfetto_engine import PROBLEMS, Engine, EngineError

DETAILS = ("full", "standard", "stages", "bios")
PAGES = ("perfetto.md", "hosts.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("log", nargs="?", type=Path)
    parser.add_argument("--path", action="store_true", help="record with --path")
    parser.add_argument("--bios", type=int, default=1_000_000)
    parser.add_argument("--detail", choices=DETAILS, default="standard")
    parser.add_argument("--sql", action="store_true", help="time each documented statement, too")
    asked = parser.parse_args()
    print(f"{platform.node()}, Linux {platform.release()}, {os.cpu_count()} CPUs")
    with tempfile.TemporaryDirectory(prefix="biotrail-load-") as directory:
        log, trace = Path(directory, "long.biotrail"), Path(directory, "long.pftrace")
        short = asked.log
        if short is None:
            with loop(size=256 << 20) as device:
                path = ["--path"] if asked.path else []
                short = record(device, 1, Path(directory), *path)
        bios = sum(len(window.bios) for window in Trace(short).lifecycles())
        enlarge(short, math.ceil(asked.bios / bios), log)
        try:
            biotrail(["convert", "--detail", asked.detail, str(log), "-o", str(trace)])
        except SystemExit as end:
            if end.code:
                raise
        log.unlink()
        measure(trace, asked.detail, asked.sql)


def measure(trace: Path, detail: str, sql: bool) -> None:
    with Engine(trace) as engine:
        seconds, memory = engine.cpu_time(), engine.peak_memory()
        (bios,) = engine.rows("SELECT COUNT(*) AS n FROM slice WHERE category = 'bio'")
        size = trace.stat().st_size
        print(f"--detail {detail}: {bios['n']:,} bios, {size / bios['n']:.0f} B each")
        most = f"{memory / 1e6:,.0f} MB at most ({memory / size:.1f} x)"
        print(f"open in {seconds:.1f} s of CPU, {most}")
        print(f"errors and losses: {engine.rows(PROBLEMS) or 'none'}")
        for page in PAGES if sql else ():
            text = (ROOT / "docs" / page).read_text(encoding="utf-8")
            for title, query in re.findall(r"([^\n]+)\n\n```sql\n(.*?)```", text, re.DOTALL):
                before = engine.cpu_time()
                try:
                    engine.query(query)
                    took = f"{engine.cpu_time() - before:.2f} s"
                except EngineError as error:
                    took = str(error).splitlines()[-1]
                print(f"{took:>10}  {page}: {title[:70]}", flush=True)


if __name__ == "__main__":
    main()
