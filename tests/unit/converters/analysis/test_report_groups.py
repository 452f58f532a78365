# SPDX-License-Identifier: Apache-2.0
"""How a report groups I/O: by process, cgroup, file and driver, and how it lists the groups."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import biotrail
from biotrail.cli.measuring.figures import by_name
from biotrail.cli.measuring.live_model import figures
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.live import totals as totals_module
from biotrail.converters.analysis.live.totals import LABELS, Totals
from biotrail.converters.analysis.report.csv import lines
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.context import Titles, called
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.kernel_names import FLAGS as FLAG_BITS
from biotrail.recorder.schema.records import Q_FLAG_DEVICE, Q_FLAG_FILE, Q_FLAG_SWAP, Kind
from biotrail.text.report.cells import FIELDS, NOT_KNOWN, name_cells
from tests.support import named_logs
from tests.support.cli_runner import Cli
from tests.support.driver_logs import LOOP, NVME, SCSI, request, sample
from tests.support.file_logs import DEV as FILES_DEV
from tests.support.file_logs import bio, names, write
from tests.support.fleet_archives import archive_of
from tests.support.followed_logs import follow, patient
from tests.support.path_logs import ALL_PARTS, MS, PathLog
from tests.support.perfetto_check import read
from tests.support.stack_logs import DEV, START

# Lists of groups: their time and its share, reads beside writes, operations below a group.

WRITE = 1
KIB = 1024
LOG = 1 << FLAG_BITS["META"] | 1 << FLAG_BITS["SYNC"] | 1 << FLAG_BITS["IDLE"]
KWORKER = b"kworker/u8:1"
EARLIER = (None, "dirtied before the recording, or not kept")
UNKNOWN = (None, "not known")


def log(tmp_path: Path) -> Path:
    """A process with one long read and a write, and one with three short writes."""
    made = PathLog()
    made.task(42, b"scan")
    made.task(43, b"sync")
    made.bio(MS, 8 * MS, tid=42, size=256 * KIB)
    made.bio(2 * MS, 3 * MS, tid=42, opf=WRITE, size=4 * KIB)
    for at in (4, 5, 6):
        made.bio(at * MS, at * MS + MS // 2, tid=43, opf=WRITE, size=8 * KIB)
    return made.write(tmp_path / "log.biotrail")


def test_groups_have_their_time_its_share_and_their_operations(tmp_path: Path) -> None:
    # GIVEN a log WHEN it is reported on by process
    report = make_report(Trace(log(tmp_path)), by="process")
    told = as_json(report)
    # THEN the one with most time is first, though it has fewer I/Os, with its share
    for groups in (told["processes"], told["groups"]):
        scan, sync = groups
        assert (scan["process"], scan["latency"]["sum_ns"]) == ("scan", 8 * MS)
        assert (sync["process"], sync["latency"]["sum_ns"]) == ("sync", 3 * MS // 2)
        assert scan["time_share"] == pytest.approx(8 / 9.5, abs=1e-6)
        assert scan["time_share"] + sync["time_share"] == pytest.approx(1)
        # THEN each operation has figures of its own
        found = [
            (one["operation"], one["ios"], one["bytes"], one["latency"]["p99_ns"] >= 6 * MS)
            for one in scan["by_operation"]
        ]
        assert found == [("read", 1, 256 * KIB, True), ("write", 1, 4 * KIB, False)]
    by_operation = [
        (line["process"], line["operation"], line["sum_ns"], line["share"])
        for line in lines(report)
        if line["section"] == "groups by operation"
    ]
    assert by_operation == [
        ("scan", "read", 7 * MS, 0.875),
        ("scan", "write", MS, 0.125),
        ("sync", "write", 3 * MS // 2, 1),
    ]


@pytest.mark.parametrize(
    ("bio", "expected"),
    [
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE}, EARLIER),
        ({"opf": WRITE, "tid": 42, "flags": Q_FLAG_FILE}, EARLIER),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_DEVICE}, EARLIER),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 77, b"db")}, ("db", None)),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 42, b"t")}, ("scan", None)),
        ({"opf": WRITE, "tid": 8, "flags": Q_FLAG_FILE, "dirtied": (9, 8, KWORKER)}, UNKNOWN),
        ({"opf": WRITE, "tid": 42, "flags": Q_FLAG_SWAP}, UNKNOWN),
        ({"opf": WRITE, "tid": 8}, UNKNOWN),
        ({"opf": 0, "tid": 8}, UNKNOWN),
        ({"opf": 0, "tid": 42, "flags": Q_FLAG_FILE}, ("scan", None)),
        ({"opf": WRITE, "tid": 42}, ("scan", None)),
    ],
)
def test_a_writer_is_known_or_said_not_to_be(
    tmp_path: Path, bio: dict[str, Any], expected: tuple[str | None, str | None]
) -> None:
    # GIVEN a bio of a page cache, of swap, of direct I/O, by a worker or by a program
    made = PathLog()
    made.task(42, b"scan")
    made.task(8, KWORKER)
    made.bio(100, 200, **bio)
    # WHEN it is grouped by writer THEN only who wrote or read for itself is named
    report = make_report(Trace(made.write(tmp_path / "log")), by="writer")
    [group] = as_json(report)["groups"]
    assert (group["process"], group.get("writer")) == expected
    [cell, *_] = name_cells(report.groups[0], FIELDS["writer"])
    process, why = expected
    assert cell == (process or f"({why})")


@pytest.mark.parametrize(
    ("bio", "kind", "cell"),
    [
        ({"opf": WRITE, "flags": Q_FLAG_SWAP}, "swap", "(swap)"),
        ({"opf": WRITE | LOG}, "journal", "(journal)"),
        ({"opf": 1 << 12}, "metadata", "(metadata)"),
        ({"opf": 3}, "no data", "(no data)"),
        ({"opf": WRITE}, "not known", NOT_KNOWN),
    ],
)
def test_io_without_a_file_is_called_what_it_is(
    tmp_path: Path, bio: dict[str, Any], kind: str, cell: str
) -> None:
    # GIVEN a bio that no file is known of, and whose purpose may be
    made = PathLog()
    made.bio(100, 200, **bio)
    path = made.write(tmp_path / "log", files={})
    for by in ("file", "inode", "dir"):
        # WHEN it is grouped by file THEN the purpose is its name
        [group] = make_report(Trace(path), by=by).groups
        assert group.name["file_kind"] == kind
        assert name_cells(group, FIELDS[by])[0] == cell


def test_calls_that_queued_nothing_have_no_file(tmp_path: Path) -> None:
    # GIVEN a timed call that waited without a bio, and one that queued one of no known file
    made = PathLog()
    made.task(42, b"cat")
    made.returns(100, 5 * MS, blocked=4 * MS, queued=0, waits=1)
    made.bio(6 * MS, 7 * MS, entry=6 * MS - 100)
    made.returns(6 * MS - 100, 8 * MS, blocked=MS, queued=1)
    # WHEN calls are grouped by file THEN each is called what it is
    report = make_report(Trace(made.write(tmp_path / "log", files={})), by="file")
    cells = {name_cells(one, FIELDS["file"])[0] for one in report.call_groups}
    assert cells == {"(no file: queued no I/O)", NOT_KNOWN}


def test_many_devices_are_the_busiest_and_the_sum_of_the_rest(cli: Cli, tmp_path: Path) -> None:
    # GIVEN 20 devices with an I/O of 4 KiB each, of which later ones take longer
    made = PathLog()
    devices = [{"dev": DEV + place, "name": f"loop{place:02}"} for place in range(20)]
    for place in range(20):
        at, bio = place * 100 * MS, {"bio": (place + 1) << 6, "sector": 0, "dev": DEV + place}
        made.add(Kind.Q, at, **bio, bytes=4 * KIB, part=DEV + place, tid=42)
        made.add(Kind.BIO_COMPLETE, at + (place + 1) * MS, **bio)
    path = made.write(tmp_path / "log", devices=devices)
    # WHEN they are reported on
    text = cli("report", path).out
    table = text.split("(Q2C)")[1].split("\n\n")[0].splitlines()[3:]
    # THEN the 15 with most time have a row, most first, and the others one row and no tables
    assert [row.split()[0] for row in table[:-1]] == [f"loop{n:02}" for n in range(19, 4, -1)]
    assert table[-1].startswith("(5 other devices)   all ")
    assert [x for x in table[-1].split() if x in ("5", "20.0", "KiB")][:3] == ["5", "20.0", "KiB"]
    assert "Where the time goes: loop04" not in text
    assert "5 more devices with 7.1 % of the time of all: --limit 0 shows all" in text
    # THEN all are shown on request, and JSON has all
    assert "Where the time goes: loop04" in cli("report", "--limit", "0", path).out
    assert [one["device"] for one in as_json(make_report(Trace(path)))["devices"]] == [
        f"loop{n:02}" for n in range(19, -1, -1)
    ]


# I/O by the names that people use for cgroups: units, containers, pods, namespaces.

A, B, C, D = "a1" * 32, "b2" * 32, "c3" * 32, "d4" * 32
UID = "0f8fad5b-d9cb-469f-a165-70867728950e"
UID_2 = "1f8fad5b-d9cb-469f-a165-70867728950e"
POD = "/kubepods/burstable/pod"
CGROUPS = {
    1: "/",
    2: "/system.slice/db.service",
    3: "/system.slice/db.service/workers",
    4: f"/system.slice/docker-{A}.scope",
    5: f"/system.slice/docker-{A}.scope/init.scope",
    6: f"/docker/{B}",
    7: f"{POD}{UID}/{C}",
    8: f"{POD}{UID}/{D}",
    9: f"{POD}{UID_2}",
    10: r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/vcpu0",
    11: f"/machine.slice/libpod-conmon-{A}.scope",
    12: "/system.slice",
}
NAMES = {
    "containers": {A: {"name": "web"}, C: {"name": "nginx"}},
    "pods": {UID: {"name": "web-0", "namespace": "shop"}},
}
UNKNOWN_CGROUP = 99
READS_OF = {n: n for n in (*CGROUPS, UNKNOWN_CGROUP)}
READS = [n for n in (*CGROUPS, UNKNOWN_CGROUP) for _ in range(n)]


def groups(cli: Cli, log: Path, by: str, *more: str) -> list[Mapping[str, Any]]:
    told: dict[str, Any] = cli.json("report", "--by", by, *more, log)
    found: list[Mapping[str, Any]] = told["groups"]
    return found


@pytest.fixture(params=[False, True], ids=["before", "after"])
def cgroups_log(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A log with names, which are known before the events or after them."""
    path = tmp_path / "x.biotrail"
    return named_logs.write(path, READS, CGROUPS, NAMES, late=request.param)


