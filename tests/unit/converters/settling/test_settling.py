# SPDX-License-Identifier: Apache-2.0
"""Plain I/O that is settled first has the rows that the column model gives it."""

import random
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters import pipeline
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.slow.slow import Slowest, Wanted
from biotrail.converters.events import decoding
from biotrail.converters.events.tables import Stage
from biotrail.converters.pipeline import Trace
from biotrail.converters.settling import settler
from biotrail.recorder.log import LogReader, columns
from biotrail.recorder.schema.records import Kind
from tests.simulation.check import SHORT_HOLD_NS
from tests.simulation.delivery import log_of
from tests.simulation.faults import MISSING, faulty
from tests.simulation.loads import history
from tests.simulation.plain_cases import CASES, history_of
from tests.simulation.plain_loads import plain_history
from tests.support import path_sample
from tests.support.paths import ROOT
from tests.support.settling import differences, uncompiled, windows_of

ENTERED = re.compile(
    r"# SPDX|import |COMPILED|@cython.cclass|class |def |return |tables = cython"
    r"|self\.\w+ = (work|facts|devices|partitions|raw|len\(work)"
)
"""Lines that a window passes once, not each event."""
KERNELS = sorted((ROOT / "tests" / "data" / "kernels").glob("*.biotrail"))
DEMO = Path(str(resources.files("biotrail") / "data" / "demo.biotrail"))


@pytest.fixture
def plain():
    """The compiled pass; set-up compiles it, so it has to be there."""
    assert settler.compiled is not None, "run scripts/build_compiled.py"
    return settler.compiled


@pytest.fixture
def short_holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pipeline, "HOLD_NS", SHORT_HOLD_NS)
    monkeypatch.setattr(pipeline, "SETTLE_NS", SHORT_HOLD_NS)
    yield


