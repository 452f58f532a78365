# SPDX-License-Identifier: Apache-2.0
"""Who slows a reader on this machine's disk: a writer beside it is named, and nobody where none is.

Loop devices over memory are programs on the same CPUs, of which blame cannot tell: the disk below
the directory for tests is recorded, whatever else is on it.
"""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.samples import Sample

from tests.support.metrics_scrapes import select, serving, value
from tests.support.path_disks import LOAD
from tests.support.record_command import (
    BIOTRAIL,
    SECONDS,
    biotrail,
    environment,
    in_json,
    started,
    stop,
    wait_until,
)

pytestmark = [pytest.mark.usefixtures("needs_bpf"), pytest.mark.alone]

READS, BLOCK, SIZE = 2000, 768 << 10, 96 << 20
"""Reads that take well over 30 us also from a host's page cache: below that nobody is named. They
are one request on virtio disks, whose queues take 254 segments."""
TOLD = 0.1
"""Share of its time from which a victim has a sentence."""

READER = f"""
name("app")
file = os.open(here + "/app", os.O_RDONLY | os.O_DIRECT)
into = mmap.mmap(-1, {BLOCK})
for at in range({READS}):
    os.preadv(file, [into], at * 7919 * {BLOCK} % {SIZE})
"""
WRITER = f"""
name("backup")
import time
file = os.open(here + "/backup", os.O_RDWR | os.O_DIRECT)
out = mmap.mmap(-1, 16 << 20)
for burst in range(10**9):
    os.pwritev(file, [out], burst * (16 << 20) % {SIZE})
    if not burst:
        print("begun", flush=True)
    time.sleep(0.003)
"""
BOTH = f"""
writer = subprocess.Popen([sys.executable, "-c", sys.argv[2], here], stdout=subprocess.PIPE)
writer.stdout.readline()  # or the reader is done before it begins
reader = subprocess.run([sys.executable, "-c", sys.argv[3], here], timeout={SECONDS})
writer.kill()
writer.wait()
again = subprocess.run([sys.executable, "-c", sys.argv[3], here], timeout={SECONDS})
sys.exit(reader.returncode or again.returncode)
"""
"""The reader beside the writer, then alone."""

BLAME, WAITED = "biotrail_blame_seconds_total", "biotrail_blame_waited_seconds_total"


