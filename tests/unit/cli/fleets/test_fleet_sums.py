# SPDX-License-Identifier: Apache-2.0
"""The parts of a fleet's report add up to the report of all I/O, in any order, and pickled."""

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli import cluster
from biotrail.cli.cluster import ReadOptions
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.fleet.closing import make_report
from biotrail.converters.analysis.fleet.part import Part
from biotrail.converters.analysis.fleet.tree import FleetReport, as_dict
from biotrail.converters.analysis.report import report
from biotrail.converters.pipeline import Trace
from tests.support import named_logs
from tests.support.fleet_archives import fleet, host_archive, log_of

HOSTS = 3
RATES = ("ios_per_s", "bytes_per_s", "depth")


def closed(path: Path, asked: ReadOptions, columns: dict[str, str] | None = None) -> Part:
    part = cluster.read([str(path)], columns or {}, asked)
    assert not part.left_out
    return pickle.loads(pickle.dumps(cluster.close([pickle.loads(pickle.dumps(part))], asked)))


def reported(paths: list[Path], by: str = "host", columns: Any = None) -> FleetReport:
    asked = ReadOptions(by)
    parts = [closed(path, asked, (columns or {}).get(path.stem)) for path in paths]
    return make_report(cluster.merged(parts), by, 0.95)


