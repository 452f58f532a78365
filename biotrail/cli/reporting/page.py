# SPDX-License-Identifier: Apache-2.0
"""`biotrail report --html`: the report as an HTML page."""

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biotrail import __version__
from biotrail.cli.options import report_scope
from biotrail.cli.options.blame_reading import Blaming
from biotrail.cli.options.cuts import Cut, limiting
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.recordings import InputRecording
from biotrail.cli.reporting.slowest import as_dict, look_again
from biotrail.converters.analysis.blame.parties import OWNER
from biotrail.converters.analysis.choosing.select import Selection
from biotrail.converters.analysis.page.data import ROOM, bounded, page_data, short
from biotrail.converters.analysis.page.html import page
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.analysis.report.timeline import Timeline
from biotrail.converters.analysis.slow.slow import Slowest, Wanted
from biotrail.converters.events.tables import Lifecycles
from biotrail.converters.lifecycles.meanings import MEANINGS
from biotrail.converters.pipeline import Trace
from biotrail.recorder.output import output
from biotrail.text import tallies, units
from biotrail.text.blame import words as blame_words
from biotrail.text.progress import progress
from biotrail.text.report.verdict import SHOWN, as_dicts, verdict

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.figures import Figures

SLOWEST = 20
EVERYTHING = Cut()


def write(
    one: InputRecording, cut: Cut, target: str, force: bool, of_guest: "Figures | None" = None
) -> Path:
    """Write the page of a recording. of_guest: its figures on its host; None: it is no guest's."""
    with terminated_as_interrupted():
        data = collect(one.again, cut)
        if of_guest is not None:
            from biotrail.text.guests import STAGE_MEANINGS, guest_lines

            rows, more = bounded(asdict(of_guest)["rows"], ROOM["guest"])
            words = [short(line.strip().rstrip(":")) for line in guest_lines(of_guest)]
            data["report"]["guest"] = {
                "rows": rows,
                "left_out": more,
                "words": words,
                "stages": STAGE_MEANINGS,
            }
        [data["log_name"]] = one.about([one.file_name])
        title = f"{data['log_name']}: biotrail report"
        with output.replacing(target, force=force) as stream:
            stream.write(page("page", title, data).encode("utf-8", "replace"))
    return Path(target)


def collect(again: Callable[[], Trace], cut: Cut = EVERYTHING) -> dict[str, Any]:
    """Return the page's data, from two passes: the second looks around the slowest I/Os."""
    limited = limiting(again, cut)
    trace = limited()
    timeline = Timeline()
    reporter = Reporter(trace.context, timeline=timeline)
    selection = Selection(cut.choice(trace.context))
    slowest = Slowest(trace, selection.choice, Wanted(SLOWEST), not cut.devices, of_each=True)
    blaming = Blaming(limited, cut, OWNER)
    with progress(trace, "reading", slowest.watch) as windows:
        known = blaming.watch(trace, windows)
        some = selection.of(known) if cut.chooses else known
        for window in some:
            reporter.add(window)
    report = reporter.finish(trace)
    whole = slowest.add_each()

    def look(second: Trace, near: Iterator[Lifecycles]) -> None:
        look_again(slowest, second, given=near)

    _, report.blamed = blaming.finish(look)
    data = page_data(report, timeline, trace.context, as_dict(slowest), whole)
    scope = report_scope.facts(trace, cut)
    filters = scope["filters"]
    if filters and len(json.dumps(filters)) > ROOM["filters"]:
        shown = {"options": short(filters["options"]), "left_out_bios": filters["left_out_bios"]}
        data["report"].update({**scope, "filters": shown})
    else:
        data["report"].update(scope)
    said, _ = bounded(as_dicts(verdict(report)), ROOM["verdict"])
    data["report"]["verdict"] = said
    data["shown_sentences"] = SHOWN
    data["scope"] = [short(line) for line in report_scope.lines(scope)]
    told = blame_words(report.blamed, report.path_parts)
    data["blame_words"] = {key: bounded(said, ROOM["blame_words"])[0] for key, said in told.items()}
    missing, more = bounded(tallies.loss_lines(trace), ROOM["words"])
    data["words"] = {
        "version": __version__,
        "stages": MEANINGS,
        "certainty": tallies.CERTAINTY_MEANINGS,
        "missing": [*missing, *([f"and {units.count(more)} more"] if more else [])],
    }
    return data
