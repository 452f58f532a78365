# SPDX-License-Identifier: Apache-2.0
"""Pages in a headless Chromium: what they show, and whether the console stayed empty."""

import html.parser
import json
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from biotrail.text import units
from tests.support.paths import ROOT
from tests.support.record_command import biotrail

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"
PATIENCE = 120
SHOWN = {"ns": units.duration, "bytes": units.size, "count": lambda x: units.count(round(x))}


class Figures(html.parser.HTMLParser):
    """What the page shows: figures as (path, value, kind, text), the data, the root's marks."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.figures: list[tuple[str, str, str, str]] = []
        self.root: dict[str, str | None] = {}
        self.tags: list[str] = []
        self.labels: list[str | None] = []
        """Labels (aria-label) of elements, None for those without: charts have one."""
        self.text = ""
        self._data = ""
        self._within: tuple[str, str, str] | None = None
        self._in_data = False
        self.feed(dom)
        self.data: dict[str, Any] = json.loads(self._data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append(tag)
        self.labels.append(found.get("aria-label"))
        if tag == "html":
            self.root = found
        self._in_data = found.get("id") == "data"
        if found.get("data-path") and found.get("data-value") is not None:
            self._within = (
                str(found["data-path"]),
                str(found["data-value"]),
                str(found.get("data-kind")),
            )

    def handle_endtag(self, tag: str) -> None:
        self._in_data = False

    def handle_data(self, data: str) -> None:
        if self._in_data:
            self._data += data
        elif self._within:
            self.figures.append((*self._within, data))
            self._within = None
        self.text += data if not self._in_data else ""


def chromium(own: str) -> list[str]:
    """A headless Chromium with its profile in a directory of its own."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("chromium is not installed")
    off = ("gpu", "background-networking", "component-update", "sync", "dev-shm-usage")
    options = ["--headless", "--no-sandbox", "--no-first-run", f"--user-data-dir={own}/profile"]
    return [found, *options, *(f"--disable-{what}" for what in off)]


def environment_in(own: str) -> dict[str, str]:
    return {"TMPDIR": own, "HOME": own, "PATH": "/usr/local/bin:/usr/bin:/bin"}


def browse(page: Path, choice: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run a browser without any network on a page until its scripts are done."""
    with tempfile.TemporaryDirectory(prefix="bt-", ignore_cleanup_errors=True) as own:
        return subprocess.run(
            [*chromium(own), "--host-resolver-rules=MAP * ~NOTFOUND",
             "--virtual-time-budget=20000", *more, f"{page.as_uri()}#{choice}"],
            capture_output=True, text=True, timeout=PATIENCE, check=True, env=environment_in(own),
        )  # fmt: skip


def visit(page: Path, choice: str = "") -> Figures:
    """The page as the browser made it; fails for anything in the console."""
    done = browse(page, choice, "--enable-logging=stderr", "--window-size=1280,900", "--dump-dom")
    assert [line for line in done.stderr.splitlines() if "CONSOLE" in line] == []
    found = Figures(done.stdout)
    assert found.root.get("data-ready") == "yes"
    assert "data-error" not in found.root
    return found


def with_script(page: Path, used: Path, script: str) -> Path:
    """Write the page with a script that uses it, without the policy that forbids that."""
    text = page.read_text("utf-8")
    policy, end = text.index("<meta http-equiv"), text.index('<meta name="viewport"')
    body, tag, rest = text[end:].rpartition("</body>")
    used.write_text(f"{text[:policy]}{body}<script>{script}</script>{tag}{rest}", "utf-8")
    return used


def make(log: Path, page: Path) -> Path:
    biotrail("report", "--html", page, log)
    return page


def at(data: dict[str, Any], path: str) -> Any:
    """A value by its path: `devices.0.total.ios`; of the report, if not of the page's own."""
    first, *_ = path.split(".")
    found: Any = data if first in ("operations", "slow") else data["report"]
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def check(found: Figures, report: dict[str, Any]) -> None:
    """Each figure is the JSON's, and written as the command line writes it."""
    assert found.data["report"] == report
    for path, value, kind, text in found.figures:
        expected = at(found.data, path)
        assert float(value) == float(expected), path
        if kind in SHOWN:
            assert text == SHOWN[kind](expected), path
    assert len(found.figures) > 0
