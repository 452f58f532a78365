# SPDX-License-Identifier: Apache-2.0
"""stacks --flame: the tree of functions, the SVG, the page; bounded, and safe with any name."""

import re
import stat
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from biotrail.cli.reporting import flame_graph
from biotrail.converters.analysis.page.data import as_json
from biotrail.converters.analysis.stacks.flame import (
    MARGIN,
    OF_EACH,
    WIDTH,
    Flame,
    Recorded,
    Side,
    flame,
)
from biotrail.converters.analysis.stacks.stacks import Callers, Weight
from biotrail.converters.events.stacks import Frame, Stack
from tests.support.cli_runner import Cli, page_data, page_text
from tests.support.stack_logs import READ, START, bio, queued, task, write

NASTY = '</title></script><script>alert(1)</script><img src=x onerror="a">&\x1b[31m\udc80\u202e'
SVG = "{http://www.w3.org/2000/svg}"
OTHER = [["submit_bio", "", 9], ["fsync_" + NASTY, "ext4", 40], ["do_syscall_64", "", 99]]
NOTES = [{"kernel": {"5": READ, "9": OTHER}, "user": {"3": [["", "/bin/dd", 0x12AB]]}}]
MOST_BYTES = 5_000_000


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """dd: three reads of 4 KiB and 1 ms, one fsync of 64 KiB and 9 ms, all from one place."""
    records = [task(START, 42, b"dd")]
    for number in range(3):
        records += bio(number, 1_000_000, 5, 3)
    records += bio(3, 9_000_000, 9, 3, bytes=65536)
    return write(tmp_path / "x.biotrail", records, NOTES)


def tree() -> Flame:
    """Two commands that call the same, one of them deeper."""
    stacks = [
        Stack((Frame("submit_bio", "", 1), Frame("a", "ext4", 2)), (Frame("main", "/x", 1),), ""),
        Stack((Frame("submit_bio", "", 7), Frame("a", "ext4", 9)), (Frame("main", "/x", 2),), ""),
        Stack((Frame("a", "ext4", 2),), (), "user stack not in the log"),
    ]
    callers = [
        Callers("y", 0, bios=3, bytes=300, latency_ns=30),
        Callers("y", 1, bios=1, bytes=100, latency_ns=50),
        Callers("x", 2, bios=4, bytes=0, latency_ns=20),
        Callers("x", -1, bios=2, bytes=0, latency_ns=0),
    ]
    return flame([Recorded("", callers, stacks)])


def test_what_a_function_weighs_is_all_that_came_through_it() -> None:
    # GIVEN callers, two of whose stacks differ in offsets WHEN they become a tree
    nodes = tree().nodes
    # THEN callers come before what they called, siblings by name, the same functions are one
    assert [(n.name, n.depth, n.bios, n.bytes, n.latency_ns) for n in nodes] == [
        ("all", 0, 10, 400, 100),
        ("x", 1, 6, 0, 20),
        ("[no stack recorded]", 2, 2, 0, 0),
        ("[user stack not in the log]", 2, 4, 0, 20),
        ("a [ext4]", 3, 4, 0, 20),
        ("y", 1, 4, 400, 80),
        ("main", 2, 4, 400, 80),
        ("a [ext4]", 3, 4, 400, 80),
        ("submit_bio", 4, 4, 400, 80),
    ]
    sides = [n.side for n in nodes[5:]]
    assert sides == [Side.COMMAND, Side.PROGRAM, Side.MODULE, Side.KERNEL]
    # AND a function has the same colour wherever it is
    assert nodes[4].colour == nodes[7].colour
    # AND nothing is heavier than its caller
    for node in nodes[1:]:
        for by in Weight:
            assert node.weight(by) <= nodes[node.parent].weight(by)