def behind_backup(samples: list[Sample]) -> float:
    return value(samples, BLAME, victim="app", culprit="backup")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory on a disk, with a file for each program."""
    dev = tmp_path.stat().st_dev
    sysfs = Path(f"/sys/dev/block/{os.major(dev)}:{os.minor(dev)}")
    name = sysfs.resolve().name
    if not sysfs.exists() or name.startswith(("loop", "zram", "ram", "pmem")):
        pytest.skip("no disk below the directory for tests")
    for one in ("app", "backup"):
        with (tmp_path / one).open("wb") as stream:
            for _ in range(SIZE >> 20):
                stream.write(os.urandom(1 << 20))
            os.fsync(stream.fileno())
    return tmp_path


def blamed(place: Path, program: str, *options: str) -> dict[str, dict[str, Any]]:
    """Record a program; return the victims by name."""
    log = place / "log"
    command = [sys.executable, "-c", LOAD + program, place, LOAD + WRITER, LOAD + READER]
    biotrail("record", *options, "-o", log, "--", *command)
    told = in_json("blame", "--by", "process", "--limit", "0", log)
    victims = {one["name"]: one for one in told["victims"]}
    for one in victims.values():
        assert sum(part["wait_ns"] for part in one["parts"]) == one["wait_ns"]
    return victims


def behind(victim: dict[str, Any]) -> dict[str, int]:
    return {p["culprit"]: p["wait_ns"] for p in victim["parts"] if p["kind"] == "other I/O"}


def most_behind(victim: dict[str, Any]) -> str:
    culprits = behind(victim)
    assert culprits, victim
    return max(culprits, key=lambda name: culprits[name])


def test_the_writer_beside_a_reader_is_named(place: Path) -> None:
    # GIVEN a reader beside a writer of bursts of 16 MiB, and then alone
    victims = blamed(place, BOTH)
    # WHEN the reader's time is blamed / THEN the writer has most of what others cost it
    app = victims["app"]
    assert app["ios"] >= 1.9 * READS
    assert most_behind(app) == "backup"
    assert behind(app)["backup"] >= TOLD * app["wait_ns"]
    # AND it is said what the mean would be without it
    [without] = [one for one in app["without"] if one["culprit"] == "backup"]
    assert without["mean_ns"] < app["mean_ns"]
    assert without["base_ios"] >= 30


def test_a_reader_alone_has_no_culprit(place: Path) -> None:
    # GIVEN a reader, and whatever else this machine does
    victims = blamed(place, READER)
    # WHEN its time is blamed / THEN nobody of ours is named, nor anybody who did hardly any I/O
    app = victims["app"]
    for culprit, ns in behind(app).items():
        if ns >= TOLD * app["wait_ns"]:
            assert culprit not in ("app", "backup")
            assert victims[culprit]["wait_ns"] >= ns / 4, culprit


def test_the_truth_stands_beside_blames_answer(place: Path) -> None:
    # GIVEN a reader, and a writer that is stopped eight times while recording
    log, endless = place / "log", READER.replace(f"range({READS})", "range(10**9)")
    none = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with (
        started([sys.executable, "-c", LOAD + endless, place], **none),
        started([sys.executable, "-c", LOAD + WRITER, place], **none) as writer,
    ):
        pausing = ("--pause", f"{writer.pid}=8x500ms")
        biotrail("record", "--path", "--call-budget", "0", "-o", log, *pausing)
    # WHEN the reader's time is blamed
    told = in_json("blame", "--by", "process", log)
    found = told["experiment"]
    # THEN the writer is the suspect, and the truth stands beside blame's answer
    assert found["culprits"] == ["backup"]
    assert found["periods"] >= 4  # others may stop it, or have it stand late
    [app] = [one for one in found["victims"] if one["name"] == "app"]
    low, high = app["share_between"]
    assert high > 0
    assert low <= app["share"] <= high
    assert app["running"]["mean_ns"] > app["standing"]["mean_ns"] > 0
    # AND the answer is in the interval, or near it, where that is narrow
    if high - low < 0.35:
        assert low - 0.15 <= app["blamed"] <= high + 0.15
    # AND of calls the CPU's share is told apart
    [reads] = [one for one in found["calls"] if one["name"] == "app" and "read" in one["call"]]
    assert reads["cpu"]["share"] + reads["waits"]["share"] == pytest.approx(
        reads["share"], abs=0.001
    )
    # AND the matrix is of the running periods
    [victim] = [one for one in told["victims"] if one["name"] == "app"]
    assert victim["ios"] == app["running"]["ios"]


def test_calls_add_up_beside_a_writer(place: Path) -> None:
    # GIVEN the same load, recorded with its path
    log = place / "log"
    blamed(place, BOTH, "--path", "--call-budget", "0")
    # WHEN calls are blamed / THEN the reader's waited for the writer, to the nanosecond
    calls = in_json("blame", "--by", "process", log)["calls"]
    assert all(sum(p["wait_ns"] for p in one["parts"]) == one["wait_ns"] for one in calls)
    [reads] = [c for c in calls if c["name"] == "app" and c["call"].startswith("preadv")]
    assert most_behind(reads) == "backup"
    kinds = {part["kind"] for part in reads["parts"]}
    assert {"own service", "running"} <= kinds


def test_top_names_the_writer_and_has_what_the_log_has(place: Path) -> None:
    # GIVEN top on all devices, beside a log
    log = place / "log"
    command = [*BIOTRAIL, "top", "--blame=process", "--json", "-o", str(log)]
    with started(
        command, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as top:
        assert top.stdout is not None
        lines = [top.stdout.readline()]
        # WHEN there is a reader beside a writer, and Ctrl-C
        words = [sys.executable, "-c", LOAD + BOTH, str(place), LOAD + WRITER, LOAD + READER]
        subprocess.run(words, check=True, timeout=SECONDS)
        top.send_signal(signal.SIGINT)
        rest, said = top.communicate(timeout=SECONDS)
    assert top.returncode == 0, said
    snapshots = [json.loads(line) for line in (*lines, *rest.splitlines())]
    # THEN all intervals have together the reader's I/Os and time, as `blame` of the log has them
    told = in_json("blame", "--by", "process", "-n", "0", log)
    whole = next(one for one in told["victims"] if one["name"] == "app")
    now = [v for s in snapshots for v in s["now"]["blame"]["victims"] if v["name"] == "app"]
    assert sum(one["ios"] for one in now) == whole["ios"]
    assert sum(one["wait_ns"] for one in now) == whole["wait_ns"]
    assert all(sum(p["wait_ns"] for p in one["parts"]) == one["wait_ns"] for one in now)
    # AND the writer is who cost it most
    minute = snapshots[-1]["minute"]["blame"]["victims"]
    assert most_behind(next(one for one in minute if one["name"] == "app")) == "backup"


def test_metrics_name_the_writer_and_never_go_down(place: Path) -> None:
    # GIVEN metrics of all devices that blame
    with serving("--events", "lifecycle", "--blame=process") as metrics:
        # WHEN there is a reader beside a writer, and scrapes meanwhile
        words = [sys.executable, "-c", LOAD + BOTH, str(place), LOAD + WRITER, LOAD + READER]
        with started(words) as load:
            scrapes = [metrics.samples()]
            while load.poll() is None:
                time.sleep(0.2)
                scrapes.append(metrics.samples())
        assert load.returncode == 0
        wait_until(
            lambda: value(metrics.samples(), WAITED, victim="app") > value(scrapes[0], WAITED),
            "the reader's I/O has settled",
        )
        wait_until(lambda: behind_backup(metrics.samples()) > 0, "the writer is named")
        scrapes.append(metrics.samples())
        stop(metrics.process, signal.SIGTERM)
    # THEN no counter ever went down
    for before, after in itertools.pairwise(scrapes):
        newer = {tuple(one.labels.items()): one.value for one in select(after, BLAME)}
        for one in select(before, BLAME):
            assert newer[tuple(one.labels.items())] >= one.value
    # AND the writer is who cost the reader most
    of_app = select(scrapes[-1], BLAME, victim="app")
    assert max(of_app, key=lambda one: one.value).labels["culprit"] == "backup"
    assert sum(one.value for one in of_app) <= value(scrapes[-1], WAITED, victim="app")