@pytest.mark.parametrize(
    ("by", "fields", "expected"),
    [
        (
            "unit",
            ("cgroup_kind", "unit", "slice"),
            {
                ("unit", "db.service", "system.slice"): 5,
                ("unit", f"docker-{A}.scope", "system.slice"): 9,
                ("unit", r"machine-qemu\x2d1\x2dvm.scope", "machine.slice"): 10,
                ("unit", f"libpod-conmon-{A}.scope", "machine.slice"): 11,
                ("slice", None, "system.slice"): 12,
                ("none", None, None): 1 + 6 + 7 + 8 + 9,
                ("not known", None, None): UNKNOWN_CGROUP,
            },
        ),
        (
            "container",
            ("cgroup_kind", "container", "container_id", "runtime", "pod", "namespace"),
            {
                ("container", "web", A, "docker", None, None): 9,
                ("container", None, B, "docker", None, None): 6,
                ("container", "nginx", C, None, "web-0", "shop"): 7,
                ("container", None, D, None, "web-0", "shop"): 8,
                ("pod", None, None, None, None, None): 9,
                ("container", "vm", "vm", "qemu", None, None): 10,
                ("monitor", "web", A, "podman", None, None): 11,
                ("none", None, None, None, None, None): 1 + 2 + 3 + 12,
                ("not known", None, None, None, None, None): UNKNOWN_CGROUP,
            },
        ),
        (
            "pod",
            ("cgroup_kind", "pod", "namespace", "pod_uid"),
            {
                ("pod", "web-0", "shop", UID): 15,
                ("pod", None, None, UID_2): 9,
                ("none", None, None, None): 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11 + 12,
                ("not known", None, None, None): UNKNOWN_CGROUP,
            },
        ),
        (
            "namespace",
            ("cgroup_kind", "namespace"),
            {
                ("namespace", "shop"): 15,
                ("none", None): 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11 + 12,
                ("not known", None): 9 + UNKNOWN_CGROUP,
            },
        ),
    ],
)
def test_ios_are_grouped_by_what_their_cgroup_is(
    cli: Cli, cgroups_log: Path, by: str, fields: tuple[str, ...], expected: dict[Any, int]
) -> None:
    # GIVEN reads of cgroups, as many as the cgroup's number / WHEN they are grouped
    found = groups(cli, cgroups_log, by)
    # THEN each group has those of all its cgroups, whenever their names became known
    assert {tuple(one[f] for f in fields): one["ios"] for one in found} == expected
    assert len(found) == len(expected)