def test_recordings_stand_beside_each_other() -> None:
    # GIVEN the same callers in two recordings WHEN they become one tree
    stacks = [Stack((Frame("submit_bio", "", 1),), (), "")]
    parts = [Recorded(host, [Callers("dd", 0, bios=n)], stacks) for host, n in (("b", 1), ("a", 2))]
    # THEN each is below its recording
    found = [(n.name, n.side, n.depth, n.bios) for n in flame(parts).nodes]
    assert found == [
        ("all", Side.ALL, 0, 3),
        ("a", Side.RECORDING, 1, 2),
        ("dd", Side.COMMAND, 2, 2),
        ("submit_bio", Side.KERNEL, 3, 2),
        ("b", Side.RECORDING, 1, 1),
        ("dd", Side.COMMAND, 2, 1),
        ("submit_bio", Side.KERNEL, 3, 1),
    ]


@pytest.mark.parametrize(("options", "share"), [((), 0.75), (("--bytes",), 12 / 76)])
def test_the_svg_shows_widths_and_figures(
    log: Path, tmp_path: Path, cli: Cli, options: tuple[str, ...], share: float
) -> None:
    # GIVEN a log WHEN its flame graph is written as SVG
    out = tmp_path / "out.svg"
    done = cli("stacks", log, "--flame", out, *options)
    # THEN that is said, and the file is private and whole
    assert (done.status, done.err) == (0, "")
    assert done.out.startswith(f"wrote {out} (")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    root = ET.fromstring(out.read_text("utf-8"))
    groups = list(root.iter(f"{SVG}g"))
    frames = {str(g.findtext(f"{SVG}title")): g.find(f"{SVG}rect").attrib for g in groups}
    # AND each frame is as wide as its share, and says its figures
    [(title, rect)] = [(t, r) for t, r in frames.items() if t.startswith("ext4_mpage_readpages")]
    assert title == (
        "ext4_mpage_readpages [ext4] [module]: 3 bios (75.0 %), 12.0 KiB (15.8 %), 3 ms (25.0 %)"
    )
    assert float(rect.get("width")) == pytest.approx(share * (WIDTH - 2 * MARGIN), abs=0.4)
    # AND the command is below its functions, the innermost on top
    height = {title.split(" ")[0]: float(rect.get("y")) for title, rect in frames.items()}
    assert height["submit_bio_noacct_nocheck"] < height["do_syscall_64"] < height["dd"]
    assert height["dd"] < height["all"]


def test_names_are_only_text_in_an_svg(log: Path, tmp_path: Path, cli: Cli) -> None:
    # GIVEN a function named to break out of an SVG WHEN it is drawn
    out = tmp_path / "out.svg"
    assert cli("stacks", log, "--flame", out).status == 0
    # THEN the file is XML of nothing but titles, boxes and text, and runs nothing
    text = out.read_text("utf-8")
    tags = {element.tag.removeprefix(SVG) for element in ET.fromstring(text).iter()}
    assert tags == {"svg", "g", "title", "rect", "text"}
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "&lt;/title&gt;&lt;/script&gt;" in text