@pytest.fixture
def settled_counts(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many events each window's pass settles, as they are read."""
    counts: list[int] = []
    settle = settler.Settler.settle

    def watched(self, events, settled, reused, *, holds):
        found = settle(self, events, settled, reused, holds=holds)
        counts.append(0 if found is None else sum(found.counts.values()))
        return found

    monkeypatch.setattr(settler.Settler, "settle", watched)
    return counts


@pytest.mark.parametrize("window", [700, 4_000, 250_000])
def test_a_real_log_has_the_same_tables(plain, window) -> None:
    # GIVEN a real log  WHEN it is read by the model alone, and with plain I/O settled first
    alone, settled = windows_of(DEMO, None, window), windows_of(DEMO, plain, window)
    # THEN all tables and the account are the same
    assert differences(alone, settled) == []


def test_most_of_a_real_log_is_plain(plain, settled_counts) -> None:
    # GIVEN a real log of an ordinary disk  WHEN it is read
    trace, _ = windows_of(DEMO, plain, 250_000)
    # THEN more than half of its events are settled by the pass
    assert sum(settled_counts) > trace.account.total / 2


def test_what_ends_near_a_windows_end_is_not_the_models(plain, monkeypatch) -> None:
    # GIVEN a real log, in windows of a few milliseconds: most I/O ends within 20 ms of some end
    held, modelled = [], []
    settle = settler.Settler.settle

    def watched(self, events, settled, reused, *, holds):
        found = settle(self, events, settled, reused, holds=holds)
        if found is not None:
            held.append(len(found.held))
            modelled.append(len(found.rest))
        return found

    monkeypatch.setattr(settler.Settler, "settle", watched)
    # WHEN it is read  THEN events are held back, in the last window none
    _, windows = windows_of(DEMO, plain, 700)
    assert sum(held) > 0
    assert held[-1] == 0
    # AND the bios held back are in flight for who reads the window, with their ends
    assert any((window.open_bios.complete >= 0).any() for window in windows)
    # AND the model gets less than without holding back
    alone = sum(modelled)
    monkeypatch.setattr(
        settler.Settler, "settle", lambda *given, holds: watched(*given, holds=False)
    )
    modelled.clear()
    windows_of(DEMO, plain, 700)
    assert alone < sum(modelled)


@pytest.mark.parametrize("seed", range(40))
def test_made_up_histories_have_the_same_tables(plain, short_holds, seed) -> None:
    # GIVEN a history of all that the block layer does, with losses, cut into small windows
    made = history(random.Random(seed), 12)
    # WHEN its log is read both ways  THEN the tables are the same
    alone = windows_of(log_of(made), None, made.window_events, "identity")
    settled = windows_of(log_of(made), plain, made.window_events, "identity")
    assert differences(alone, settled) == []


@pytest.mark.parametrize("seed", range(8))
def test_stacked_devices_have_the_same_tables(plain, short_holds, seed) -> None:
    # GIVEN a history of dm, md and partitions that is mostly plain, in windows of some size
    made = plain_history(random.Random(seed), stacked=True)
    # WHEN its log is read both ways  THEN the tables are the same
    alone = windows_of(log_of(made), None, made.window_events, "identity")
    settled = windows_of(log_of(made), plain, made.window_events, "identity")
    assert differences(alone, settled) == []


@pytest.mark.parametrize("window", [40, 250_000])
@pytest.mark.parametrize("log", KERNELS, ids=lambda log: log.stem)
def test_logs_of_real_stacks_have_the_same_tables(plain, short_holds, log, window) -> None:
    # GIVEN what some kernel recorded of LVM upon md's mirror upon two partitions
    alone = windows_of(log, None, window)
    # WHEN it is read with plain I/O settled first  THEN the tables are the same
    assert differences(alone, windows_of(log, plain, window)) == []


def test_most_of_a_real_stack_is_plain(plain, settled_counts) -> None:
    # GIVEN such a log
    log = KERNELS[-1]
    # WHEN it is read
    trace, _ = windows_of(log, plain, 250_000)
    # THEN the pass settles nine in ten of its events, those of each level
    assert sum(settled_counts) > 0.9 * trace.account.total


def test_the_sources_do_the_same_uncompiled(monkeypatch) -> None:
    # GIVEN a history whose log is read by numpy and the model
    made = history(random.Random(7), 12)
    monkeypatch.setattr(columns, "loops", None)
    monkeypatch.setattr(decoding, "loops", None)
    alone = windows_of(log_of(made), None, made.window_events, "identity")
    # WHEN it is read by the sources of the compiled modules
    monkeypatch.setattr(columns, "loops", uncompiled("recorder/log/column_loops.py"))
    monkeypatch.setattr(decoding, "loops", uncompiled("converters/events/decoding_loops.py"))
    module = uncompiled("converters/settling/plain.py")
    assert not module.COMPILED
    settled = windows_of(log_of(made), module, made.window_events, "identity")
    # THEN the tables are the same
    assert differences(alone, settled) == []


@pytest.mark.parametrize("window", [30, 250_000])
def test_the_path_is_the_same(plain, window, tmp_path) -> None:
    # GIVEN a log with calls, waits, interrupts and dirtied pages
    log = path_sample.write(tmp_path / "log")
    # WHEN it is read both ways
    alone, settled = windows_of(log, None, window), windows_of(log, plain, window)
    # THEN the path's tables are the same
    assert sum(len(w.path.bios) + len(w.path.interrupts) for w in alone[1] if w.path) > 0
    assert differences(alone, settled) == []


@pytest.mark.parametrize("seed", range(4))
def test_missing_records_make_no_difference(plain, short_holds, seed) -> None:
    # GIVEN histories of which records are missing
    rng = random.Random(seed)
    made = [faulty(plain_history(rng), fault, rng) for fault in MISSING[seed::4]]
    # WHEN their logs are read both ways  THEN the tables are the same
    for one in made:
        alone = windows_of(log_of(one), None, one.window_events, "identity")
        assert (
            differences(alone, windows_of(log_of(one), plain, one.window_events, "identity")) == []
        )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_histories_made_by_hand_have_the_same_tables(plain, short_holds, case) -> None:
    # GIVEN a history of a few records, some of them missing or contradictory
    made = history_of(case)
    # WHEN its log is read both ways  THEN the tables are the same
    alone = windows_of(log_of(made), None, made.window_events, "identity")
    settled = windows_of(log_of(made), plain, made.window_events, "identity")
    assert differences(alone, settled) == []


@pytest.mark.parametrize("window", [4_000, 250_000])
def test_the_slowest_are_the_same(plain, window) -> None:
    # GIVEN a real log  WHEN its slowest I/Os are found both ways
    found = []
    for module in (None, plain):
        trace = Trace(DEMO)
        trace.settling = module
        slowest = Slowest(trace, Choice(trace.context), Wanted(30))
        for _ in trace.lifecycles(window, on_window=slowest.watch):
            pass
        found.append(slowest.found)
    # THEN they are the same, with their events, requests, mates and parents
    assert len(found[0]) == 30
    assert found[0] == found[1]


@pytest.mark.parametrize("type_name", ["request", "bio"])
def test_addresses_are_the_same(plain, short_holds, type_name) -> None:
    # GIVEN a history, read both ways
    made = plain_history(random.Random(3))
    owners: list[dict[int, list[tuple[int, int, int]]]] = []
    for module in (None, plain):
        known: dict[int, list[tuple[int, int, int]]] = {}

        def watch(result, window, known=known) -> None:
            for row in zip(*vars(result.owners(type_name)).values(), strict=True):
                known.setdefault(int(row[0]), []).append(tuple(map(int, row[1:])))

        trace = Trace(log_of(made), "identity")
        trace.settling = module
        for _ in trace.lifecycles(made.window_events, on_window=watch):
            pass
        owners.append({address: sorted(rows) for address, rows in known.items()})
    # THEN each address is of the same requests (bios), from their first to their last events
    assert len(owners[0]) > 10
    assert owners[0] == owners[1]


def test_no_loop_makes_python_objects(tmp_path: Path) -> None:
    # GIVEN Cython's report on the pass: a score for each line, of what it asks Python for
    source = tmp_path / "plain.py"
    source.write_bytes((ROOT / "converters" / "settling" / "plain.py").read_bytes())
    pytest.importorskip("Cython")
    command = [sys.executable, "-m", "cython", "-3", "--annotate", str(source)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    page = source.with_suffix(".html").read_text(encoding="utf-8")
    scores = re.findall(r'class="cython line score-(\d+)".*?<span class="">(\d+)</span>', page)
    assert len(scores) > 1000
    # WHEN the lines that ask for anything are taken
    asking = {int(number) for score, number in scores if int(score)}
    # THEN they are set-up, or enter or leave a function that Python calls
    lines = source.read_text(encoding="utf-8").splitlines()
    inside = [lines[n - 1].strip() for n in sorted(asking)]
    loops = [line for line in inside if not ENTERED.match(line)]
    assert loops == []


def test_numbers_in_the_pass_are_those_of_the_schema() -> None:
    # GIVEN the pass's own names for kinds and stages, which Cython makes constants
    module = uncompiled("converters/settling/plain.py")
    names = {n[1:]: v for n, v in vars(module).items() if n[0] == "_" and n[1:].isupper()}
    # THEN each has the value of its member
    for name, value in names.items():
        member = Kind[name] if name in Kind.__members__ else Stage[name]
        assert value == member, name


def test_structs_of_the_pass_have_the_members_of_its_tables() -> None:
    # GIVEN the structs that the pass declares
    module = uncompiled("converters/settling/plain.py")
    # THEN the tables that are made for it have the same members in the same order
    for struct, dtype in ((module.Bio, settler._BIO), (module.Request, settler._REQUEST)):
        assert tuple(struct._members) == dtype.names


def test_records_become_columns_and_back_as_numpy_has_it(monkeypatch) -> None:
    # GIVEN segments of a real log
    compiled = columns.loops
    assert compiled is not None
    with LogReader(DEMO) as log:
        segments = [s for chunk in log.chunks() for s in chunk.segments]
    for segment in segments:
        # WHEN they are packed by numpy and by the compiled loops
        monkeypatch.setattr(columns, "loops", None)
        slow = columns.pack(segment.data, segment.position)
        monkeypatch.setattr(columns, "loops", compiled)
        fast = columns.pack(segment.data, segment.position)
        assert slow is not None
        assert fast is not None
        packed = b"".join(bytes(np.frombuffer(part, np.uint8)) for part in fast)
        # THEN the bytes are the same, and become the same records again
        assert packed == b"".join(bytes(np.frombuffer(part, np.uint8)) for part in slow)
        assert bytes(columns.unpack(memoryview(packed), len(segment.data))) == bytes(segment.data)