def test_cgroups_are_shown_with_names(cli: Cli, cgroups_log: Path) -> None:
    # WHEN the log is reported / THEN each path has a name beside it
    text = cli("report", cgroups_log).out
    rows = [line for line in text.splitlines() if line.startswith(("/", "…"))]
    for cgroup, name in {
        2: "db.service",
        4: "docker web",
        6: f"docker {B[:12]}",
        7: "shop/web-0 nginx",
        8: f"shop/web-0 {D[:12]}",
        9: f"pod {UID_2}",
        10: "qemu vm",
        11: "podman web (its monitor)",
    }.items():
        path = CGROUPS[cgroup].replace("\\", "\\\\")
        assert any(row.split()[0].lstrip("…") in path and name in row for row in rows), (name, text)
    # AND cgroups of no container are "(none)", those without a path "(unknown)"
    text = cli("report", "--by", "container", cgroups_log).out
    by = text[text.index("By container") : text.index("Where the time goes, by")]
    firsts = [line.split()[0] for line in by.splitlines()[2:] if line.strip()]
    assert {"web", "nginx", "vm", B[:12], "(none)", "(unknown)"} <= set(firsts)
    # AND JSON and CSV have path, id and what they are
    told = cli.json("report", cgroups_log)
    web = next(one for one in told["cgroups"] if one["cgroup_id"] == 7)
    assert web["cgroup"] == CGROUPS[7]
    assert (web["container"], web["pod"], web["namespace"]) == ("nginx", "web-0", "shop")
    lines = csv.DictReader(io.StringIO(cli("report", "--csv", cgroups_log).out))
    found = [row for row in lines if row["section"] == "cgroups" and row["cgroup_id"] == "7"]
    assert {(row["cgroup"], row["container"], row["pod_uid"]) for row in found} == {
        (CGROUPS[7], "nginx", UID)
    }


