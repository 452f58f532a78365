# SPDX-License-Identifier: Apache-2.0
"""`biotrail report --html`: the report as a page."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from biotrail import __version__, tallies, units
from biotrail.convert import progress
from biotrail.slow import Findings, as_dict, look_around, open_again, readable_twice
from biotrail.slow_text import MEANINGS
from biotrail.terminating import terminated_as_interrupted
from converters.answers.choosing import Choice
from converters.answers.html import page
from converters.answers.html_data import ROOM, bounded, page_data
from converters.answers.report import Reporter
from converters.answers.select import of_devices
from converters.answers.slow import Wanted
from converters.answers.slow_each import SlowestEach
from converters.answers.timeline import Timeline
from converters.model.context import Context
from converters.model.tables import Bios, Bool
from converters.model.trace import Trace
from recorder import output

SLOWEST = 20


def write(log: str, associate: str, names: tuple[str, ...], target: str, force: bool) -> Path:
    """The page of a log (of some of its devices) as a private file. Raises TraceError."""
    output.ensure_free(target, force)
    with readable_twice(log) as source, terminated_as_interrupted():
        data = collect(lambda: open_again(source, associate), names)
        data["log_name"] = "standard input" if log == "-" else Path(log).name
        title = f"{data['log_name']}: biotrail report"
        with output.replacing(target, force=force) as stream:
            stream.write(page(title, data).encode("utf-8", "replace"))
    return Path(target)


class AnyOf(Choice):
    """The I/Os of several devices; of all when none is named."""

    def __init__(self, context: Context, names: tuple[str, ...]) -> None:
        super().__init__(context)
        self._each = [Choice(context, name) for name in names]

    def mask(self, bios: Bios) -> Bool:
        """As Choice's."""
        masks = [one.mask(bios) for one in self._each] or [super().mask(bios)]
        return np.asarray(np.any(masks, axis=0))


def collect(opened: Callable[[], Trace], names: tuple[str, ...] = ()) -> dict[str, Any]:
    """The page's data. Two passes: what was around slow I/Os is known when these are."""
    trace = opened()
    timeline = Timeline()
    reporter = Reporter(trace.context, timeline=timeline)
    chosen, wanted = AnyOf(trace.context, names), Wanted(SLOWEST)
    slowest = SlowestEach(trace, chosen, wanted, whole=not names)
    with progress(trace, "reading", slowest.watch) as windows:
        some = of_devices(windows, names, trace.context) if names else windows
        for window in some:
            reporter.add(window)
    report = reporter.finish(trace)
    every, whole = slowest.finish()
    found = Findings(trace, wanted, every)
    look_around(found, opened(), None, 0, False)
    data = page_data(report, timeline, trace.context, as_dict(found), whole)
    missing, more = bounded(tallies.loss_lines(trace), ROOM["words"])
    data["words"] = {
        "version": __version__,
        "stages": MEANINGS,
        "certainty": tallies.CERTAINTY_MEANINGS,
        "missing": [*missing, *([f"and {units.count(more)} more"] if more else [])],
    }
    return data
