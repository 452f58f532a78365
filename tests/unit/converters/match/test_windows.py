# SPDX-License-Identifier: Apache-2.0
"""What a log's windows have does not depend on how they are cut."""

import dataclasses
import random
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from biotrail.converters import pipeline
from biotrail.converters.events import decoding
from biotrail.converters.events.tables import Table
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.match import tables
from biotrail.converters.pipeline import HOLD_NS, Trace
from biotrail.recorder.log import LogReader, columns
from tests.scenarios import cases, odd
from tests.scenarios.tools import Tables, devices_with, events_of, read
from tests.simulation.check import SHORT_HOLD_NS
from tests.simulation.delivery import log_of
from tests.simulation.faults import MISSING, faulty
from tests.simulation.loads import history
from tests.simulation.model import EVERYTHING, LIFECYCLE, History
from tests.simulation.plain_loads import plain_history
from tests.support import captures
from tests.support.both_ways import differences, uncompiled, windows_of
from tests.support.paths import ROOT
from tests.support.window_loads import loads, piece, shifted, write

KERNELS = sorted((ROOT / "tests" / "data" / "kernels").glob("*.biotrail"))
DEMO = Path(str(resources.files("biotrail") / "data" / "demo.biotrail"))


@pytest.fixture
def short_holds(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(pipeline, "HOLD_NS", SHORT_HOLD_NS)
    monkeypatch.setattr(pipeline, "SETTLE_NS", SHORT_HOLD_NS)
    yield


@pytest.mark.parametrize("window", [700, 4_000])
def test_a_real_log_has_the_same_tables(window) -> None:
    # GIVEN a real log, read in one window  WHEN it is read in others  THEN tables and account are
    # the same
    assert differences(windows_of(DEMO, 1 << 20), windows_of(DEMO, window)) == []


@pytest.mark.parametrize(
    ("log", "window"),
    [*((log, 40) for log in KERNELS), *((KERNELS[-1], window) for window in (1, 30, 10_000))],
    ids=lambda value: value.stem if isinstance(value, Path) else str(value),
)
def test_logs_of_real_stacks_have_the_same_tables(short_holds, log, window) -> None:
    # GIVEN what some kernel recorded of LVM upon md's mirror upon two partitions
    # WHEN it is read in one window and in others  THEN the tables are the same
    assert differences(windows_of(log, 1 << 20), windows_of(log, window)) == []


def with_missing(seed: int) -> list[History]:
    rng = random.Random(seed)
    return [faulty(plain_history(rng), fault, rng) for fault in MISSING[seed::4]]


HISTORIES: dict[str, Callable[[], list[History]]] = {
    **{f"losses {n}": lambda n=n: [history(random.Random(n), 12)] for n in range(40)},
    **{f"stack {n}": lambda n=n: [plain_history(random.Random(n), stacked=True)] for n in range(8)},
    **{f"missing records {n}": lambda n=n: with_missing(n) for n in range(4)},
}
"""All that the block layer does, with losses; dm, md and partitions."""


@pytest.mark.parametrize("make", HISTORIES.values(), ids=HISTORIES)
def test_histories_have_the_same_tables(short_holds, make) -> None:
    # GIVEN histories, cut into small windows
    for made in make():
        # WHEN their logs are read in one window  THEN the tables are the same
        whole = windows_of(log_of(made), 1 << 20, "identity")
        assert differences(whole, windows_of(log_of(made), made.window_events, "identity")) == []


@pytest.mark.parametrize(
    ("text", "letters"),
    [
        *((text, EVERYTHING) for text in odd.OF_ALL_EVENTS.values()),
        *((text, LIFECYCLE) for text in odd.OF_LIFECYCLES.values()),
    ],
    ids=[*odd.OF_ALL_EVENTS, *odd.OF_LIFECYCLES],
)
def test_odd_histories_have_the_same_tables(tmp_path, short_holds, text, letters) -> None:
    # GIVEN a history made by hand, slowed down, so that every event ends a window
    events = events_of(text, 2 * SHORT_HOLD_NS)
    header = {
        "devices": devices_with(odd.DEVICES),
        "events": {"set": "all", "letters": sorted(letters), "missing": []},
    }
    log = captures.write_log(tmp_path / "log", events, header, chunks=len(events))
    # WHEN its log is read in one window, and in windows of one event  THEN the tables are the same
    whole, cut = (windows_of(log, window, "identity") for window in (1 << 20, 1))
    assert len(cut[1]) > 3
    assert differences(whole, cut) == []


def test_the_sources_do_the_same_uncompiled(monkeypatch) -> None:
    # GIVEN a history whose log was read
    made = history(random.Random(7), 12)
    alone = windows_of(log_of(made), made.window_events, "identity")
    # WHEN it is read by the sources of the compiled modules / THEN the tables are the same
    monkeypatch.setattr(columns, "loops", uncompiled("recorder/log/column_loops.py"))
    monkeypatch.setattr(decoding, "loops", uncompiled("converters/events/decoding_loops.py"))
    again = windows_of(log_of(made), made.window_events, "identity")
    assert differences(alone, again) == []


@pytest.mark.parametrize("window", [1, 5, 100, 10_000, 1_000_000])
def test_a_comment_long_after_an_end_is_on_another_request(tmp_path, short_holds, window) -> None:
    # GIVEN a request that fails, its E and d; 30 ms later an E and a d at its address, of a request
    # whose own events were lost, and other I/O all the time
    text = """
        0 QGsD 90 CEd R 0+8 bio=1 rq=1 err=10
        30000 Ed R 64+8 bio=2 rq=1 err=10
        """
    for turn in range(1, 40):
        text += f"{turn * 1000} QGsD W 800+8 bio=9 rq=9\n{turn * 1000 + 500} C W 800+8 bio=9 rq=9\n"
    path = tmp_path / "log"
    captures.write_log(path, sorted(events_of(text), key=lambda e: e["ns"]), chunks=40)
    # WHEN its log is read in windows of any size
    trace, windows = windows_of(path, window)
    # THEN the first two are the request's, the other two are on one that is not in the log
    told = {key: n for key, n in trace.account.events.items() if key[0] in "Ed"}
    assert told == {
        ("E", Reason.USED): 1,
        ("d", Reason.USED): 1,
        ("E", Reason.AFTER_END): 1,
        ("d", Reason.AFTER_END): 1,
    }
    assert differences(windows_of(path, 1 << 20), (trace, windows)) == []


@pytest.mark.parametrize("type_name", ["request", "bio"])
def test_addresses_are_the_same(short_holds, monkeypatch, type_name) -> None:
    # GIVEN a history, read in windows of two sizes as if objects were followed
    monkeypatch.setattr(tables, "follows", lambda header: True)
    made = plain_history(random.Random(3))
    owners: list[dict[int, list[tuple[int, int, int]]]] = []
    for window in (1 << 20, made.window_events):
        known: dict[int, list[tuple[int, int, int]]] = {}

        def watch(result, window, known=known) -> None:
            for row in zip(*vars(result.owners[type_name]).values(), strict=True):
                known.setdefault(int(row[0]), []).append(tuple(map(int, row[1:])))

        for _ in Trace(log_of(made), "identity").lifecycles(window, on_window=watch):
            pass
        owners.append({address: sorted(rows) for address, rows in known.items()})
    # THEN each address is of the same requests (bios), from their first to their last events
    assert len(owners[0]) > 10
    assert owners[0] == owners[1]


def test_a_bio_that_a_damaged_chain_names_twice_ends_once(tmp_path: Path) -> None:
    # GIVEN a request of two bios, whose CHAIN names the second one twice, completed in two parts
    log = captures.write_log(tmp_path / "log", events_of(odd.NAMED_TWICE))
    # WHEN it is read / THEN each bio has ended with its own part
    _, windows = windows_of(log, 1 << 20, "identity")
    bios = [window.bios for window in windows]
    ends = [ns - captures.BASE_NS for table in bios for ns in table.complete.tolist()]
    assert ends == [7_000, 8_000]
    assert [size for table in bios for size in table.done_bytes.tolist()] == [4096, 4096]


def test_records_become_columns_as_numpy_has_it_and_back() -> None:
    # GIVEN segments of a real log
    with LogReader(DEMO) as log:
        segments = [s for chunk in log.chunks() for s in chunk.segments]
    for segment in segments:
        # WHEN they are packed by numpy and by the compiled loops
        slow = columns.pack(segment.data, segment.position)
        fast = columns.plan([segment.data], segment.position)
        assert slow is not None
        assert isinstance(fast, columns.Plan)
        fast.write(packed := np.empty(fast.size, np.uint8), ())
        # THEN the bytes are the same, and become the same records again
        assert packed.tobytes() == b"".join(slow)
        assert bytes(columns.unpack(packed.data, len(segment.data))) == bytes(segment.data)


# However a log is cut into chunks and windows, the same bios and requests come out.

QUICK = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def assert_equal(one: Table, other: Table) -> None:
    for field in dataclasses.fields(one):
        first, second = getattr(one, field.name), getattr(other, field.name)
        assert np.array_equal(first, second), f"{type(one).__name__}.{field.name}"


def assert_same(t: Tables, whole: Tables) -> None:
    for name in ("bios", "requests", "edges", "bio_stages", "request_stages"):
        assert_equal(getattr(t, name), getattr(whole, name))
    for name in ("devices", "bios", "requests", "edges", "late", "first_ns", "last_ns"):
        assert getattr(t.account, name) == getattr(whole.account, name), name
    assert reasons(t) == reasons(whole)


def reasons(t: Tables) -> dict[tuple[str, str], int]:
    """The account; comments (d, E) that come very late are nobody's, so theirs are added up."""
    found: dict[tuple[str, str], int] = {}
    for (letter, reason), count in t.account.events.items():
        key = (letter, "" if letter in "dE" else str(reason))
        found[key] = found.get(key, 0) + count
    return found


@QUICK
@given(
    pieces=st.lists(piece, min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 10_000), max_size=30),
    delays=st.lists(st.integers(0, HOLD_NS // 4), min_size=2, max_size=2),
    window=st.sampled_from([1, 2, 7, 30, 200]),
)
@example([(71, 0, 0, 1000), (4, 0, 0, 1)], [], [0, 0], 1)  # over by its bio's reuse, then its own
@example(
    [(60, 0, 0, 1), (3, 0, 0, 1), (0, 0, 0, 1000), (60, 0, 0, 1)], [], [0, 0], 1
)  # used thrice
def test_windows_of_any_size(
    tmp_path: Path,
    pieces: list[tuple[int, int, int, int]],
    cuts: list[int],
    delays: list[int],
    window: int,
) -> None:
    # GIVEN loads of several kinds, recycled pointers, in chunks cut anywhere, where each
    # CPU's records come up to some ms late
    events = loads(pieces)
    path = write(tmp_path / "a.biotrail", events, [c % len(events) for c in cuts], delays)
    # WHEN it is read in small windows / THEN every table and count is that of one window
    t, whole = read(path, window), read(path)
    assert whole.account.late == 0
    assert_same(t, whole)
    # THEN windows follow one another without a gap
    assert all(a.end == b.begin for a, b in zip(t.windows, t.windows[1:], strict=False))


def test_open_lifecycles_are_shown_until_they_end(tmp_path: Path) -> None:
    # GIVEN a read that takes 5 s, with other I/O meanwhile
    slow = shifted(events_of(cases.READ_DEADLINE.given), 0, 0, 50_000)
    quick = [
        event
        for i in range(20)
        for event in shifted(events_of(cases.READ_NONE.given), 4096, i * 200_000_000, 1)
    ]
    events = sorted(slow + quick, key=lambda e: e["ns"])
    path = write(tmp_path / "a.biotrail", events, list(range(len(events))), [0, 0])
    # WHEN read in windows of one event
    t = read(path, 1)
    number = int(t.bios.number[0])
    ended = [i for i, w in enumerate(t.windows) if number in w.bios.number]
    shown = [i for i, w in enumerate(t.windows) if number in w.open_bios.number]
    # THEN it is open in every window before the one that it ends in, and in none after
    assert len(ended) == 1
    assert shown == list(range(shown[0], ended[0]))
    assert len(shown) > 10
