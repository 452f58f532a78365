# SPDX-License-Identifier: Apache-2.0
"""`--guest-of`: a guest's log with its host's in convert, report and slow."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import perfetto_check
from tests.support.cli_runner import Cli, page_data
from tests.support.guest_logs import HOST_NAME, HOST_PID, MILLISECOND, Clock, transfers, write

HELD = 20
"""The transfer that the host's device held."""
MOVED = [
    replace(one, on_host=50 * MILLISECOND) if at == HELD else one
    for at, one in enumerate(transfers(60))
]


@pytest.fixture
def logs(tmp_path: Path) -> tuple[Path, Path]:
    return write(tmp_path, MOVED, Clock(behind=12_345_678_901, fast=30e-6))


@pytest.mark.parametrize("wanted", [HOST_NAME, str(HOST_PID)])
@pytest.mark.parametrize("detail", ["standard", "full"])
def test_convert_draws_arrows_from_requests_to_the_hosts_bios(
    cli: Cli, tmp_path: Path, logs: tuple[Path, Path], wanted: str, detail: str
) -> None:
    # GIVEN a guest's and its host's log  WHEN they are converted together
    target = tmp_path / "vm.pftrace"
    done = cli("convert", *logs, "--guest-of", wanted, "-o", target, "--detail", detail)
    # THEN what is printed says how the clocks were aligned, and that all is linked
    assert done.status == 0, done.err
    assert "guest: by requests that both recorded, within" in done.out
    assert f"guest of process {HOST_PID} ({HOST_NAME}):" in done.out
    assert "links: 60 exact" in done.out
    # AND each request of the guest has an arrow to one bio of the host, which comes later
    trace = perfetto_check.read(target.read_bytes(), boottime=True)
    requests = [s for s in trace.slices("request") if s.args["host"] == "guest"]
    bios = [s for s in trace.slices("bio") if s.args["host"] == "host"]
    arrows = [(one, bio) for one, bio in trace.arrows() if one.args.get("host") == "guest"]
    arrows = [(one, bio) for one, bio in arrows if bio.args.get("host") == "host"]
    assert len(requests) == len(bios) == len({bio.args["number"] for _, bio in arrows}) == 60
    assert {id(one) for one, _ in arrows} == {id(one) for one in requests}
    for request, bio in arrows:
        assert request.start <= bio.start
        assert bio.end <= request.end
        # AND its stages on the host, which add up to its D2C
        names = ("to_host_ns", "host_queue_ns", "host_device_ns", "from_host_ns")
        assert sum(request.args[name] for name in names) <= request.dur
        assert request.args["host_queue_ns"] + request.args["host_device_ns"] == bio.dur


def test_outputs_of_logs_without_requests_or_in_the_wrong_order(
    cli: Cli, tmp_path: Path, logs: tuple[Path, Path]
) -> None:
    # GIVEN both logs  WHEN bios alone are drawn  THEN there is one timeline, without arrows
    target = tmp_path / "vm.pftrace"
    done = cli("convert", *logs, "--guest-of", HOST_NAME, "-o", target, "--detail", "bios")
    assert done.status == 0, done.err
    trace = perfetto_check.read(target.read_bytes(), boottime=True)
    assert not any(one.flows for one in trace.slices("bio"))
    # GIVEN the host's log first  WHEN converted  THEN one message says which one is the host's
    done = cli("convert", *reversed(logs), "--guest-of", HOST_NAME, "-o", tmp_path / "x.pftrace")
    assert done.status == 1
    assert "the second log given" in done.err
    assert not (tmp_path / "x.pftrace").exists()


def test_report_has_the_stages_inside_the_guests_d2c(cli: Cli, logs: tuple[Path, Path]) -> None:
    # GIVEN both logs  WHEN a report is made of them
    done = cli("report", *logs, "--guest-of", HOST_NAME)
    # THEN it has a table of the stages, and says how the clocks were aligned
    assert done.status == 0, done.err
    assert "Inside the guest's D2C, by the host's clock" in done.out
    for stage in ("to host", "host queue", "host device", "from host"):
        assert stage in done.out
    assert "by wall clock" not in done.out
    # AND so has the JSON, whose shares add up
    made = json.loads(cli("report", *logs, "--guest-of", HOST_NAME, "--json").out)["guest"]
    assert made["within_ns"] < 50_000
    assert made["certainty"] == {"exact": 60}
    for row in made["rows"]:
        assert row["requests"] == row["linked"] == row["bios"]
        assert sum(stage["share"] for stage in row["stages"]) == pytest.approx(1)


def test_csv_and_page_have_the_stages_of_the_json(
    cli: Cli, tmp_path: Path, logs: tuple[Path, Path]
) -> None:
    # GIVEN both logs, and the figures as JSON
    words = ("report", *logs, "--guest-of", HOST_NAME)
    made = json.loads(cli(*words, "--json").out)["guest"]
    # WHEN they are reported as CSV
    rows = list(csv.DictReader(io.StringIO(cli(*words, "--csv").out)))
    # THEN lines of the guest's recording have each stage
    lines = [row for row in rows if row["section"] == "guest"]
    assert {row["recording"] for row in lines} == {"guest"}
    expected = [
        (row["disk"], row["behind"], row["operation"], stage["stage"], str(stage["p99_ns"]))
        for row in made["rows"]
        for stage in row["stages"]
    ]
    names = ("device", "of", "operation", "stage", "p99_ns")
    assert [tuple(row[name] for name in names) for row in lines] == expected
    # AND so has the guest's page, while the host's is that of any recording
    done = cli(*words, "--html", tmp_path / "vm.html")
    assert done.status == 0, done.err
    pages = {name: page_data(tmp_path / f"vm-{name}.html") for name in ("guest", "host")}
    assert pages["guest"]["report"]["guest"]["rows"] == made["rows"]
    assert any("clocks: aligned" in line for line in pages["guest"]["report"]["guest"]["words"])
    assert "guest" not in pages["host"]["report"]


def test_slow_names_the_side(cli: Cli, logs: tuple[Path, Path]) -> None:
    # GIVEN both logs, of which the host held one I/O  WHEN the slowest of all are shown
    done = cli("slow", *logs, "--guest-of", HOST_NAME, "-n", "3")
    # THEN the guest's slowest I/O was slow on the host's side
    assert done.status == 0, done.err
    assert "most of D2C on the side of the host" in done.out
    # AND in JSON the guest's I/Os have a side, the host's have none
    made = json.loads(cli("slow", *logs, "--guest-of", HOST_NAME, "--json", "-n", "200").out)
    sides = {one["recording"]: one["side"] for one in made["ios"]}
    assert sides["host"] is None
    slowest = next(one for one in made["ios"] if one["recording"] == "guest")
    assert slowest["side"]["side"] == "host"
    assert slowest["side"]["stages_ns"]["host device"] == 50 * MILLISECOND - 2000