def without_rates(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_rates(one) for key, one in value.items() if key not in RATES}
    return [without_rates(one) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("capture", ["fsync-virtio", "plugged-merge-loop", "split-write-loop"])
def test_the_sum_of_archives_is_the_report_of_their_concatenation(
    tmp_path: Path, capture: str
) -> None:
    # GIVEN a log, and one with its I/O three times over
    once = log_of(tmp_path / "once.biotrail", capture)
    often = log_of(tmp_path / "often.biotrail", capture, HOSTS)
    # WHEN three hosts have the I/O of the first
    found = reported(fleet(tmp_path / "set", HOSTS, once))
    # THEN their report has the figures of the second's, but for rates: that has pauses between
    whole = as_json(report.make_report(Trace(often)))
    ours = as_json(found.total)
    assert without_rates(ours["total"]) == without_rates(whole["total"])
    assert whole["total"]["ios"] > 0
    operations = {one["operation"]: without_rates(one) for one in ours["operations"]}
    if len(whole["devices"]) == 1:
        (device,) = whole["devices"]
        theirs = [{k: v for k, v in one.items() if k != "device"} for one in device["operations"]]
        assert operations == {one["operation"]: without_rates(one) for one in theirs}
        assert ours["flushes"] == device["flushes"]
        assert ours["events"] == device["events"]
        assert ours["depth"]["queue"]["active_ns"] == device["depth"]["queue"]["active_ns"]
    assert found.certainty == whole["certainty"]


def test_one_archive_has_the_figures_of_its_own_report(tmp_path: Path) -> None:
    # GIVEN the archive of a log with one device WHEN it is the whole fleet
    log = log_of(tmp_path / "a.biotrail", times=4)
    (path,) = fleet(tmp_path / "set", 1, log)
    found = as_json(reported([path]).total)
    # THEN every figure is that of the report, rates, depths and patterns, too
    (device,) = as_json(report.make_report(Trace(log)))["devices"]
    operations = [
        {k: v for k, v in one.items() if k not in ("device", "depth")}
        for one in device["operations"]
    ]
    assert found["operations"] == operations
    for key in ("depth", "pattern", "flushes", "events"):
        assert found[key] == device[key]


def test_parts_add_up_to_the_same_in_any_order(tmp_path: Path) -> None:
    # GIVEN four hosts with different I/O
    captures = ("fsync-virtio", "plugged-merge-loop", "split-write-loop", "bio-based-zram")
    paths = [host_archive(tmp_path, f"h{n}", name) for n, name in enumerate(captures)]
    asked = ReadOptions("model")
    parts = [closed(path, asked) for path in paths]
    # WHEN they are added up one after the other, and in pairs the other way round
    one = cluster.merged(parts)
    two = cluster.merged([cluster.merged(parts[:1:-1]), cluster.merged(parts[1::-1])])
    # THEN the reports are equal
    first, second = (json.dumps(as_dict(make_report(p, "model", 0.95))) for p in (one, two))
    assert first == second


def test_groups_are_hosts_devices_and_columns_of_the_table(tmp_path: Path) -> None:
    # GIVEN two hosts, one of them in a table
    paths = [host_archive(tmp_path, name) for name in ("db1", "db2")]
    columns = {"db1": {"rack": "r7"}}
    # WHEN they are grouped by each word THEN all bios are in groups of the right names
    named = {
        by: {one.name: one.total.bios.ios for one in reported(paths, by, columns).groups}
        for by in ("host", "kernel", "device", "model", "cgroup", "rack")
    }
    ios = reported(paths).total.total.bios.ios
    assert {by: sum(groups.values()) for by, groups in named.items()} == dict.fromkeys(named, ios)
    assert named["host"] == {"db1": ios // 2, "db2": ios // 2}
    assert named["rack"] == {"r7": ios // 2, "unknown": ios // 2}
    assert len(named["kernel"]) == 1


def test_groups_are_what_people_call_cgroups(tmp_path: Path) -> None:
    # GIVEN archives of two hosts with a unit, containers and a pod each
    uid, web, nginx = "0f8fad5b-d9cb-469f-a165-70867728950e", "a1" * 32, "c3" * 32
    pods = "/kubepods/burstable/pod"
    cgroups = {
        1: "/system.slice/db.service/workers",
        2: f"/docker/{web}",
        3: f"{pods}{uid}/{nginx}",
        4: f"{pods}1{uid[1:]}",
        5: f"/machine.slice/libpod-conmon-{web}.scope",
    }
    named = {web: {"name": "web"}, nginx: {"name": "nginx"}}
    names = {"containers": named, "pods": {uid: {"name": "web-0", "namespace": "shop"}}}
    reads = [one for one in (*cgroups, 99) for _ in range(one)]
    log = named_logs.write(tmp_path / "a.biotrail", reads, cgroups, names)
    paths = fleet(tmp_path / "set", 2, log)
    # WHEN they are grouped / THEN groups of one name are one on both
    found = {
        by: {one.name: one.total.bios.ios for one in reported(paths, by).groups}
        for by in ("unit", "container", "pod", "namespace")
    }
    assert found == {
        "unit": {"db.service": 2, f"libpod-conmon-{web}.scope": 10, "(none)": 18, "unknown": 198},
        "container": {"web": 4, "nginx": 6, "web (its monitor)": 10, "(none)": 10, "unknown": 198},
        "pod": {"shop/web-0": 6, f"1{uid[1:]}": 8, "(none)": 16, "unknown": 198},
        "namespace": {"shop": 6, "(none)": 16, "unknown": 206},
    }


def test_recordings_of_one_host_are_one_host(tmp_path: Path) -> None:
    # GIVEN two recordings of one host
    for number in range(2):
        (tmp_path / str(number)).mkdir()
    paths = [
        host_archive(tmp_path / str(n), "db1", log_id=f"{n}" * 32, times=n + 1) for n in range(2)
    ]
    asked = ReadOptions("host")
    # WHEN the host is closed
    part = cluster.close([cluster.read([str(path)], {}, asked) for path in paths], asked)
    # THEN it is one group and one host of two recordings, whose lengths add up
    found = make_report(part, "host", 0.95)
    (one,) = found.groups
    (host,) = found.hosts
    assert (one.hosts, one.recordings, host.recordings, len(found.recordings)) == (1, 2, 2, 2)
    assert one.span_ns == host.span_ns == sum(r.span_ns for r in found.recordings)


def test_options_that_differ_are_told(tmp_path: Path) -> None:
    # GIVEN three recordings, of which one was made with stacks
    paths = [host_archive(tmp_path, host) for host in ("db1", "db2")]
    paths.append(host_archive(tmp_path, "db3", stacks={"user": False}))
    # WHEN they are reported THEN that is told, and nothing of options that are alike
    assert as_dict(reported(paths))["unlike_options"] == [
        {"option": "--stacks", "values": {"no": 2, "kernel": 1}}
    ]
    assert as_dict(reported(paths[:2]))["unlike_options"] == []
