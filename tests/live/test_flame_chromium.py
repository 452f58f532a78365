# SPDX-License-Identifier: Apache-2.0
"""A flame graph's page in a real browser: no error, no network; weights, search, zoom, paper."""

import json
from pathlib import Path

import pytest

from tests.support.chromium import Figures, visit, with_script
from tests.support.record_command import biotrail
from tests.support.stack_logs import READ, START, bio, task, write

NASTY = "</script><img src=x onerror=alert(1)>"
OTHER = [["submit_bio", "", 9], ["fsync" + NASTY, "ext4", 40], ["do_syscall_64", "", 99]]
NOTES = [{"kernel": {"5": READ, "9": OTHER}, "user": {"3": [["", "/bin/dd", 0x12AB]]}}]
USE = """
const drawn = () => shown[0].made.getOption().series[0].data;
const widths = () => Object.fromEntries(
  drawn().map(([from, to, , at]) => [frames[at].name.split(" ")[0], to - from]),
);
const set = (name, value, kind) => {
  byId(name).value = value;
  byId(name).dispatchEvent(new Event(kind));
};
const said = {};
said.bios = widths();
set("by", "bytes", "change");
said.bytes = widths();
set("find", "EXT4_mpage", "input");
said.found = byId("chosen").textContent;
shown[0].made.dispatchAction({ type: "showTip", seriesIndex: 0, dataIndex: 1 });
said.tip = shown[0].place.textContent;
choose({ frame: frames.findIndex((one) => one.name.startsWith("ext4_mpage")) });
said.zoomed = widths();
said.axis = shown[0].made.getOption().xAxis[0].max - shown[0].made.getOption().xAxis[0].min;
window.dispatchEvent(new Event("beforeprint"));
said.printed = root.dataset.theme;
said.paper = document.querySelector(".chart canvas").getBoundingClientRect().width;
window.dispatchEvent(new Event("afterprint"));
said.address = location.hash;
byId("whole").click();
said.whole = widths();
root.dataset.said = JSON.stringify(said);
"""
CLICK = """
const canvas = document.querySelector(".chart canvas");
const { left, bottom } = canvas.getBoundingClientRect();
const at = { clientX: left + 30, clientY: bottom - 30, bubbles: true };
for (const kind of ["mousemove", "mousedown", "mouseup", "click"])
  canvas.dispatchEvent(new MouseEvent(kind, at));
setTimeout(() => {
  root.dataset.address = location.hash;
}, 200);
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """dd: three reads of 4 KiB, one fsync of 64 KiB."""
    records = [task(START, 42, b"dd")]
    for number in range(3):
        records += bio(number, 1_000_000, 5, 3)
    records += bio(3, 9_000_000, 9, 3, bytes=65536)
    log, out = write(tmp_path / "x.biotrail", records, NOTES), tmp_path / "out.html"
    biotrail("stacks", log, "--flame", out)
    return out


def figures(found: Figures) -> dict[str, float]:
    return {path: float(value) for path, value, *_ in found.figures}


def test_the_chosen_frames_figures_are_the_datas(page: Path) -> None:
    # GIVEN a flame graph's page WHEN it is opened with a frame chosen
    found = visit(page, "frame=2&by=bytes&theme=dark")
    # THEN it shows that frame's figures, on a canvas, and is dark
    chosen = found.data["frames"][2]
    assert figures(found) == {
        f"frames.2.{key}": chosen[key] for key in ("bios", "bytes", "latency_ns")
    }
    assert found.tags.count("canvas") >= 1 and found.root["data-theme"] == "dark"
    # AND a name that would break out of the page did not
    assert "img" not in found.tags


def test_it_can_be_searched_and_zoomed(page: Path, tmp_path: Path) -> None:
    # GIVEN the page, with a script that uses it
    used = with_script(page, tmp_path / "used.html", USE)
    # WHEN that runs THEN there is no error (`visit` looks)
    said = json.loads(visit(used).root["data-said"] or "")
    # AND frames are as wide as what came through them, by each weight
    assert said["bios"]["all"] == 4 and said["bios"]["ext4_mpage_readpages"] == 3
    assert said["bytes"]["all"] == 77824 and said["bytes"]["ext4_mpage_readpages"] == 12288
    # AND what is found is said, whatever its case
    assert "1 frame, 15.8 % of data" in said["found"]
    assert "data: 76.0 KiB (100.0 %)" in said["tip"]
    # AND a chosen frame takes the whole width, below it its callers
    assert set(said["zoomed"].values()) == {12288} and said["axis"] == 12288
    assert "submit_bio" not in said["zoomed"] and "dd" in said["zoomed"]
    assert said["whole"] == said["bytes"]
    # AND paper is light, as wide as a sheet; the address has what was chosen
    assert said["printed"] == "light" and said["paper"] <= 703
    assert "by=bytes&find=EXT4_mpage&frame=" in said["address"]


def test_a_click_chooses_a_frame(page: Path, tmp_path: Path) -> None:
    # GIVEN the page WHEN the frame above the lowest is clicked THEN there is no error
    found = visit(with_script(page, tmp_path / "used.html", CLICK))
    # AND it is chosen: the address has it, and its figures are shown
    assert found.root["data-address"] == "#by=bios&frame=1"
    assert {path.rsplit(".", 1)[0] for path in figures(found)} == {"frames.1"}
