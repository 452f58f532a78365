# SPDX-License-Identifier: Apache-2.0
"""btt's tables beside lifecycles, of blktrace's files or of a log; the tools that make them."""

import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.tables import Bios, Edges, Requests
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.reference.btt_rules import (
    STAGES,
    Comparison,
    Rules,
    compare,
    figures,
    merge_table,
    ours,
    printed,
)
from tests.support.paths import ROOT

SECONDS = 120


def needs_tools(*names: str) -> None:
    """Skip unless these commands are there."""
    for name in names:
        if shutil.which(name) is None:
            pytest.skip(f"needs {name} (blktrace)")


def run_tool(*command: str | Path, cwd: Path | None = None, stdin: Path | None = None) -> str:
    """What it prints; it must not complain."""
    with (stdin or Path("/dev/null")).open("rb") as given:
        done = subprocess.run(
            command, cwd=cwd, stdin=given, capture_output=True, text=True, timeout=SECONDS
        )
    assert done.returncode == 0, (command, done.stderr)
    assert not done.stderr, (command, done.stderr)
    return done.stdout


def blkparse_binary(prefix: Path, out: Path) -> Path:
    """The merged binary stream of `blkparse -d`."""
    run_tool("blkparse", "-q", "-O", "-i", prefix.name, "-d", out, cwd=prefix.parent)
    return out


def btt(binary: Path) -> str:
    """btt's report of a merged stream."""
    return run_tool("btt", "-i", binary, cwd=binary.parent)


def books() -> Rules:
    """Rules of the btt that is installed: blkparse, of the same package, tells its version."""
    said = subprocess.run(["blkparse", "-V"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+)\.(\d+)", said)
    assert found is not None, said
    return Rules(by_start=(int(found[1]), int(found[2])) >= (1, 3))


@dataclass
class Whole:
    """A trace's tables in one, and what btt's rules make of the same events."""

    bios: Bios
    requests: Requests
    edges: Edges
    rules: Rules
    ambiguous: int

    def compare(self) -> Comparison:
        return compare(self.rules, self.bios, self.requests, self.edges)


def associated(path: Path, dev: int | None = None) -> Whole:
    """A log or a set of blktrace's files, associated; `dev`: of this device alone."""
    rules, trace = books(), Trace(path)
    if "G" not in trace.context.header["events"]["letters"]:
        rules.getrq = Kind.START
    for events, _ in trace.events():
        rules.feed(events, dev)
    trace = Trace(path)
    windows = list(trace.lifecycles())
    bios = Bios.concatenate([w.bios for w in windows])
    requests = Requests.concatenate([w.requests for w in windows])
    edges = Edges.concatenate([w.edges for w in windows])
    if dev is not None:
        bios, requests = bios.take(bios.dev == dev), requests.take(requests.dev == dev)
        edges = edges.take(np.isin(edges.request, requests.number))
    return Whole(bios, requests, edges, rules, trace.account.bios["ambiguous"])


def check_table(whole: Whole, report: str) -> None:
    """btt's figures are those of its rules, and ours."""
    table, mine = printed(report), ours(whole.bios)
    for stage in STAGES:
        by_rule = figures(value for _, value in whole.rules.values[stage])
        assert by_rule == table.get(stage), stage
        # btt shows what took no time as 1 ns.
        assert figures(max(value, 1) for value in mine[stage].values()) == by_rule, stage


def check_sizes(whole: Whole, report: str) -> None:
    """Merges and sizes: how many Q and D there were, and the sectors of completions."""
    [(dev, found)] = merge_table(report).items()
    issued = whole.requests.take((whole.requests.bytes > 0) & (whole.requests.issue >= 0))
    with_data = issued.take(issued.complete >= 0)
    sectors = with_data.bytes.astype(np.int64) >> 9
    queued = int((whole.bios.bytes > 0).sum())
    average = int(sectors.sum()) // len(with_data)
    assert found == (
        queued,
        len(issued) + int(issued.requeues.sum()),
        int(sectors.min()),
        average,
        int(sectors.max()),
        int(sectors.sum()),
    )
    assert set(whole.bios.dev.tolist()) == {dev}


def check_report(path: Path, report: str) -> None:
    """What `biotrail report --json` says of the device: btt's figures, to its precision.

    btt's M2D of a bio that merged is M2I and I2D there, where its request was inserted: of these
    the sums are compared (each bio's times: `check_table`).
    """
    command = [sys.executable, "-m", "biotrail.cli.main", "report", "--json", str(path)]
    done = subprocess.run(command, capture_output=True, check=True, cwd=ROOT)
    [device] = json.loads(done.stdout)["devices"]
    mine = {stage["stage"]: stage for stage in device["total"]["stages"]}
    mine |= {"Q2C": device["total"]["latency"], "Q2Q": device["pattern"]["q2q"]["gap"]}
    table = printed(report)
    waits = [table[stage] for stage in ("I2D", "M2D") if stage in table]
    theirs_ns = sum(float(row.average) * 1e9 * row.count for row in waits)
    ours_ns = sum(mine[stage]["sum_ns"] for stage in ("M2I", "I2D", "M2D") if stage in mine)
    # An average is rounded to 1 ns, and what took no time is 1 ns.
    assert abs(theirs_ns - ours_ns) <= sum(row.count for row in waits) * 1.5
    for stage in (*(s for s in STAGES if s not in ("I2D", "M2D")), "Q2Q"):
        assert (stage in table) == (stage in mine), stage
        if stage not in table:
            continue
        theirs, own = table[stage], mine[stage]
        assert own["count"] == theirs.count, stage
        assert f"{own['max_ns'] / 1e9:.9f}" == theirs.most, stage
        # btt shows what took no time as 1 ns.
        assert f"{max(own['min_ns'], 1) / 1e9:.9f}" == theirs.least, stage
        if own["min_ns"]:
            assert f"{own['sum_ns'] / 1e9 / own['count']:.9f}" == theirs.average, stage