def test_tables_have_columns(tmp_path: Path) -> None:
    # GIVEN a log / WHEN its bios are a table / THEN they say what each cgroup is
    log = named_logs.write(tmp_path / "x.biotrail", [2, 7, UNKNOWN_CGROUP], CGROUPS, NAMES)
    names = ["cgroup", "unit", "container", "container_id", "pod", "namespace"]
    rows = [tuple(row.values()) for row in biotrail.open(log).bios.select(names).to_pylist()]
    assert rows == [
        (CGROUPS[2], "db.service", None, None, None, None),
        (CGROUPS[7], None, "nginx", C, "web-0", "shop"),
        ("id 99", None, None, None, None, None),
    ]


@pytest.mark.parametrize(
    ("options", "ios", "unknown"),
    [
        (("--unit", "db"), 5, UNKNOWN_CGROUP),
        (("--unit", "system.slice"), 5 + 9 + 12, UNKNOWN_CGROUP),
        (("--container", "web"), 9, UNKNOWN_CGROUP + 6 + 8),
        (("--container", B[:12]), 6, UNKNOWN_CGROUP + 8),
        (("--pod", "shop/web-0"), 7 + 8, UNKNOWN_CGROUP + 9),
        (("--pod", UID_2), 9, UNKNOWN_CGROUP),
        (("--unit", "db.service", "--container", "vm", "--cgroup", "/docker"), 5 + 10 + 6, None),
    ],
)
def test_logs_are_cut_by_names(
    cli: Cli, cgroups_log: Path, options: tuple[str, ...], ios: int, unknown: int | None
) -> None:
    # GIVEN a log with names, before or behind the events WHEN it is cut by some of them
    found = cli("report", "--json", *options, cgroups_log)
    # THEN what bears them, and what is below, is in the report
    told = json.loads(found.out)
    assert sum(one["ios"] for one in told["cgroups"]) == ios
    # AND in others
    words = ("slow", "--json", "--slower-than", "0", "--limit", "1000")
    assert cli(*words, *options, cgroups_log).status == 0
    # AND how many are of a cgroup whose names are not known is told
    if unknown is not None:
        assert f"{unknown}" in cli("report", *options, cgroups_log).out


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (
            "unit",
            {
                ("db.service",): 5,
                ("system.slice",): 12,
                (f"docker-{A}.scope",): 9,
                (r"machine-qemu\x2d1\x2dvm.scope",): 10,
                (f"libpod-conmon-{A}.scope",): 11,
                ("",): 1 + 6 + 7 + 8 + 9 + UNKNOWN_CGROUP,
            },
        ),
        (
            "container",
            {
                ("web", "", ""): 9,
                (B, "", ""): 6,
                ("nginx", "web-0", "shop"): 7,
                (D, "web-0", "shop"): 8,
                ("", UID_2, ""): 9,
                ("vm", "", ""): 10,
                ("web (its monitor)", "", ""): 11,
                ("", "", ""): 1 + 5 + 12 + UNKNOWN_CGROUP,
            },
        ),
        ("pod", {("web-0", "shop"): 15, (UID_2, ""): 9, ("", ""): sum(READS_OF.values()) - 24}),
        ("namespace", {("shop",): 15, ("",): sum(READS_OF.values()) - 15}),
    ],
)
def test_metrics_have_them_as_labels(
    cgroups_log: Path, by: str, expected: Mapping[tuple[str, ...], int]
) -> None:
    # GIVEN a log WHEN its figures are served by what the cgroups are
    trace = Trace(str(cgroups_log))
    totals = Totals(trace.context, by)
    for window in trace.lifecycles():
        totals.add(window)
    served = [figures(one, len(LABELS[by])) for one in totals.groups()]
    # THEN each name has its own
    assert {one.labels: one.ios for one in by_name(served)} == expected


