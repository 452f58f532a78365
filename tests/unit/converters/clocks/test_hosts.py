# SPDX-License-Identifier: Apache-2.0
"""`biotrail convert` of several logs: one sound Perfetto trace that holds what each holds alone."""

import re
from collections import Counter
from pathlib import Path

import pytest

from biotrail.cli.main import main
from biotrail.recorder.log import LogWriter
from tests.support import captures, perfetto_check
from tests.support.hosts_logs import LATENCY, SECOND, Machine

SPAN = (0, 4 * SECOND)
BIOS = list(range(SECOND // 10, 4 * SECOND, SECOND // 7))
DB1, DB2 = Machine("db1"), Machine("db2", "2" * 32, -77 * SECOND, fast=50e-6, seed=1)


def read(path, **how):
    return perfetto_check.read(path.read_bytes(), **how)


def converted(cli, path):
    target = path.with_suffix(".alone.pftrace")
    assert cli("convert", path, "-o", target).status == 0
    return target


def merged(cli, tmp_path, *paths):
    target = tmp_path / "both.pftrace"
    done = cli("convert", *paths, "-o", target, "--force")
    assert done.status == 0, done.err
    return read(target, boottime=True), done.out


def capture(tmp_path, name, host, **more):
    header = {"log_id": host.encode().hex().ljust(32, "0"), "host": {"name": host}, **more}
    return captures.write_log(tmp_path / f"{host}.biotrail", captures.load(name), header, chunks=3)


def told(trace, category):
    """What slices say, but for where they stand."""
    return Counter(
        str([s.name, s.dur, {k: v for k, v in s.args.items() if k != "host"}, len(s.children)])
        for s in trace.slices(category)
    )


def below(trace, root):
    """Tracks below a root, by path."""
    paths = {trace.path(u) for u in trace.tracks}
    return {p.removeprefix(root) for p in paths if p.startswith(f"{root}/")}


def test_it_holds_what_each_log_holds_alone(cli, tmp_path):
    # GIVEN logs of three hosts, with merges, splits, flushes, an error and stacked devices
    logs = [
        capture(tmp_path, name, host)
        for name, host in (
            ("plugged-merge-loop", "db1"),
            ("ext4-journal-on-loop", "db2"),
            ("partial-completion-error-loop", "db3"),
        )
    ]
    alone = [read(converted(cli, log)) for log in logs]
    # WHEN they are converted together
    trace, said = merged(cli, tmp_path, *logs)
    # THEN the trace is sound (uuids, parents, order, nesting: perfetto_check), has a root for
    # each host, and every slice, counter and stage of each, which says whose it is
    roots = [t.name for t in trace.tracks.values() if not t.descriptor.parent_uuid]
    assert roots == ["db1", "db2", "db3"]
    for category in ("bio", "request"):
        expected = sum((told(one, category) for one in alone), Counter())
        assert told(trace, category) == expected
        hosts = Counter(s.args["host"] for s in trace.slices(category))
        numbers = [len(one.slices(category)) for one in alone]
        assert hosts == dict(zip(roots, numbers, strict=True))
    assert len(trace.tracks) == sum(len(one.tracks) for one in alone)
    assert len(trace.sequences) == sum(len(one.sequences) for one in alone)
    samples = [sum(len(t.samples) for t in one.tracks.values()) for one in (trace, *alone)]
    assert samples[0] == sum(samples[1:])
    for one, root in zip(alone, roots, strict=True):
        here = {path.removesuffix(f" of {root}") for path in below(trace, root)}
        assert here == below(one, f"{root}: block I/O") != set()
    # AND families of different logs have different correlation ids
    families = {
        root: {s.correlation for s in trace.slices("bio") if s.args["host"] == root} - {None}
        for root in roots
    }
    assert sum(map(len, families.values())) == len(set().union(*families.values()))
    # AND each log's attributes are there, and what is said has each log's account
    assert trace.attributes["biotrail.host"] == "db1"
    assert trace.attributes["biotrail.2.host"] == "db2"
    for root in roots:
        assert re.search(rf"^{root}: [\d,]+ events$", said, re.MULTILINE)


def test_times_are_on_one_line(cli, tmp_path):
    # GIVEN the same bios at the same times on two hosts, one's clock drifting and 3 s apart
    logs = [m.write(tmp_path / f"{m.host}.biotrail", BIOS, span=SPAN) for m in (DB1, DB2)]
    # WHEN they are converted together
    trace, said = merged(cli, tmp_path, *logs)
    # THEN both stand where they were to the microsecond, on the first host's BOOTTIME
    for host in ("db1", "db2"):
        slices = [s for s in trace.slices("bio") if s.args["host"] == host]
        off = [s.start - DB1.boottime(at) for s, at in zip(slices, BIOS, strict=True)]
        assert max(map(abs, off)) < 1000, host
        assert {s.dur - LATENCY for s in slices} <= {-2, -1, 0, 1, 2}
        assert all(s.args["latency_ns"] == s.dur for s in slices)
    # AND the wall clock is the first host's alone
    readings = [c for c in trace.snapshots if perfetto_check.REALTIME in c]
    assert len(readings) == len({c[perfetto_check.BOOTTIME] for c in readings}) >= 4
    assert re.search(r"db2: by wall clock, within \d+ ns as far as the logs tell", said)
    assert "db2: its wall clock went 50 ppm slow" in said
    assert trace.attributes["biotrail.2.aligned_by"] == "wall clock"
    assert 0 < trace.attributes["biotrail.2.aligned_within_ns"] < 1000


def test_logs_of_one_boot_share_a_root(cli, tmp_path):
    # GIVEN two logs of one boot, one of an earlier boot of that host, and one of another host
    second = Machine("db1", seed=2)
    before = Machine("db1", "0" * 32, started=-5000 * SECOND)
    logs = [
        machine.write(tmp_path / f"{name}.biotrail", BIOS, span=SPAN)
        for name, machine in (("a", DB1), ("b", second), ("old", before), ("c", DB2))
    ]
    # WHEN they are converted together
    trace, said = merged(cli, tmp_path, *logs)
    # THEN each boot has its root, and logs of one boot each a group below it
    tops = {trace.path(u) for u in trace.tracks if trace.path(u).count("/") <= 1}
    assert {"db1, boot 11111111", "db1, boot 00000000", "db2"} <= tops
    assert {"db1, boot 11111111/a", "db1, boot 11111111/b"} <= tops
    assert "db1, boot 11111111/a/zram0 (252:0)/bios" in {trace.path(u) for u in trace.tracks}
    hosts = Counter(s.args["host"] for s in trace.slices("bio"))
    labels = ["db1, boot 11111111: a", "db1, boot 11111111: b", "db1, boot 00000000", "db2"]
    assert hosts == dict.fromkeys(labels, len(BIOS))
    # AND logs of one boot line up exactly
    starts = {
        label: [s.start for s in trace.slices("bio") if s.args["host"] == label]
        for label in labels[:2]
    }
    assert starts[labels[0]] == starts[labels[1]]
    assert f"{labels[1]}: the same boot, so the same clock: exact" in said


def test_to_standard_output(tmp_path, capfdbinary):
    # GIVEN two logs / WHEN they are converted to a pipe
    logs = [m.write(tmp_path / f"{m.host}.biotrail", BIOS, span=SPAN) for m in (DB1, DB2)]
    with pytest.raises(SystemExit) as ended:
        main(["convert", *map(str, logs), "-o", "-"])
    # THEN that has the trace alone, and what is said goes to standard error
    said = capfdbinary.readouterr()
    assert ended.value.code == 0
    assert len(perfetto_check.read(said.out).slices("bio")) == 2 * len(BIOS)
    assert b"2 recordings on one timeline" in said.err


@pytest.mark.parametrize("odd", [0, 1, (1 << 62) - 1])
@pytest.mark.parametrize("clock", ["monotonic", "boottime", "realtime", "uncertainty"])
def test_clocks_that_nobody_recorded(cli, tmp_path, clock, odd):
    # GIVEN a log whose header has an odd reading, beside a proper one
    logs = [DB1.write(tmp_path / "db1.biotrail", BIOS, span=SPAN), tmp_path / "odd.biotrail"]
    header = DB2.header(SPAN[0], "8" * 32)
    header["clocks"][clock] = odd
    with logs[1].open("wb") as stream:
        log = LogWriter(stream, header)
        for segments, reading in DB2.chunks(BIOS, SPAN, SECOND // 4):
            log.write_chunk(segments, reading)
        log.close({"clocks": DB2.reading(SPAN[1])})
    # WHEN they are converted together, in both orders / THEN the trace is sound, with all bios
    for paths in (logs, logs[::-1]):
        done = cli("convert", *paths, "-o", tmp_path / "both.pftrace", "--force")
        assert done.status == 0, done.err
        assert len(read(tmp_path / "both.pftrace").slices("bio")) == 2 * len(BIOS)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (["one", "two"], 2, "logs of several recordings have no default output: give -o OUT"),
        (["one", "two", "-o", "x.otf2"], 2, "convert to otf2 one by one"),
        (["one", "-", "-o", "x.pftrace"], 2, "- is one log from a pipe"),
        (["one", "again", "-o", "x.pftrace"], 1, "are the same log: give each once"),
        (["one", "none", "-o", "x.pftrace"], 1, "none.biotrail"),
        (["one", "unclocked", "-o", "x.pftrace"], 1, "holds no reading of the clocks"),
        (["one", "two", "-o", "there.pftrace"], 1, "will not overwrite it without --force"),
    ],
)
def test_what_cannot_be_done_is_said(cli, tmp_path, monkeypatch, arguments, status, message):
    # GIVEN logs, one of them twice, one without clocks, and a file in the way
    monkeypatch.chdir(tmp_path)
    DB1.write(Path("one.biotrail"), BIOS, span=SPAN)
    DB1.write(Path("again.biotrail"), BIOS, span=SPAN, log_id=b"one".hex().ljust(32, "0"))
    DB2.write(Path("two.biotrail"), BIOS, span=SPAN)
    with Path("unclocked.biotrail").open("wb") as stream:
        LogWriter(stream, {"log_id": "9" * 32}).close({})
    Path("there.pftrace").write_text("mine")
    before = sorted(path.name for path in Path().iterdir())
    # WHEN they are converted together / THEN the message says it, and nothing is left behind
    words = [f"{a}.biotrail" if a.isalpha() and a != "-" else a for a in arguments]
    done = cli("convert", *words)
    assert (done.status, message in done.err) == (status, True), done.err
    assert sorted(path.name for path in Path().iterdir()) == before
    assert Path("there.pftrace").read_text() == "mine"


def test_colours_are_chosen_for_several_logs_as_for_one(cli, tmp_path):
    # GIVEN logs of two hosts / WHEN families are to share a colour THEN those of both do
    logs = [capture(tmp_path, "plugged-merge-loop", host) for host in ("db1", "db2")]
    out = tmp_path / "family.pftrace"
    done = cli("convert", "--colour", "family", *logs, "-o", out)
    assert done.status == 0, done.err
    families = Counter(s.correlation for s in read(out).slices("bio"))
    assert None not in families and set(families.values()) == {1}
    # AND less of each bio can be drawn, but not in parts
    assert cli("convert", "--detail", "bios", *logs, "-f", "-o", out).status == 0
    assert not read(out).slices("request")
    assert cli("convert", "--max-size", "1M", *logs, "-f", "-o", out).status == 2
    # AND other outputs have no colours
    done = cli("convert", "--colour", "family", logs[0], "-o", tmp_path / "a.otf2")
    assert (done.status, "--colour is for Perfetto" in done.err) == (2, True)
