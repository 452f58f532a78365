# SPDX-License-Identifier: Apache-2.0
"""info, dump and convert: from a log to what a person reads."""

import io
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader, LogWriter
from biotrail.recorder.schema.records import BY_LETTER
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.paths import ROOT

SAMPLE = ROOT / "biotrail" / "data" / "demo.biotrail"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A captured sequence of plugged, merged writes."""
    path = tmp_path / "captured.biotrail"
    captures.write_log(path, captures.load("plugged-merge-loop"))
    return path


def account_of(done: Any) -> dict[str, Any]:
    facts = json.loads(done.out)
    account: dict[str, Any] = facts["account"]
    return account


def test_info_accounts_for_every_event(cli: Cli, log: Path) -> None:
    # GIVEN a log of known events
    events = captures.load("plugged-merge-loop")
    # WHEN its account is asked for
    account = account_of(cli("info", "--json", log))
    # THEN each event is in it once, by kind and by reason
    for letter in {event["letter"] for event in events}:
        count = sum(event["letter"] == letter for event in events)
        assert account["kinds"][letter] == count, letter
    assert sum(account["reasons"].values()) == account["events"]


def test_info_for_people_has_the_same_figures(cli: Cli) -> None:
    # GIVEN the sample log WHEN it is looked at in both ways
    said, facts = cli("info", SAMPLE).out, json.loads(cli("info", "--json", SAMPLE).out)
    # THEN both say the same
    account = facts["account"]
    assert f"events        {account['events']:,}" in said
    assert f"{account['bios']['exact']:,} exact" in said
    assert facts["time"]["first"] in said
    unseen = account["completions_not_seen"]
    told = f"the completion of {unseen:,} request" if unseen else "nothing"
    assert facts["lost"] == {}
    assert f"missing       {told}" in said
    for device, kinds in facts["devices"].items():
        assert device in said
        assert sum(kinds.values()) <= account["events"]
    assert facts["header"]["host"]["name"] == "demo"
    assert "schema" not in facts["header"]


def test_info_tells_loss_damage_and_interruption(cli: Cli, tmp_path: Path) -> None:
    # GIVEN the sample with a loss, a flipped bit in its first chunk, and no end
    reader = LogReader(SAMPLE)
    chunks = list(reader.chunks())
    stream = io.BytesIO()
    writer = LogWriter(stream, reader.header)
    for _ in range(2):
        at = stream.tell()
        writer.write_chunk(chunks[0].segments, chunks[0].clock)
    window = {"start": chunks[0].first_ns, "end": chunks[0].last_ns, "cpu": 0, "level": 0}
    writer.write_loss([{**window, "kind": int(BY_LETTER["C"].kind), "count": 5}])
    data = bytearray(stream.getvalue())
    data[at + 100] ^= 1
    path = tmp_path / "bad.biotrail"
    path.write_bytes(data)
    # WHEN it is looked at
    said, facts = cli("info", path), json.loads(cli("info", "--json", path).out)
    # THEN each is named
    assert said.status == 0
    assert "5 events lost while recording: C (complete) 5" in said.out
    assert "interrupted" in said.out
    assert f"chunk at offset {at}" in said.out
    assert facts["lost"] == {"C (complete)": 5}
    assert facts["interrupted"]
    assert facts["damaged"][0]["offset"] == at


def rows(done: Any) -> list[dict[str, Any]]:
    return [json.loads(line) for line in done.out.splitlines()]


def test_dump_has_every_record_in_order_of_time(cli: Cli) -> None:
    # GIVEN the sample log WHEN it is dumped in both ways
    text = cli("dump", SAMPLE).out.splitlines()
    found = rows(cli("dump", "--format", "json", SAMPLE))
    # THEN each event is a line of both, in order of time
    total = account_of(cli("info", "--json", SAMPLE))["events"]
    assert len(text) == len(found) == total
    times = [row["time_ns"] for row in found]
    assert times == sorted(times)
    assert [float(line.split()[0]) for line in text] == pytest.approx(
        [row["seconds"] for row in found], abs=1e-9
    )


def test_json_has_every_field_of_the_schema(cli: Cli) -> None:
    # GIVEN the sample log WHEN it is dumped
    found = rows(cli("dump", "--format", "json", SAMPLE))
    # THEN each record has the fields of its kind
    for letter in {row["kind"] for row in found}:
        row = next(row for row in found if row["kind"] == letter)
        names = {field.name for field in BY_LETTER[letter].fields} - {"head", "reserved"}
        assert names <= set(row), letter
    queue = next(row for row in found if row["kind"] == "Q" and row["bytes"])
    assert queue["bio"].startswith("0xffff")
    assert queue["op"] in ("read", "write")
    assert queue["device"] == "loop1"
    assert {row["comm"] for row in found if row["kind"] == "Q"} >= {"demo-database"}


def test_dump_chooses(cli: Cli) -> None:
    # GIVEN the sample log
    found = rows(cli("dump", "--format", "json", SAMPLE))
    middle = found[len(found) // 2]["seconds"]
    dump = ("dump", "--format", "json")
    # WHEN kinds, times, devices and numbers are chosen THEN those come and no others
    assert rows(cli(*dump, "--kind", "Q,D", SAMPLE)) == [r for r in found if r["kind"] in "QD"]
    assert rows(cli(*dump, "--limit", "7", SAMPLE)) == found[:7]
    early = rows(cli(*dump, "--to", str(middle), SAMPLE))
    late = rows(cli(*dump, "--from", str(middle), SAMPLE))
    assert early + late == found
    on_loop = rows(cli(*dump, "-d", "loop1", SAMPLE))
    assert on_loop == [r for r in found if r.get("dev") == 7 << 20 | 1]
    assert rows(cli(*dump, "-d", "7:1", SAMPLE)) == on_loop
    # AND a device that is not there is an error
    done = cli(*dump, "-d", "sdx", SAMPLE)
    assert (done.status, "no device sdx" in done.err) == (1, True)


def test_a_line_shows_what_matters(cli: Cli, log: Path) -> None:
    # GIVEN a log WHEN it is dumped THEN place, operation, sectors and task are in a line
    line = next(text for text in cli("dump", log).out.splitlines() if text.split()[2] == "Q")
    assert " 7:1 loop1 write " in line
    assert " + " in line
    assert line.endswith("]")


def test_convert_names_its_output_after_the_log(cli: Cli, log: Path) -> None:
    # GIVEN a log WHEN it is converted
    done = cli("convert", log)
    # THEN the trace is beside it, private, and the account is told
    trace = log.with_suffix(".pftrace")
    assert done.status == 0
    assert stat.S_IMODE(trace.stat().st_mode) == 0o600
    assert f"wrote {trace}" in done.out
    assert "exact" in done.out
    assert "nothing is missing" in done.out
    assert "biotrail view" in done.out
    # AND it is not overwritten unless that is asked for
    assert cli("convert", log).status == 1
    assert cli("convert", "-f", log).status == 0


def test_convert_chooses_the_format_by_the_ending(cli: Cli, log: Path, tmp_path: Path) -> None:
    # GIVEN outputs with telling endings
    pytest.importorskip("_otf2", reason="needs the otf2 package")
    # WHEN a log is converted THEN each is what its ending says
    assert cli("convert", log, "-o", tmp_path / "x.perfetto-trace").status == 0
    done = cli("convert", log, "-o", tmp_path / "x.otf2")
    assert done.status == 0, done.err
    assert (tmp_path / "x.otf2" / "traces.otf2").is_file()
    assert cli("convert", log, "-o", tmp_path / "y.dir", "--format", "otf2").status == 0
    assert (tmp_path / "y.dir" / "traces.otf2").is_file()
    assert stat.S_IMODE((tmp_path / "y.dir").stat().st_mode) == 0o700
    assert (tmp_path / "x.perfetto-trace").stat().st_size > 0
    # AND a directory without a telling ending is an OTF2 archive
    assert cli("convert", log, "-o", f"{tmp_path / 'z'}/").status == 0
    assert (tmp_path / "z" / "traces.otf2").is_file()
    assert cli("convert", log, "-o", f"{tmp_path / 'z'}/").status == 1


def test_convert_says_what_an_archive_had_to_cancel(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a recording in which some completions are missing
    pytest.importorskip("_otf2", reason="needs the otf2 package")
    recorded = ROOT / "biotrail" / "data" / "demo.biotrail"
    # WHEN it is converted THEN the operations without an end are counted
    done = cli("convert", recorded, "-o", tmp_path / "x.otf2")
    assert "6 operations cancelled: no completion is known" in done.out


def test_convert_streams(log: Path) -> None:
    # GIVEN a log on standard input WHEN it is converted to standard output
    done = subprocess.run(
        [sys.executable, "-m", "biotrail.cli.main", "convert", "-", "-o", "-"],
        cwd=ROOT,
        input=log.read_bytes(),
        capture_output=True,
    )
    # THEN the trace alone is there, and the account on standard error
    assert done.returncode == 0, done.stderr
    assert done.stdout[:1] == b"\x0a"
    assert b"wrote standard output" in done.stderr


def test_a_conversion_that_fails_leaves_nothing(
    cli: Cli, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a converter that fails after it wrote something
    from biotrail.converters.outputs.perfetto import convert as perfetto
    from biotrail.recorder.schema.errors import ConversionError

    def fail(_windows: object, _context: object, out: Any, **_how: object) -> None:
        out.write(b"half")
        raise ConversionError("cannot")

    monkeypatch.setattr(perfetto, "convert", fail)
    before = sorted(os.listdir(log.parent))
    # WHEN a log is converted THEN it fails and no file is left
    assert cli("convert", log).err == "biotrail: error: cannot\n"
    assert sorted(os.listdir(log.parent)) == before


def test_demo_falls_back_to_the_sample(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a machine where nothing can be recorded
    from biotrail.cli import demo
    from biotrail.recorder.schema.errors import ProbeError

    def refuse(*_: object) -> None:
        raise ProbeError("no rights")

    monkeypatch.setattr(demo, "record", refuse)
    # WHEN the demo runs
    done = cli("demo", "--output", tmp_path / "out")
    # THEN it says why, and shows the sample
    assert done.status == 0
    assert "Nothing can be recorded here: no rights" in done.out
    assert "sample log" in done.out
    for word in (
        "demo-database",
        "loop1",
        "read",
        "exact",
        "biotrail view",
        "biotrail report",
        "p99",
    ):
        assert word in done.out
    assert sorted(os.listdir(tmp_path / "out")) == ["demo.biotrail", "demo.pftrace"]
    assert (tmp_path / "out" / "demo.biotrail").read_bytes() == SAMPLE.read_bytes()


def test_doctor_tells_the_remedy(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN a machine that lacks something, and one that lacks nothing that matters
    from biotrail.cli import doctor
    from biotrail.recorder.probes.capability import Check

    good = Check("rights", True, "root")
    bad = Check("libbpf", False, "not found", "apt-get install libbpf1")
    mild = Check("tracefs", False, "not mounted", "mount it", required=False)
    monkeypatch.setattr(doctor, "report", lambda: [good, bad])
    monkeypatch.setattr(doctor, "bcc_report", lambda: [mild])
    # WHEN they are looked at THEN status, marks and remedies say so
    done = cli("doctor")
    assert done.status == 1
    assert done.out.splitlines() == [
        "ok  rights   root",
        "NO  libbpf   not found",
        "             → apt-get install libbpf1",
        "no  tracefs  not mounted",
        "             → mount it",
        "",
        "biotrail cannot record here",
    ]
    monkeypatch.setattr(doctor, "report", lambda: [good, mild])
    done = cli("doctor", "--json")
    assert (done.status, json.loads(done.out)["possible"]) == (0, True)