def test_names_of_metrics_are_bounded(cgroups_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two names WHEN there are more
    monkeypatch.setattr(totals_module, "MOST", 2)
    trace = Trace(str(cgroups_log))
    totals = Totals(trace.context, "pod")
    for window in trace.lifecycles():
        totals.add(window)
    served = by_name(figures(one, 2) for one in totals.groups())
    # THEN the others are one, and nothing is missing
    assert {one.labels for one in served} == {("", ""), ("web-0", "shop"), ("other", "other")}
    assert sum(one.ios for one in served) == len(READS)


# Processes are shown by what they call themselves, in every form of output.

TITLE = "reader: of <pages>"
TITLES = {"42": {"comm": "reader", "title": TITLE}}


@pytest.fixture(params=[False, True], ids=["before", "after"])
def titles_log(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    """A log with a title, which is known before the events or after them."""
    path = tmp_path / "x.biotrail"
    return named_logs.write(path, [1, 1, 1], {1: "/"}, titles=TITLES, late=request.param)


def test_machines_have_name_and_title(cli: Cli, titles_log: Path, tmp_path: Path) -> None:
    # WHEN read by programs / THEN the thread's name stays what it was, beside the title
    told = cli.json("report", "--by", "process", titles_log)
    for group in (told["processes"][0], told["groups"][0]):
        assert (group["process"], group["pid"], group["title"]) == ("reader", 42, TITLE)
    rows = csv.DictReader(io.StringIO(cli("report", "--csv", titles_log).out))
    found = {(row["process"], row["title"]) for row in rows if row["section"] == "processes"}
    assert found == {("reader", TITLE)}
    # AND text shows the title for the name, in the sentences, too
    for options in ((), ("--by", "process")):
        assert TITLE in cli("report", *options, titles_log).out
    assert f"all time is of {TITLE} (pid 42)" in cli("report", titles_log).out
    # AND in the page, in which it is no markup
    cli("report", "--html", tmp_path / "x.html", titles_log)
    page = (tmp_path / "x.html").read_text()
    assert "<pages>" not in page
    assert "reader: of " in page


def test_tables_and_traces_have_it(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log with a title, and one without
    for name, titles, expected in (("a", TITLES, TITLE), ("b", None, None)):
        log = named_logs.write(tmp_path / f"{name}.biotrail", [1], {1: "/"}, titles=titles)
        # WHEN read as a table, from an archive too, and as a trace / THEN the first one has it
        table = biotrail.open(log).bios.select(["comm", "title"]).to_pylist()
        assert table == [{"comm": "reader", "title": expected}]
        archive = archive_of(log, tmp_path / f"{name}.parquet")
        assert biotrail.open(archive).bios.select(["comm", "title"]).to_pylist() == table
        trace = tmp_path / f"{name}.pftrace"
        assert cli("convert", log, "-o", trace).status == 0
        (bio,) = read(trace.read_bytes()).slices("bio")
        assert bio.args["process"] == "reader"
        assert bio.args.get("title") == expected


def test_slow_ios_and_calls_have_it(cli: Cli, titles_log: Path, tmp_path: Path) -> None:
    # WHEN the slowest I/Os are asked for / THEN they are of what the process calls itself
    assert f"{TITLE} (42)" in cli("slow", titles_log).out
    told = cli.json("slow", titles_log)["ios"][0]["io"]
    assert (told["comm"], told["title"]) == ("reader", TITLE)
    # GIVEN a call with a wait
    path = PathLog()
    path.task(42, b"reader")
    path.bio(1_000, 9_000, entry=0)
    path.waits(0, 2_000, 9_000, 9_500)
    path.returns(0, 10_000, blocked=7_000, runnable=500)
    calls = path.write(tmp_path / "calls.biotrail", (), ALL_PARTS, {"titles": TITLES})
    # WHEN it is shown, and as tables / THEN they have it, too
    assert f"{TITLE} (42)" in cli("slow", "--calls", calls).out
    told = cli.json("slow", "--calls", calls)["calls"][0]["call"]
    assert (told["comm"], told["title"]) == ("reader", TITLE)
    for table in (biotrail.open(calls).calls, biotrail.open(calls).waits):
        assert table.select(["comm", "title", "file_was"]).to_pylist() == [
            {"comm": "reader", "title": TITLE, "file_was": None}
        ]


def test_a_title_is_of_the_process_that_set_it() -> None:
    # GIVEN a number that two processes had, one after the other
    titles = Titles()
    titles.add({"7": {"comm": "postgres", "title": "postgres: walwriter"}})
    titles.add({"7": {"comm": "dd", "title": ""}})
    # WHEN asked / THEN each has its own, and threads of other names the newest
    assert titles.title(7, "postgres") == "postgres: walwriter"
    assert titles.title(7, "dd") is None
    assert titles.title(7, "io worker") is None
    assert titles.title(8, "dd") is None
    assert titles.title(None, "dd") is None


@pytest.mark.parametrize(
    ("process", "title", "expected"),
    [
        ("postgres", "postgres: walwriter", "postgres: walwriter"),
        ("backup.py", "python3 backup.py", "python3 backup.py"),
        ("GC Thread#0", "java -jar kafka.jar", "GC Thread#0 (java -jar kafka.jar)"),
        ("cat", None, "cat"),
    ],
)
def test_a_thread_of_another_name_keeps_it(process: str, title: str | None, expected: str) -> None:
    assert called(process, title) == expected


# Processes have the sum of their threads, and their leader's name.

__all__ = ["patient"]
LEADER = 40


def pool(path: Path, *, leader: bytes | None = b"python3", threads: int = 4) -> Path:
    """A log in which the threads of process LEADER write, one after the other, 4 KiB each."""
    made = PathLog()
    if leader is not None:
        made.task(LEADER, leader)
    for number in range(threads):
        tid = LEADER + 1 + number
        made.task(tid, b"pool-%d" % number, LEADER)
        made.bio(1000 * (number + 1), 1000 * (number + 1) + 500, opf=WRITE, tid=tid)
    return made.write(path)


def reported(path: Path, by: str, window: int = 1 << 20, **how: Any) -> Any:
    trace = Trace(path)
    return as_json(make_report(trace, trace.lifecycles(window), by=by, **how))


def test_a_process_or_each_of_its_threads_is_one_row(tmp_path: Path) -> None:
    # GIVEN a process whose threads have names of their own, and whose leader did nothing
    log = pool(tmp_path / "log")
    # WHEN it is grouped by process, at once or event by event
    for window in (1 << 20, 1):
        one = reported(log, "process", window, interval=10**9)
        # THEN it has its leader's name and the sum, in the list, over time and of writers
        for groups in (one["groups"], one["processes"], one["intervals"][0]["groups"]):
            assert [(g["process"], g["pid"], g["ios"]) for g in groups] == [("python3", LEADER, 4)]
    # GIVEN the same WHEN it is grouped by thread
    groups = reported(pool(tmp_path / "log"), "thread")["groups"]
    # THEN each thread is a row, with its process
    assert sorted((g["thread"], g["tid"], g["process"], g["pid"], g["ios"]) for g in groups) == [
        (f"pool-{number}", LEADER + 1 + number, "python3", LEADER, 1) for number in range(4)
    ]
    # GIVEN a shell that did I/O, became another program, and did more
    made = PathLog()
    made.task(LEADER, b"sh")
    made.bio(1000, 1500, opf=WRITE, tid=LEADER)
    made.task(LEADER, b"dd", at=2000)
    made.bio(3000, 3500, opf=WRITE, tid=LEADER)
    # WHEN it is grouped over time THEN it has one name
    one = reported(made.write(tmp_path / "log"), "process", 1, interval=1000)
    assert [(g["process"], g["ios"]) for g in one["groups"]] == [("dd", 2)]
    assert {g["process"] for i in one["intervals"] for g in i["groups"]} == {"dd"}


@pytest.mark.parametrize(
    ("threads", "name"),
    [(1, "pool-0"), (3, "pool-0, pool-1, pool-2"), (4, "pool-0, pool-1, pool-2, …")],
)
def test_threads_stand_for_a_leader_that_is_not_known(
    tmp_path: Path, threads: int, name: str
) -> None:
    # GIVEN a log without the leader's name WHEN it is grouped by process
    groups = reported(pool(tmp_path / "log", leader=None, threads=threads), "process")["groups"]
    # THEN it is one process all the same
    assert [(g["process"], g["pid"], g["ios"]) for g in groups] == [(name, LEADER, threads)]


def test_the_first_sentence_and_top_name_the_process(
    cli: Cli, tmp_path: Path, patient: None
) -> None:
    # GIVEN the same pool WHEN it is reported on and followed
    log = pool(tmp_path / "log")
    # THEN the sentence is about the process, and top has one row for it
    assert f"of all time is of python3 (pid {LEADER})" in " ".join(cli("report", log).out.split())
    rows = [g.name for one in follow(log) for g in one.now.processes]
    assert rows == [{"process": "python3", "pid": LEADER, "title": None}]


# report --by file, inode and dir: what counts as one.

AGAIN = 9
"""How often the journal is deleted and made again."""


@pytest.fixture
def journals(tmp_path: Path) -> Path:
    """A journal that is deleted and made again, and the database beside it."""
    records = [*names(START, 12, b"db", b"base"), *bio(0, 12)]
    for number in range(1, AGAIN + 1):
        at = START + number * 1_000_000
        records += names(at, 100 + number, b"db", b"base-journal")
        records += bio(number, 100 + number)
    records += [*bio(AGAIN + 1, None), *bio(AGAIN + 2, FILES_DEV, dev=0, generation=0)]
    records += [*names(START + (AGAIN + 3) * 1_000_000, 7, b"top"), *bio(AGAIN + 3, 7)]
    return write(tmp_path / "x.biotrail", records)


def test_files_are_groups_by_path_inode_and_directory(cli: Cli, journals: Path) -> None:
    # GIVEN a journal that is made again many times WHEN its log is reported by file
    found = groups(cli, journals, "file")
    # THEN it is one group, which says how many inodes it was
    told = [(g["file"], g["file_kind"], g["inode"], g["inodes"], g["ios"]) for g in found]
    assert told[0] == ("/srv/db/base-journal", "file", None, AGAIN, AGAIN)
    assert sorted(told[1:], key=str) == [
        ("/srv/db/base", "file", 12, 1, 1),
        ("/srv/top", "file", 7, 1, 1),
        (None, "device", None, 0, 1),
        (None, "not known", None, 0, 1),
    ]
    # AND so it is in the list of files, and in the text
    assert cli.json("report", journals)["files"] == found
    assert f"/srv/db/base-journal ({AGAIN} inodes)" in cli("report", journals).out
    # GIVEN the same log WHEN it is reported by inode
    found = groups(cli, journals, "inode")
    # THEN each journal is a group of its own
    journal = [g for g in found if g["file"] == "/srv/db/base-journal"]
    assert sorted(g["inode"] for g in journal) == list(range(101, 101 + AGAIN))
    assert len(found) == AGAIN + 4
    # GIVEN the same log WHEN it is reported by directory
    found = groups(cli, journals, "dir")
    # THEN each directory has what its own files have
    told = {(g["dir"], g["file_kind"]): (g["inodes"], g["ios"]) for g in found}
    assert told == {
        ("/srv/db", "file"): (AGAIN + 1, AGAIN + 1),
        ("/srv", "file"): (1, 1),
        (None, "device"): (0, 1),
        (None, "not known"): (0, 1),
    }
    text = cli("report", "--by", "dir", journals).out
    assert "/srv/db " in text
    assert "(vda: metadata, or the device itself)" in text


@pytest.mark.parametrize("by", ["inode", "dir"])
def test_a_log_without_files_says_so(cli: Cli, tmp_path: Path, by: str) -> None:
    # GIVEN a log that was recorded without files WHEN it is grouped by them
    path = write(tmp_path / "x.biotrail", bio(0, None), {}, files=None)
    # THEN it is said what to do
    done = cli("report", "--by", by, path)
    assert (done.status, "record --files" in done.err) == (1, True)


@pytest.mark.parametrize("by", ["file", "dir"])
def test_a_name_that_comes_late_counts_for_all_of_its_file(tmp_path: Path, by: str) -> None:
    # GIVEN a file whose name is not known at its first I/O, and one that never has a name
    records = [*bio(0, 12), *bio(1, 13), *bio(2, 12)]
    records += [*names(START + 3_000_000, 12, b"db", b"base"), *bio(3, 12)]
    records += [*names(START + 4_000_000, 14, b"db", b"base"), *bio(4, 14)]
    path = write(tmp_path / "x.biotrail", records)
    # WHEN it is read in windows of any size
    for window in (1, 3, 1 << 20):
        trace = Trace(path)
        report = make_report(trace, trace.lifecycles(window), by=by)
        # THEN all of the file's I/O is one group
        told = [(g.name["file_kind"], g.name["inodes"], g.ios) for g in report.groups]
        assert told == [("file", 2, 4), ("no name", 1, 1)], window
        assert sum(g.latency.count for g in report.groups) == 5


# The steps of drivers in a report, and in the table of requests.


def drivers(cli: Cli, path: Path) -> dict[str, Any]:
    """The device's drivers in the report's JSON, by name."""
    [device] = cli.json("report", path)["devices"]
    return {one["driver"]: one for one in device["drivers"]}


def test_each_driver_has_its_steps(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a request of each driver and one without steps WHEN they are reported
    path = sample().write(tmp_path / "x.biotrail")
    found = drivers(cli, path)
    # THEN each driver has its steps, which add up to D2C
    steps = {
        name: [(step["step"], step["sum_ns"]) for step in one["steps"]]
        for name, one in found.items()
    }
    assert steps == {
        "nvme": [("D to answer", 700), ("answer to driver done", 200), ("driver done to C", 100)],
        "scsi": [("D to dispatch", 100), ("dispatch to answer", 850), ("answer to C", 50)],
        "loop": [("D to file I/O", 400), ("file I/O", 400), ("file I/O to C", 200)],
    }
    for one in found.values():
        assert (one["requests"], one["undivided"]) == (1, 0)
        assert sum(step["share"] for step in one["steps"]) == pytest.approx(1)
    # AND NVMe the setup before them, SCSI its failures
    assert found["nvme"]["setup"]["sum_ns"] == 5
    assert found["scsi"]["setup"] is None
    assert (found["scsi"]["errors"], found["scsi"]["timeouts"]) == (2, 1)
    # AND the text has the same
    text = cli("report", path).out
    assert "Steps of the driver: vda (2 failed dispatches, 1 time-out)" in " ".join(text.split())
    assert "setup to D" in text
    # AND an archive
    assert cli("archive", path, "-o", tmp_path / "x.parquet").status == 0
    assert drivers(cli, tmp_path / "x.parquet") == found
    # AND the CSV, where each step is a line, and the setup one without a share
    rows = list(csv.DictReader(io.StringIO(cli("report", "--csv", path).out)))
    mine = [row for row in rows if row["section"] == "drivers"]
    assert [(row["of"], row["stage"], row["sum_ns"]) for row in mine[:4]] == [
        ("nvme", "setup to D", "5"),
        ("nvme", "D to answer", "700"),
        ("nvme", "answer to driver done", "200"),
        ("nvme", "driver done to C", "100"),
    ]
    assert mine[0]["share"] == ""
    assert {row["failed"] for row in mine if row["of"] == "scsi"} == {"2"}
    assert len(mine) == 10


def test_what_has_no_steps_is_counted_or_left_out(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a request that was issued twice, one without an answer, one that began before its issue
    log = PathLog()
    request(log, 1000, 2000, {"driver": SCSI, "begun": 900, "answered": 50}, tries=2)
    request(log, 3000, 4000, {"driver": SCSI, "begun": 900})
    request(log, 5000, 6000, {"driver": SCSI, "begun": 1005, "answered": 50})
    # AND one that can be divided
    request(log, 7000, 8000, {"driver": SCSI, "begun": 900, "answered": 50})
    # WHEN they are reported THEN it alone has steps, and the others are counted
    one = drivers(cli, log.write(tmp_path / "x.biotrail"))["scsi"]
    assert (one["requests"], one["undivided"]) == (4, 3)
    assert [step["count"] for step in one["steps"]] == [1, 1, 1]
    # GIVEN requests without steps WHEN they are reported THEN nothing is said of drivers
    log = PathLog()
    request(log, 1000, 2000)
    path = log.write(tmp_path / "x.biotrail")
    assert drivers(cli, path) == {}
    assert "Steps of the driver" not in cli("report", path).out
    # GIVEN a request of a driver with a number that no name is known for
    log = PathLog()
    request(log, 1000, 2000, {"driver": LOOP + NVME, "begun": 900, "answered": 50})
    path = log.write(tmp_path / "x.biotrail")
    # WHEN it is reported and exported THEN it has no steps, and no name
    assert drivers(cli, path) == {}
    row = json.loads(cli("export", "--what", "requests", "--format", "jsonl", path).out)
    assert row.get("driver") is None
