# SPDX-License-Identifier: Apache-2.0
"""Files have the names that people have for them (`--labels`)."""

import csv
import io
import json
from pathlib import Path

import pytest

from biotrail.converters.events.labels import Labels
from tests.support import file_logs
from tests.support.cli_runner import Cli
from tests.support.perfetto_check import read
from tests.support.stack_logs import START

TABLE = "base/16384/16397,accounts\n\n'/srv/*/wal','the log'\n".replace("'", '"')


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with I/O of /srv/base/16384/16397, /srv/x/wal and /srv/x/other."""
    paths = ((7, [b"base", b"16384", b"16397"]), (8, [b"x", b"wal"]), (9, [b"x", b"other"]))
    records: list[bytes] = []
    for number, (inode, names) in enumerate(paths):
        records += file_logs.names(START, inode, *names)
        records += file_logs.bio(number, inode)
    path = tmp_path / "x.biotrail"
    path.write_bytes(file_logs.log(records))
    (tmp_path / "labels.csv").write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/srv/base/16384/16397", "accounts"),
        ("sda1:/base/16384/16397", "accounts"),
        ("base/16384/16397", "accounts"),
        ("/srv/base/16384/16397 (deleted)", "accounts"),
        ("/srv/base/16384/16397_vm", "accounts"),
        ("/srv/base/16384/16397.1", "accounts"),
        ("/srv/base/16384/163971", None),
        ("/srv/xbase/16384/16397", None),
        ("/var/lib/mysql/shop/orders.ibd", "shop orders"),
        ("/etc/fstab", "the table"),
        ("/chroot/etc/fstab", None),
        ("/x/y/z.tmp", "scratch"),
        ("/x/y/special.tmp", "special"),
    ],
)
def test_a_pattern_is_of_a_path_or_its_end(path: str, label: str | None) -> None:
    # GIVEN patterns with and without wildcards, of whole paths and of ends
    labels = Labels(
        [
            ("base/16384/16397", "accounts"),
            ("base/16384/16397[._]*", "accounts"),
            ("shop/*.ibd", "shop orders"),
            ("/etc/fstab", "the table"),
            ("*.tmp", "scratch"),
            ("special.tmp", "special"),
            ("special.tmp", "another"),
        ]
    )
    # WHEN a path is looked up / THEN exact ones win, then the first
    assert labels.of(path) == label


def test_every_output_has_labels(cli: Cli, log: Path) -> None:
    # GIVEN a log with files, and labels of two of them
    labels = ("--labels", log.parent / "labels.csv")
    shown = {"/srv/base/16384/16397 (accounts)", "/srv/x/wal (the log)", "/srv/x/other"}
    # WHEN it is reported as text, by file / THEN labels stand behind the paths
    text = cli("report", "--by", "file", *labels, log).out
    assert all(name in text for name in shown)
    # AND for programs in a field of their own
    told = json.loads(cli("report", "--json", *labels, log).out)
    assert {one["file"]: one.get("label") for one in told["files"]} == {
        "/srv/base/16384/16397": "accounts",
        "/srv/x/wal": "the log",
        "/srv/x/other": None,
    }
    rows = csv.DictReader(io.StringIO(cli("report", "--csv", *labels, log).out))
    assert {row["label"] for row in rows if row["section"] == "files"} == {
        "accounts",
        "the log",
        "",
    }
    # AND in the list of slow I/O and in the trace
    found = json.loads(cli("slow", "--json", *labels, log).out)
    assert {one["io"]["file"] for one in found["ios"]} == shown
    trace = log.parent / "x.pftrace"
    assert cli("convert", *labels, log, "-o", trace).status == 0
    assert {bio.args["file"] for bio in read(trace.read_bytes()).slices("bio")} == shown


def test_files_are_chosen_by_label(cli: Cli, log: Path) -> None:
    # WHEN I/O of a label is asked for / THEN it is that of its files
    labels = ("--labels", log.parent / "labels.csv")
    found = json.loads(cli("slow", "--json", "--file", "accounts", *labels, log).out)
    assert [one["io"]["file"] for one in found["ios"]] == ["/srv/base/16384/16397 (accounts)"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"base/1\n", "labels.csv:1: a line of labels has a pattern of paths, a comma and a label"),
        (b"a,b\nc,\n", "labels.csv:2: a line of labels has"),
        (b"a,b,c\n", "labels.csv:1: a line of labels has"),
        (b"\xff,b\n", "labels.csv: the labels cannot be read: "),
        (None, "labels.csv: the labels cannot be read: No such file or directory"),
    ],
)
def test_bad_labels_are_refused(cli: Cli, log: Path, text: bytes | None, message: str) -> None:
    # GIVEN a file that is no table of labels, or none / WHEN it is given
    path = log.parent / "labels.csv"
    path.unlink() if text is None else path.write_bytes(text)
    done = cli("report", "--labels", path, log)
    # THEN one message says where
    assert done.status == 1
    assert message in done.err
    assert len(done.err.splitlines()) == 1


def test_labels_are_escaped(cli: Cli, log: Path) -> None:
    # GIVEN a label that would move the terminal / WHEN shown / THEN it is text
    (log.parent / "labels.csv").write_text("wal,\x1b[2J\n")
    out = cli("report", "--by", "file", "--labels", log.parent / "labels.csv", log).out
    assert r"\x1b[2J" in out
    assert "\x1b" not in out
