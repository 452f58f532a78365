# SPDX-License-Identifier: Apache-2.0
"""A log's windows: what is kept in memory between them."""

import gc
import weakref
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pytest

from biotrail.cli.converting import perfetto
from biotrail.cli.options.cuts import Opened
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.events import Events
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.outputs.otf2.convert import convert as to_otf2
from biotrail.converters.outputs.perfetto.convert import convert as to_perfetto
from biotrail.converters.outputs.perfetto.names import STANDARD
from biotrail.converters.pipeline import Trace
from tests.support.cut_logs import write

WINDOW = 100
"""Events."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pipeline") / "log.biotrail"
    write(path, 60)
    return path


def rows_in_memory() -> int:
    """The most rows of any `Events` that something refers to."""
    gc.collect()
    return max((len(one) for one in gc.get_objects() if isinstance(one, Events)), default=0)


def test_a_windows_events_are_gone_when_it_is_yielded(log: Path) -> None:
    # GIVEN what is in memory before a log is read
    before = rows_in_memory()
    trace = Trace(log)
    # WHEN a window comes
    windows = trace.lifecycles(WINDOW, small=False)
    found = [(len(next(windows).bios), rows_in_memory()) for _ in range(3)]
    # THEN of its events those alone are still referred to that a later window needs
    assert before < WINDOW
    assert all(bios > WINDOW // 5 and rows < WINDOW for bios, rows in found), found


def reported(trace: Trace, windows: Iterator[Lifecycles], _: Path) -> None:
    make_report(trace, windows)


def drawn(trace: Trace, windows: Iterator[Lifecycles], _: Path) -> None:
    opened = Opened(trace, Selection(Choice(trace.context)))
    to_perfetto(perfetto.announced(opened, windows, STANDARD), trace.context, BytesIO())


def as_otf2(trace: Trace, windows: Iterator[Lifecycles], directory: Path) -> None:
    pytest.importorskip("otf2")
    to_otf2(windows, trace.context, directory / "otf2")


@pytest.mark.parametrize("use", [reported, drawn, as_otf2])
def test_a_window_is_gone_when_the_next_is_made(
    use: Callable[[Trace, Iterator[Lifecycles], Path], None], log: Path, tmp_path: Path
) -> None:
    # GIVEN windows of a log, of which it is known which are referred to
    trace = Trace(log)
    seen: list[weakref.ref[Lifecycles]] = []
    kept: list[int] = []

    def windows() -> Iterator[Lifecycles]:
        for window in trace.lifecycles(WINDOW):
            gc.collect()
            kept.append(sum(one() is not None for one in seen))
            seen.append(weakref.ref(window))
            yield window
            del window

    # WHEN they are used THEN none is kept while the next is made
    use(trace, windows(), tmp_path)
    assert len(kept) > 3
    assert set(kept) == {0}
