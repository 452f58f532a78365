# SPDX-License-Identifier: Apache-2.0
"""I/O by the names that people use for cgroups: units, containers, pods, namespaces."""

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
from biotrail.converters.analysis.live import totals as totals_module
from biotrail.converters.analysis.live.totals import LABELS, Totals
from biotrail.converters.pipeline import Trace
from tests.support import named_logs
from tests.support.cli_runner import Cli

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
UNKNOWN = 99
READS_OF = {n: n for n in (*CGROUPS, UNKNOWN)}
READS = [n for n in (*CGROUPS, UNKNOWN) for _ in range(n)]


def groups(cli: Cli, log: Path, by: str, *more: str) -> list[Mapping[str, Any]]:
    told: dict[str, Any] = json.loads(cli("report", "--json", "--by", by, *more, log).out)
    found: list[Mapping[str, Any]] = told["groups"]
    return found


@pytest.fixture(params=[False, True], ids=["before", "after"])
def log(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
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
                ("not known", None, None): UNKNOWN,
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
                ("not known", None, None, None, None, None): UNKNOWN,
            },
        ),
        (
            "pod",
            ("cgroup_kind", "pod", "namespace", "pod_uid"),
            {
                ("pod", "web-0", "shop", UID): 15,
                ("pod", None, None, UID_2): 9,
                ("none", None, None, None): 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11 + 12,
                ("not known", None, None, None): UNKNOWN,
            },
        ),
        (
            "namespace",
            ("cgroup_kind", "namespace"),
            {
                ("namespace", "shop"): 15,
                ("none", None): 1 + 2 + 3 + 4 + 5 + 6 + 10 + 11 + 12,
                ("not known", None): 9 + UNKNOWN,
            },
        ),
    ],
)
def test_ios_are_grouped_by_what_their_cgroup_is(
    cli: Cli, log: Path, by: str, fields: tuple[str, ...], expected: dict[Any, int]
) -> None:
    # GIVEN reads of cgroups, as many as the cgroup's number
    # WHEN they are grouped
    found = groups(cli, log, by)
    # THEN each group has those of all its cgroups, whenever their names became known
    assert {tuple(one[f] for f in fields): one["ios"] for one in found} == expected
    assert len(found) == len(expected)


