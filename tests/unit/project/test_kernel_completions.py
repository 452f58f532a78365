# SPDX-License-Identifier: Apache-2.0
"""What live tests set apart: completions that ftrace alone has, in a service thread's interrupt."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support import devices, kernel_completions
from tests.support.kernel_completions import Completion, KernelCompletions, Unseen

LOOP = 7 << 20
SERVICE = "tokio-rt-worker"
TRACE = """\
# tracer: nop
     ksoftirqd/1-22      [001] ..s..   652.885112: block_rq_complete: 7,0 R () 8 + 8 be,0,4 [0]
 tokio-rt-worker-14      [000] ..s1.   652.885200: block_rq_complete: 7,0 R () 16 + 8 none,0,0 [0]
 tokio-rt-worker-14      [000] ..s1.   652.885201: block_rq_complete: 7,0 R () 24 + 8 none,0,0 [0]
           a b-c-9       [001] ..s1.   652.885300: block_rq_complete: 7,0 FF () 0 + 0 none,0,0 [0]
 tokio-rt-worker-14      [000] ..s1.   652.985200: block_rq_complete: 7,0 R () 16 + 8 none,0,0 [0]
"""


@pytest.fixture
def kernel(tmp_path: Path) -> KernelCompletions:
    event = tmp_path / "events/block/block_rq_complete"
    event.mkdir(parents=True)
    (tmp_path / "trace").write_text(TRACE)
    (tmp_path / "per_cpu/cpu0").mkdir(parents=True)
    (tmp_path / "per_cpu/cpu0/stats").write_text("entries: 5\noverrun: 0\ndropped events: 0\n")
    return KernelCompletions(tmp_path, f"dev == {LOOP}")


def seen(cpu: int, micros: int, sector: int, sectors: int = 8) -> Completion:
    return Completion(cpu, 652_000_000_000 + micros * 1000 + 400, LOOP, sector, sectors)


def test_what_ftrace_has_alone_in_a_service_thread_is_unseen(kernel: KernelCompletions) -> None:
    # GIVEN five completions WHEN programs have the first, the flush, and the later of two alike
    programs = [seen(1, 885113, 8), seen(1, 885302, 0, 0), seen(0, 985203, 16)]
    found = kernel.unseen(programs, since=0)
    # THEN the two others are unseen, and noted
    assert [(c.time, c.sector, c.task) for c in found.completions] == [
        (652_885_200_000, 16, SERVICE),
        (652_885_201_000, 24, SERVICE),
    ]
    assert len(kernel_completions.SAID) >= 2


def test_what_is_missing_elsewhere_is_no_excuse(kernel: KernelCompletions) -> None:
    # GIVEN no completion seen WHEN asked THEN only those of service threads are set apart
    assert {c.task for c in kernel.unseen([], since=0).completions} == {SERVICE}
    # AND none from before the recording
    assert len(kernel.unseen([], since=652_985_200_000)) == 1


def test_events_that_ftrace_lost_are_no_truth(kernel: KernelCompletions, tmp_path: Path) -> None:
    # GIVEN a buffer that was too small WHEN asked THEN that is a failure
    (tmp_path / "per_cpu/cpu0/stats").write_text("overrun: 3\ndropped events: 0\n")
    with pytest.raises(AssertionError, match="too small"):
        kernel.all()


def test_without_tracefs_nothing_is_set_apart() -> None:
    assert len(KernelCompletions(None, "").unseen([], since=0)) == 0


@pytest.mark.parametrize(
    ("what", "row", "expected"),
    [
        ("never ended", {}, True),
        ("another device", {"dev": LOOP + 1}, False),
        ("another place", {"sector": 24}, False),
        ("ended before", {"complete": 500_000}, False),
        ("begun after", {"begin": 1_500_000}, False),
        ("ends later by another completion", {"complete": 2_000_000}, True),
        ("merged: it lies in the request", {"sector": 12, "bytes": 512}, True),
    ],
)
def test_whom_an_unseen_completion_concerns(what: str, row: dict[str, int], expected: bool) -> None:
    # GIVEN an unseen completion of 8 sectors at 8 after 1 ms WHEN rows are asked THEN it concerns
    # those in flight there
    values = {"dev": LOOP, "sector": 8, "bytes": 4096, "complete": -1, "begin": 0, **row}
    table = table_of(values)
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 8, 8),))
    begin = np.array([values["begin"]])
    assert unseen.concerns(table, begin).tolist() == [expected], what


def test_the_end_of_a_flush_sequence_concerns_its_request() -> None:
    # GIVEN the end without data of a FUA write, whose sectors are done by then
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 16, 0),))
    write = table_of({"dev": LOOP, "sector": 8, "bytes": 4096, "complete": -1})
    other = table_of({"dev": LOOP, "sector": 80, "bytes": 4096, "complete": -1})
    # WHEN asked THEN it concerns that one
    assert unseen.concerns(write, np.array([0])).all()
    assert not unseen.concerns(other, np.array([0])).any()
    # AND a flush has no sector
    unseen = Unseen((Completion(0, 1_000_000, LOOP, 0, 0),))
    flush = table_of({"dev": LOOP, "sector": (1 << 64) - 1, "bytes": 0, "complete": -1})
    assert unseen.concerns(flush, np.array([0])).all()
    assert unseen.with_data() == 0


class Columns(SimpleNamespace):
    """A table of one row."""

    def __len__(self) -> int:
        return 1


def table_of(values: dict[str, int]) -> Columns:
    types = {"sector": np.uint64, "bytes": np.uint32, "dev": np.uint32}
    return Columns(**{k: np.array([v], types.get(k, np.int64)) for k, v in values.items()})


class Tracing:
    """Stands in for ftrace: one completion in a service thread's interrupt for each test's try."""

    def __init__(self, dev: int) -> None:
        self.dev = dev

    def __enter__(self) -> Callable[..., "Tracing"]:
        return lambda **_: self

    def __exit__(self, *_: object) -> None:
        pass

    def all(self) -> list[Completion]:
        return [Completion(0, 1, self.dev, 8, 8, SERVICE)]


@pytest.mark.parametrize(("dev", "tries"), [(LOOP, 3), (LOOP + 1, 1)])
def test_a_provocation_is_done_again_for_its_own_devices_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dev: int, tries: int
) -> None:
    # GIVEN a test that fails twice while a completion of some device was in such an interrupt
    directories = []

    @kernel_completions.done_again
    def test(tmp_path: Path) -> None:
        directories.append(tmp_path)
        assert len(directories) == 3

    monkeypatch.setattr(devices, "made", {LOOP})
    monkeypatch.setattr(kernel_completions, "tracing", lambda: Tracing(dev))
    # WHEN it runs THEN it is done again if the device is the test's, each try in its directory
    if tries == 1:
        with pytest.raises(AssertionError):
            test(tmp_path=tmp_path)
    else:
        test(tmp_path=tmp_path)
    assert len(set(directories)) == tries
