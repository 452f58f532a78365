# SPDX-License-Identifier: Apache-2.0
"""A fleet's report: which archives are found, what workers add up, and docs/fleet.md's queries."""

import ctypes
import io
import json
import os
import pickle
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from biotrail.cli import cluster
from biotrail.cli.cluster import ReadOptions, Seen, analyse, client_of, hosts_of, look
from biotrail.cli.fleet import find
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.fleet.closing import make_report
from biotrail.converters.analysis.fleet.part import Part
from biotrail.converters.analysis.fleet.tree import FleetReport, LeftOut, as_dict
from biotrail.converters.analysis.report import report
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.errors import ConversionError, TraceError
from biotrail.text.fleet import parts
from tests.support import blame_logs, named_logs
from tests.support.blame_logs import MS, US
from tests.support.cli_runner import Cli, page_data
from tests.support.fleet_archives import archive_of, fleet, host_archive, log_of
from tests.support.hostile_places import put
from tests.support.hosts_logs import SECOND, Machine
from tests.support.paths import ROOT
from tests.support.s3_server import S3Server, s3_server
from tests.support.shipped_logs import write_log

# What is called as archives are, and is none, is named as what it is.

WRONG = {
    "dangling.parquet": "is a link to nowhere, which is not there",
    "fifo.parquet": "is a FIFO",
    "fifo.biotrail": "is a FIFO",
    "socket.parquet": "is a socket",
    "directory.parquet": "is a directory",
    "link.parquet": "is a directory",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a log, and with what only has the names of archives."""
    place = tmp_path / "place"
    (place / "more.parquet").mkdir(parents=True)
    write_log(place / "run.biotrail", 1)
    write_log(place / "more.parquet" / "run.biotrail", 2)
    put(place / "dangling.parquet", "symbolic link", Path("nowhere"))
    for name in ("fifo.parquet", "fifo.biotrail"):
        put(place / name, "FIFO", place)
    put(place / "socket.parquet", "socket", place)
    (place / "directory.parquet").mkdir()
    put(place / "link.parquet", "symbolic link", place / "directory.parquet")
    return place


@pytest.mark.parametrize("given", ["", "*"])
def test_a_fleet_names_what_is_no_file(place: Path, given: str) -> None:
    # GIVEN such a directory WHEN it is looked through, or by a glob
    found = find([str(place / given)])
    # THEN all that is no file is looked at, and named; the logs are found
    said = {one.file: one.why for one in map(look, found) if isinstance(one, LeftOut)}
    assert said == {str(place / name): why for name, why in WRONG.items()}
    logs = [str(place / "more.parquet" / "run.biotrail"), str(place / "run.biotrail")]
    assert sorted(set(found) - set(said)) == logs


def test_one_that_is_given_is_named(place: Path) -> None:
    # GIVEN the path of one of them WHEN it is given THEN it is named as well
    for name in ("dangling.parquet", "fifo.parquet", "socket.parquet"):
        [path] = find([str(place / name)])
        assert look(path) == LeftOut(str(place / name), WRONG[name])
    with pytest.raises(ConversionError, match=r"directory\.parquet: a directory without archives"):
        find([str(place / "directory.parquet")])


@pytest.mark.parametrize("command", ["archive", "verify", "info"])
@pytest.mark.parametrize("name", ["dangling", "fifo", "socket", "directory"])
def test_other_commands_name_them_too(place: Path, cli: Cli, command: str, name: str) -> None:
    # GIVEN one of them WHEN a command is to read it
    done = cli(command, place / f"{name}.parquet")
    # THEN one message says what it is, and nothing is waited for
    assert done.status == 1
    said = done.out + done.err
    assert said.count("\n") == 1
    assert f"{name}.parquet: " in said
    assert WRONG[f"{name}.parquet"] in said
    assert "Traceback" not in said


# The parts of a fleet's report add up to the report of all I/O, in any order, and pickled.

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


# A fleet's report by Dask's workers: hosts that disagree, workers that end, storage elsewhere.


def here(files: list[str], asked: ReadOptions) -> Part:
    """What the workers would do, in this process."""
    seen, left_out = [], []
    for one in map(cluster.look, files):
        (seen if isinstance(one, Seen) else left_out).append(one)
    hosts, double = hosts_of(seen)
    parts = [
        cluster.close([cluster.read(files, {}, asked) for files in host.recordings], asked)
        for host in hosts.values()
    ]
    part = cluster.merged(parts)
    part.left_out += [*left_out, *double]
    return part


def shown(part: Part) -> str:
    return json.dumps(as_dict(make_report(part, "host", 0.95)))


class Mallinfo(ctypes.Structure):
    """What mallinfo2 of glibc returns; hblkhd: bytes of blocks that are mappings of their own."""

    _fields_ = (
        ("before", ctypes.c_size_t * 4),
        ("hblkhd", ctypes.c_size_t),
        ("behind", ctypes.c_size_t * 5),
    )


def mapped_for_a_column() -> int:
    """Bytes that are mapped for a column of 2 MiB alone."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    before = mallinfo().hblkhd
    column = ctypes.create_string_buffer(2 << 20)
    mapped = mallinfo().hblkhd - before
    del column
    return int(mapped)


def test_workers_keep_freed_memory() -> None:
    # GIVEN a worker of this machine's cluster  WHEN it asks for a window's column
    with client_of(None, 1) as client:
        mapped = client.run(mapped_for_a_column)
    # THEN the column is where others were, not in a mapping of its own
    assert list(mapped.values()) == [0]


def test_a_worker_killed_midway_changes_nothing(tmp_path: Path) -> None:
    # GIVEN twelve hosts, and two workers
    files = list(map(str, fleet(tmp_path / "set", 12, log_of(tmp_path / "a.biotrail"))))
    asked, killed = ReadOptions("host"), []
    with client_of(None, 2) as client:

        def told(words: str) -> None:
            # WHEN one of them is killed once two recordings have been read
            if words.startswith("2 of 12 recordings"):
                pids = client.run(os.getpid)
                killed.append(next(iter(pids.values())))
                os.kill(killed[0], signal.SIGKILL)

        part = analyse(client, files, {}, asked, told)
    # THEN the report is the same as without workers
    assert killed
    assert not part.left_out
    assert shown(part) == shown(here(files, asked))


def test_files_that_cannot_be_read_are_named_and_the_others_reported(
    tmp_path: Path, cli: Cli
) -> None:
    # GIVEN two good archives, a cut one, a copy, a text, one of a newer format, and a damaged one
    good = [host_archive(tmp_path, name, times=3) for name in ("db1", "db2")]
    data = good[0].read_bytes()
    (tmp_path / "cut.parquet").write_bytes(data[: len(data) // 2])
    (tmp_path / "db2x.parquet").write_bytes(good[1].read_bytes())
    (tmp_path / "text.parquet").write_text("no archive\n" * 100)
    (tmp_path / "newer.parquet").write_bytes(newer(data))
    damaged = bytearray(host_archive(tmp_path, "db3", times=3).read_bytes())
    damaged[2000:2100] = bytes(100)
    (tmp_path / "db3.parquet").write_bytes(damaged)
    # WHEN the directory is reported
    done = cli("fleet", "report", tmp_path, "--json", "--workers", "1")
    # THEN the good ones are in the figures, the damaged one as far as it goes, the others named
    assert (done.status, done.err) == (0, "")
    report = json.loads(done.out)
    assert [one["host"] for one in report["hosts"]] == ["db1", "db2", "db3"]
    left_out = {Path(one["file"]).name: one["why"] for one in report["left_out"]}
    assert set(left_out) == {"cut.parquet", "db2x.parquet", "text.parquet", "newer.parquet"}
    assert "same log" in left_out["db2x.parquet"]
    assert "newer biotrail" in left_out["newer.parquet"]
    (incomplete,) = [one for one in report["incomplete"] if one["problem_count"]]
    assert incomplete["host"] == "db3"
    assert "cannot be read" in incomplete["problems"][0]


def newer(data: bytes) -> bytes:
    """The archive with a later format's number in its metadata, of the same length."""
    name = b"biotrail.format"
    at = data.index(name)
    place = data.index(b"1", at + len(name))
    return data[:place] + b"9" + data[place + 1 :]


def test_files_of_a_rotated_run_are_one_recording(tmp_path: Path) -> None:
    # GIVEN a rotated recording, with a bio in flight at each border, as archives
    queued = sorted(
        [*range(1000, 4 * SECOND, 7_000_000), *(at * SECOND // 4 - 20_000 for at in range(1, 16))]
    )
    logs = Machine("db1").write_rotated(tmp_path / "a.biotrail", queued, span=(0, 4 * SECOND))
    for log in logs:
        archive_of(log, log.with_suffix(".parquet"))
    # WHEN they are read
    part = here(find([str(tmp_path / "*.parquet")]), ReadOptions("host"))
    # THEN they are one recording, in which every bio is whole
    (facts,) = part.recordings
    assert len(facts.files) == len(logs)
    assert facts.complete
    (total,) = make_report(part, "host", 0.95).total.operations
    assert total.bios.counters["ended"] == len(queued)


def test_who_waited_for_whom_adds_up(tmp_path: Path) -> None:
    # GIVEN a reader beside a writer on two hosts, and a reader alone on a third
    beside, alone = blame_logs.beside_a_writer(), blame_logs.alone("app", 600, 10 * MS)
    for host, ios in (("db1", beside), ("db2", beside), ("db3", alone)):
        blame_logs.write(tmp_path / f"{host}.biotrail", ios, host=host)
    files = find([str(tmp_path)])
    # WHEN they are read with blame
    told = as_dict(
        make_report(here(files, ReadOptions("host", blame="process")), "host", 0.95, "process")
    )
    # THEN each host has its victims, and their sums are the fleet's, by name, to the nanosecond
    assert told["blame_by"] == "process"
    [app] = [one for one in told["blame"] if one["name"] == "app"]
    assert (app["ios"], app["wait_ns"]) == (1800, 1800 * 50 * US + 240 * 500 * US)
    hosts = {host["host"]: {v["name"]: v for v in host["blame"]} for host in told["hosts"]}
    behind = {"kind": "other I/O", "culprit": "backup"}
    assert {**behind, "wait_ns": 240 * 500 * US} in app["parts"]
    for host in ("db1", "db2"):
        assert {**behind, "wait_ns": 120 * 500 * US} in hosts[host]["app"]["parts"]
    assert [part["kind"] for part in hosts["db3"]["app"]["parts"]] == ["own service"]
    # AND it has the first sentences of its report
    assert all(host["verdict"][0]["sentence"] and host["verdict_of"] for host in told["hosts"])
    # AND the text names the culprit by host
    to = Console(file=io.StringIO(), width=160)
    made = make_report(here(files, ReadOptions("host", blame="process")), "host", 0.95, "process")
    for part in parts(made, 160, None):
        to.print(part)
    assert isinstance(to.file, io.StringIO)
    text = " ".join(to.file.getvalue().split())
    assert "Whose I/O made whose I/O wait, by process, of all hosts" in text
    assert "db2 app backup 60 ms" in text and "* db3: " in text
    # AND without the option there is nothing of it
    assert as_dict(make_report(here(files, ReadOptions("host")), "host", 0.95))["blame"] is None


def test_a_host_without_the_chosen_time_is_left_out(tmp_path: Path) -> None:
    # GIVEN two hosts that recorded at other times WHEN a time of the first is chosen
    (tmp_path / "set").mkdir()
    for host, begin in (("db1", 0), ("db2", 3600 * SECOND)):
        Machine(host).write(
            tmp_path / "set" / f"{host}.biotrail",
            range(begin + 1000, begin + SECOND, 7_000_000),
            span=(begin, begin + SECOND),
        )
    from biotrail.cli.options.cuts import Cut, Times, parse_moment

    times = Times(parse_moment("2026-09-21T14:13:20Z"), parse_moment("2026-09-21T14:13:21Z"))
    part = here(find([str(tmp_path / "set")]), ReadOptions("host", Cut(times)))
    # THEN the other is left out, with the reason
    assert [one.host for one in part.recordings] == ["db1"]
    assert [Path(one.file).name for one in part.left_out] == ["db2.biotrail"]


def test_no_scheduler_is_one_message(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a port at which nothing listens
    monkeypatch.setattr(cluster, "_PATIENCE", 1)
    path = host_archive(tmp_path, "db1")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        # WHEN it is given as the scheduler
        done = cli("fleet", "report", path, "--scheduler", address)
    # THEN there is one line, and nothing else
    assert done.status == 1
    assert done.err.startswith(f"biotrail: error: {address}: no Dask scheduler answers there")
    assert (done.err.count("\n"), done.out) == (1, "")


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """An S3 server with the bucket "logs"."""
    with s3_server() as server:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, server.environment[name])
        server.files().create_dir("logs")
        yield server


def url_of(server: S3Server, place: str) -> str:
    return f"s3://{place}?endpoint_override=127.0.0.1:{server.port}&scheme=http&region=us-east-1"


def test_archives_are_read_from_object_storage(tmp_path: Path, s3: S3Server) -> None:
    # GIVEN two archives in a bucket
    paths = [host_archive(tmp_path, name, times=3) for name in ("db1", "db2")]
    for path in paths:
        with s3.files().open_output_stream(f"logs/2026-11/{path.name}") as stream:
            stream.write(path.read_bytes())
    # WHEN they are found by a glob, and read
    urls = find([url_of(s3, "logs/2026-11/*.parquet")])
    part = here(urls, ReadOptions("host"))
    # THEN the figures are those of the files
    assert len(urls) == len(paths)
    local = here(list(map(str, paths)), ReadOptions("host"))
    theirs, ours = (make_report(one, "host", 0.95) for one in (part, local))
    assert as_dict(theirs) == as_dict(ours)


def test_a_missing_bucket_is_one_message(s3: S3Server) -> None:
    # GIVEN no bucket of that name WHEN it is listed THEN the message says which
    with pytest.raises(TraceError, match="nowhere"):
        find([url_of(s3, "nowhere/*.parquet")])


def test_a_copy_of_a_log_is_left_out() -> None:
    # GIVEN one log twice, in two files
    seen = [Seen(name, "db1", "1" * 32, "1" * 32) for name in ("a", "b")]
    # WHEN recordings are made of them
    hosts, double = hosts_of(seen)
    # THEN the second is left out
    assert hosts["db1"].recordings == [["a"]]
    assert double == [LeftOut("b", "is the same log as a")]


def test_an_archive_is_read_rather_than_its_log() -> None:
    # GIVEN a log that may be cut off, and its archive, also at URLs with options
    for end in ("", "?endpoint_override=127.0.0.1:9000"):
        log, archive = f"s3://logs/a.biotrail{end}", f"s3://logs/b.parquet{end}"
        seen = [Seen(name, "db1", "1" * 32, "1" * 32) for name in (log, archive)]
        # WHEN recordings are made of them
        hosts, double = hosts_of(seen)
        # THEN the archive is read, though it is the second by name
        assert hosts["db1"].recordings == [[archive]]
        assert double == [LeftOut(log, f"is the same log as {archive}")]


def test_a_scheduler_that_goes_is_one_message(tmp_path: Path) -> None:
    # GIVEN a cluster WHEN its scheduler ends after the first recording
    files = list(map(str, fleet(tmp_path / "set", 6, log_of(tmp_path / "a.biotrail"))))
    with client_of(None, 1) as client:

        def told(words: str) -> None:
            if words.startswith("1 of 6 recordings"):
                client.cluster.sync(client.cluster.scheduler.close)

        # THEN the message says so
        with pytest.raises(TraceError, match="connection to the scheduler was lost"):
            analyse(client, files, {}, ReadOptions("host"), told)


def test_the_page_holds_the_report(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a host whose name could be markup
    nasty = "<img src=x onerror=alert(1)>"
    log = log_of(tmp_path / "db1.log", host={"name": nasty})
    archive_of(log, tmp_path / "db1.parquet")
    out = tmp_path / "fleet.html"
    # WHEN its page is written
    done = cli("fleet", "report", "--workers", "1", tmp_path / "db1.parquet", "-o", out)
    # THEN the page has the host as data, and no markup
    assert (done.status, done.err) == (0, "")
    assert [one["host"] for one in page_data(out)["report"]["hosts"]] == [nasty]
    assert nasty not in out.read_text()
    # and it is not replaced without --force
    again = cli("fleet", "report", "--workers", "1", tmp_path / "db1.parquet", "-o", out)
    assert (again.status, "--force" in again.err) == (1, True)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("name,rack\ndb1,r1\n", "one of them 'host'"),
        ("host,rack\ndb1,r1\ndb1,r2\n", ":3: the host 'db1' is in the table twice"),
    ],
)
def test_a_wrong_table_of_hosts_is_one_message(
    tmp_path: Path, cli: Cli, table: str, message: str
) -> None:
    # GIVEN a table WHEN it is used THEN the message says what is wrong with it
    path = tmp_path / "hosts.csv"
    path.write_text(table)
    done = cli("fleet", "report", "--hosts", path, "--by", "rack", tmp_path)
    assert done.status == 1
    assert message in done.err


# docs/fleet.md: its queries run on a dataset.

PAGE = ROOT / "docs" / "fleet.md"
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)


def test_the_queries_of_the_page_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a dataset of two hosts, with reads
    paths = [host_archive(tmp_path, name, "split-write-loop", 2) for name in ("db1", "db2")]
    assert Cli(capsys)("archive", *paths, "-o", tmp_path / "archive").status == 0
    monkeypatch.chdir(tmp_path)
    # WHEN the page's queries run, for writes, of which the sample consists
    [text] = BLOCK.findall(PAGE.read_text())
    scope: dict[str, Any] = {}
    exec(text.replace("'read'", "'write'"), scope)
    # THEN each has both hosts, which did the same (test_parquet_docs compares engines)
    bios, events = scope["reads"], scope["issues"]
    assert [row[0] for row in bios] == [row[0] for row in events] == ["db1", "db2"]
    assert bios[0][1:] == bios[1][1:]
    assert events[0][1:] == events[1][1:]