def test_intervals_have_each_group_once(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a container with two cgroups / WHEN there is a time series by container
    log = named_logs.write(tmp_path / "x.biotrail", [4, 5, 4, 5], CGROUPS, NAMES)
    told = json.loads(cli("report", "--json", "--by", "container", "--interval", "1s", log).out)
    # THEN the container is one group
    (interval,) = told["intervals"]
    assert [(one["container"], one["ios"]) for one in interval["groups"]] == [("web", 4)]


def test_cgroups_are_shown_with_names(cli: Cli, log: Path) -> None:
    # WHEN the log is reported
    text = cli("report", log).out
    # THEN each path has a name beside it
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


def test_tables_by_container_say_what_has_no_name(cli: Cli, log: Path) -> None:
    # WHEN groups are shown as text
    text = cli("report", "--by", "container", log).out
    # THEN cgroups of no container are "(none)", those without a path "(unknown)"
    by = text[text.index("By container") : text.index("Where the time goes, by")]
    firsts = [line.split()[0] for line in by.splitlines()[2:] if line.strip()]
    assert {"web", "nginx", "vm", B[:12], "(none)", "(unknown)"} <= set(firsts)


def test_json_and_csv_keep_the_path(cli: Cli, log: Path) -> None:
    # WHEN the cgroups are read / THEN they have path, id and what they are
    told = json.loads(cli("report", "--json", log).out)
    web = next(one for one in told["cgroups"] if one["cgroup_id"] == 7)
    assert web["cgroup"] == CGROUPS[7]
    assert (web["container"], web["pod"], web["namespace"]) == ("nginx", "web-0", "shop")
    lines = csv.DictReader(io.StringIO(cli("report", "--csv", log).out))
    rows = [row for row in lines if row["section"] == "cgroups" and row["cgroup_id"] == "7"]
    assert {(row["cgroup"], row["container"], row["pod_uid"]) for row in rows} == {
        (CGROUPS[7], "nginx", UID)
    }


def test_tables_have_columns(tmp_path: Path) -> None:
    # GIVEN a log / WHEN its bios are a table / THEN they say what each cgroup is
    log = named_logs.write(tmp_path / "x.biotrail", [2, 7, UNKNOWN], CGROUPS, NAMES)
    names = ["cgroup", "unit", "container", "container_id", "pod", "namespace"]
    rows = [tuple(row.values()) for row in biotrail.open(log).bios.select(names).to_pylist()]
    assert rows == [
        (CGROUPS[2], "db.service", None, None, None, None),
        (CGROUPS[7], None, "nginx", C, "web-0", "shop"),
        ("id 99", None, None, None, None, None),
    ]


def test_a_log_without_names_has_those_of_its_paths(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a log of an older recorder / WHEN its containers are read / THEN ids stand for names
    log = named_logs.write(tmp_path / "x.biotrail", [4, 7], CGROUPS)
    found = groups(cli, log, "container")
    assert [(one["container"], one["container_id"]) for one in found] == [(None, A), (None, C)]
    assert [one["pod_uid"] for one in groups(cli, log, "pod")] == [None, UID]


@pytest.mark.parametrize(
    ("options", "ios", "unknown"),
    [
        (("--unit", "db"), 5, UNKNOWN),
        (("--unit", "system.slice"), 5 + 9 + 12, UNKNOWN),
        (("--container", "web"), 9, UNKNOWN + 6 + 8),
        (("--container", B[:12]), 6, UNKNOWN + 8),
        (("--pod", "shop/web-0"), 7 + 8, UNKNOWN + 9),
        (("--pod", UID_2), 9, UNKNOWN),
        (("--unit", "db.service", "--container", "vm", "--cgroup", "/docker"), 5 + 10 + 6, None),
    ],
)
def test_logs_are_cut_by_names(
    cli: Cli, log: Path, options: tuple[str, ...], ios: int, unknown: int | None
) -> None:
    # GIVEN a log with names, before or behind the events WHEN it is cut by some of them
    found = cli("report", "--json", *options, log)
    # THEN what bears them, and what is below, is in the report
    told = json.loads(found.out)
    assert sum(one["ios"] for one in told["cgroups"]) == ios
    # AND in others
    assert cli("slow", "--json", "--slower-than", "0", "--limit", "1000", *options, log).status == 0
    # AND how many are of a cgroup whose names are not known is told
    if unknown is not None:
        assert f"{unknown}" in cli("report", *options, log).out


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
                ("",): 1 + 6 + 7 + 8 + 9 + UNKNOWN,
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
                ("", "", ""): 1 + 5 + 12 + UNKNOWN,
            },
        ),
        ("pod", {("web-0", "shop"): 15, (UID_2, ""): 9, ("", ""): sum(READS_OF.values()) - 24}),
        ("namespace", {("shop",): 15, ("",): sum(READS_OF.values()) - 15}),
    ],
)
def test_metrics_have_them_as_labels(
    log: Path, by: str, expected: Mapping[tuple[str, ...], int]
) -> None:
    # GIVEN a log WHEN its figures are served by what the cgroups are
    trace = Trace(str(log))
    totals = Totals(trace.context, by)
    for window in trace.lifecycles():
        totals.add(window)
    served = [figures(one, len(LABELS[by])) for one in totals.groups()]
    # THEN each name has its own
    assert {one.labels: one.ios for one in by_name(served)} == expected


def test_names_of_metrics_are_bounded(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN room for two names WHEN there are more
    monkeypatch.setattr(totals_module, "MOST", 2)
    trace = Trace(str(log))
    totals = Totals(trace.context, "pod")
    for window in trace.lifecycles():
        totals.add(window)
    served = by_name(figures(one, 2) for one in totals.groups())
    # THEN the others are one, and nothing is missing
    assert {one.labels for one in served} == {("", ""), ("web-0", "shop"), ("other", "other")}
    assert sum(one.ios for one in served) == len(READS)
