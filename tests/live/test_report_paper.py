# SPDX-License-Identifier: Apache-2.0
"""The report's page on paper: charts are as wide as the sheet, and whole."""

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from tests.support.chromium import SAMPLE, browse, make, visit

pytestmark = pytest.mark.xdist_group("the page on paper")

WORD = re.compile(r'<word xMin="([\d.]+)" yMin="([\d.]+)" xMax="([\d.]+)"[^>]*>(.*?)</word>')
SHEET = re.compile(r'<page width="([\d.]+)"')
WINDOW = 1280
"""Pixels: charts on a screen this wide are wider than paper."""
PRINTED = """<script>
const drawn = () => [...document.querySelectorAll("canvas")].map((one) => one.toDataURL()).join();
const charts = () => [...document.querySelectorAll(".chart")].map((one) => one.firstElementChild);
const widest = () => Math.max(...charts().map((one) => one.offsetWidth));
root.dataset.screen = widest();
window.dispatchEvent(new Event("beforeprint"));
const [first, sizes] = [drawn(), [...document.querySelectorAll(".chart svg, .chart canvas")]];
root.dataset.paper = Math.max(...sizes.map((one) => one.getBoundingClientRect().width));
setTimeout(() => {
  root.dataset.settled = String(first === drawn());
  window.dispatchEvent(new Event("afterprint"));
  root.dataset.again = widest();
}, 500);
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(SAMPLE, tmp_path_factory.mktemp("paper") / "sample.html")


def printed(page: Path, pdf: Path, choice: str = "") -> None:
    """What a browser with a wide window prints."""
    paper = (f"--window-size={WINDOW},900", "--no-pdf-header-footer", f"--print-to-pdf={pdf}")
    browse(page, choice, *paper)


def words(pdf: Path) -> tuple[float, list[tuple[float, float, float, str]]]:
    """(the sheet's width, (left, top, right, word) of the first sheet), in points."""
    if shutil.which("pdftotext") is None:
        pytest.skip("poppler-utils is not installed")
    command = ["pdftotext", "-bbox", "-l", "1", pdf, "-"]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = [(float(x), float(y), float(end), w) for x, y, end, w in WORD.findall(told)]
    return float(SHEET.findall(told)[0]), found


@pytest.mark.parametrize("choice", ["", "theme=dark"])
def test_stage_bars_end_on_the_sheet(page: Path, tmp_path: Path, choice: str) -> None:
    # GIVEN the page in a window that is wider than paper WHEN it is printed
    printed(page, tmp_path / "page.pdf", choice)
    # THEN the axis of the stage bars goes from 0 % to 100 %, within the sheet
    width, found = words(tmp_path / "page.pdf")
    shares = {
        int(word): (left, right)
        for (left, top, _, word), (_, beside, right, unit) in pairwise(found)
        if unit == "%" and word in ("0", "20", "40", "60", "80", "100") and abs(top - beside) < 1
    }
    assert sorted(shares) == [0, 20, 40, 60, 80, 100]
    assert shares[0][0] < 0.2 * width
    assert 0.8 * width < shares[100][1] < 0.96 * width


def test_charts_are_drawn_when_printing_begins(page: Path, tmp_path: Path) -> None:
    # GIVEN the page, and a script that does as a browser does that prints
    used = tmp_path / "printed.html"
    text = page.read_text("utf-8")
    policy, end = text.index("<meta http-equiv"), text.index('<meta name="viewport"')
    body, tag, rest = text[end:].rpartition("</body>")
    used.write_text(text[:policy] + body + PRINTED + tag + rest, "utf-8")
    # WHEN it is opened
    found = visit(used)
    # THEN charts are as wide as the sheet, and the heat map is drawn whole before the next frame
    assert float(found.root["data-screen"] or 0) > 1000
    assert float(found.root["data-paper"] or 0) <= 703
    assert found.root["data-settled"] == "true"
    # AND afterwards they are as wide as the window again
    assert found.root["data-again"] == found.root["data-screen"]