def test_the_page_holds_the_tree(log: Path, tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log with a function named to break out of a page WHEN its page is written
    out = tmp_path / "out.html"
    assert cli("stacks", log, "--flame", out, "--latency").status == 0
    page = out.read_text("utf-8")
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    # THEN its data is the tree with all three weights, and the name is only data
    data = page_data(out)
    assert (data["by"], data["left_out"]) == ("latency_ns", 0)
    assert data["frames"][0] | {"colour": ""} == {
        "name": "all", "side": "all", "parent": -1, "depth": 0, "colour": "",
        "bios": 4, "bytes": 77824, "latency_ns": 12_000_000,
    }  # fmt: skip
    assert any("</script>" in frame["name"] for frame in data["frames"])
    assert "<img" not in page_text(out)
    # AND the policy lets run the page's own scripts alone, and no network
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy


def test_the_folded_form_has_the_same_weights(log: Path, tmp_path: Path, cli: Cli) -> None:
    # GIVEN the page of a log, and its folded stacks
    out = tmp_path / "out.html"
    cli("stacks", log, "--flame", out)
    frames = page_data(out)["frames"]
    lines = cli("stacks", log, "--folded").out.splitlines()
    # THEN what no function of the tree called on is a folded line
    called = {frame["parent"] for frame in frames}
    leaves = sorted(frame["bios"] for at, frame in enumerate(frames) if at not in called)
    assert leaves == sorted(int(line.rsplit(" ", 1)[1]) for line in lines)


def test_a_flame_graph_is_small_whatever_the_log() -> None:
    # GIVEN more stacks than a page has room for, with long names
    stacks = [
        Stack((Frame(f"<{n}&" * 200, "", 1), Frame("a" * 900, "", 1)), (), "") for n in range(9000)
    ]
    callers = [Callers("x", n, bios=n + 1) for n in range(len(stacks))]
    # WHEN they become a tree THEN the lightest are left out, and said to be
    found = flame([Recorded("", callers, stacks)])
    assert 0 < found.left_out < len(stacks)
    assert found.left_out + len(found.nodes) == len(stacks) + 3
    assert found.nodes[0].bios == sum(caller.bios for caller in callers)
    assert min(node.bios for node in found.nodes) == found.left_out + 1
    # AND each kept one has its caller, before it
    for at, node in enumerate(found.nodes[1:], 1):
        assert 0 <= node.parent < at and found.nodes[node.parent].depth == node.depth - 1
    # AND the files are small
    for form in (".svg", ".html"):
        text = flame_graph.text(form, "x", found, Weight.COUNT, ["a line"] * 100_000)
        assert len(text.encode("utf-8", "replace")) < MOST_BYTES
        said = f'"left_out":{found.left_out}'
        assert "left out" in text or "not drawn" in text or said in text


def test_a_frame_needs_less_than_its_room() -> None:
    # GIVEN a frame with the largest numbers THEN it takes no more than what is reckoned
    node = {
        "name": "", "side": "command", "parent": 10**6, "depth": 1000, "colour": "#ffffff",
        "bios": 2**63, "bytes": 2**63, "latency_ns": 2**63,
    }  # fmt: skip
    assert len(as_json(node)) + 1 <= OF_EACH


def test_a_file_is_replaced_only_when_that_is_asked_for(
    log: Path, tmp_path: Path, cli: Cli
) -> None:
    # GIVEN a file of that name WHEN a flame graph is to be written THEN only --force replaces it
    out = tmp_path / "out.svg"
    out.write_text("mine")
    done = cli("stacks", log, "--flame", out)
    assert done.status == 1 and "--force" in done.err and out.read_text() == "mine"
    assert cli("stacks", log, "--flame", out, "--force").status == 0
    assert out.read_text().startswith("<svg")


def test_what_is_missing_is_said(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a bio without a stack, and a log without any I/O
    log = write(tmp_path / "x.biotrail", [queued(START, 1), *bio(1, 10, 5)], NOTES)
    none = write(tmp_path / "none.biotrail", [], NOTES)
    for form in (".svg", ".html"):
        # WHEN flame graphs are made THEN they say so, and so does the command
        done = cli("stacks", log, "--flame", tmp_path / f"a{form}")
        assert "1 bio without a stack" in done.err
        assert "1 bio without a stack" in (tmp_path / f"a{form}").read_text("utf-8")
        # AND there is one of nothing, too
        assert cli("stacks", none, "--flame", tmp_path / f"none{form}").status == 0


def test_several_logs_make_one_graph(log: Path, tmp_path: Path, cli: Cli) -> None:
    # GIVEN two recordings WHEN one flame graph is made of them
    records = [task(START, 42, b"cp"), *bio(0, 1_000_000, 5, 3)]
    other = write(tmp_path / "y.biotrail", records, NOTES, log_id="8" * 32)
    out = tmp_path / "out.html"
    assert cli("stacks", log, other, "--flame", out).status == 0
    # THEN each is a frame of its own, below all
    data = page_data(out)
    first = [frame for frame in data["frames"] if frame["parent"] == 0]
    assert sorted((frame["side"], frame["bios"]) for frame in first) == [
        ("recording", 1),
        ("recording", 4),
    ]
    assert data["words"]["title"].startswith("2 recordings")
