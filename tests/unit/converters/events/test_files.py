# SPDX-License-Identifier: Apache-2.0
"""Files in a log: joined to their bios, named, added up, shown and chosen by."""

import csv
import io
from pathlib import Path

import pytest

import biotrail
from biotrail.converters.analysis.figures import as_json
from biotrail.converters.analysis.report.report import make_report
from biotrail.converters.events.files import NO_FILE, File
from biotrail.converters.events.tables import Bios
from biotrail.converters.lifecycles.account import Reason
from biotrail.converters.pipeline import Trace
from biotrail.recorder.schema.records import Kind
from tests.support import file_logs
from tests.support.cli_runner import Cli
from tests.support.file_logs import bio, file, names, paths_of, write
from tests.support.perfetto_make import traced
from tests.support.stack_logs import DEV, START, record, task

LONG = b"n" * 120
UPPER = 253 << 20


def sample(path: Path) -> Path:
    """/srv/db/table: two bios; /srv/wal: one; the device's own: one; one whose file nobody knows;
    a flush."""
    records = [
        task(START, 42, b"dd"),
        *names(START, 12, b"db", b"table"),
        *bio(0, 12),
        *bio(1, 12, bytes=8192),
        *names(START + 2_000_000, 13, b"wal"),
        *bio(2, 13),
        *bio(3, DEV, dev=0),
        *bio(4, None),
        *bio(5, None, bytes=0),
    ]
    return write(path, records)


@pytest.mark.parametrize("window_events", [1 << 20, 2])
def test_bios_point_to_their_files(tmp_path: Path, window_events: int) -> None:
    # GIVEN a log that tells files  WHEN it is associated, whole or two events at a time
    trace = Trace(sample(tmp_path / "x.biotrail"))
    # THEN each bio has its file's path below the mount point; no file, no path
    table = "/srv/db/table"
    assert paths_of(trace, window_events) == [table, table, "/srv/wal", "vda", None, None]
    # AND every record is accounted for
    assert trace.account.events["f", Reason.FILE] == 4
    assert trace.account.events["N", Reason.DICTIONARY] == 3
    assert trace.account.unknown == {}


def test_what_is_known_of_a_name(tmp_path: Path) -> None:
    # GIVEN names that are long, cut, of a deleted file, torn, and of an inode that is used again
    torn = names(START, 16, b"lost", b"torn", whole=False)
    records = [
        *names(START, 12, b"dir", LONG),
        *names(START, 13, b"deep", b"down", cut=True),
        *names(START, 14, b"gone", deleted=True),
        *torn,
        *names(START, 17, b"old"),
        *names(START, 17, b"new", generation=2),
        *names(START, 17, b"renamed"),
        *names(START, 12, b"elsewhere", dev=9 << 20),
    ]
    inodes = (12, 13, 14, 15, 16, 17)
    for number, inode in enumerate(inodes):
        records += bio(number, inode)
    records += [*bio(6, 17, generation=2), *bio(7, 12, dev=9 << 20), *bio(8, 1, dev=9 << 20)]
    # WHEN they are read / THEN each is told as far as it is known; the last name counts
    found = paths_of(Trace(write(tmp_path / "x.biotrail", records)))
    assert found == [
        f"/srv/dir/{LONG.decode()}",
        "vda:…/deep/down",
        "/srv/gone (deleted)",
        "inode 15 of /srv",
        "inode 16 of /srv",
        "/srv/renamed",
        "/srv/new",
        "9:0:/elsewhere",
        "inode 1 of 9:0",
    ]


@pytest.mark.parametrize(
    ("mounts", "path", "root"),
    [
        ([["/", "/"]], "/@home/me/x", "/"),
        ([["/", "/mnt/all"]], "/mnt/all/@home/me/x", "/mnt/all"),
        ([["/@", "/"], ["/@home", "/home"]], "/home/me/x", "vda:/"),
        ([["/@", "/"]], "vda:/@home/me/x", "vda:/"),
        (None, "vda:/@home/me/x", "vda:/"),
    ],
    ids=["root", "whole", "subvolume", "another", "none"],
)
def test_mount_points_go_before(
    tmp_path: Path, mounts: list[list[str]] | None, path: str, root: str
) -> None:
    # GIVEN a file, and the root's directory, in a file system of which this is mounted
    records = [*names(START, 12, b"@home", b"me", b"x"), *bio(0, 12)]
    records += [*names(START + 1_000_000, 2, b"/"), *bio(1, 2)]
    known = {str(DEV): mounts} if mounts else {}
    # WHEN their paths are told  THEN they are as a program of the host would name them, if it can
    assert paths_of(Trace(write(tmp_path / "x.biotrail", records, known))) == [path, root]


def test_lower_bios_have_the_file_of_the_upper_one(tmp_path: Path) -> None:
    # GIVEN a bio of a file, another made for it, one made for that, and one that has a file again
    place = {"sector": 8, "bytes": 4096}
    records = [
        *names(START, 2, b"upper"),
        *names(START, 3, b"own"),
        record(Kind.Q, START + 1, bio=1, dev=UPPER, part=UPPER, **place),
        file(START + 1, 1, 2),
    ]
    for number in (2, 3, 4):
        above, dev, at = UPPER + number - 2, UPPER + number - 1, START + 10 * number
        sent = {"from_dev": above, "from_sector": 8}
        records.append(record(Kind.A, at, bio=number, dev=dev, **sent, **place))
        records.append(record(Kind.Q, at + 1, bio=number, dev=dev, part=dev, **place))
    records.append(file(START + 41, 4, 3))
    records += [
        record(Kind.BIO_COMPLETE, START + 90 - n, bio=n, sector=8, dev=UPPER + n - 1)
        for n in (4, 3, 2, 1)
    ]
    # WHEN it is read  THEN who has none has the upper one's; its own comes first
    trace = Trace(write(tmp_path / "x.biotrail", records))
    found = [window.bios for window in trace.lifecycles()]
    bios = Bios.concatenate(found)
    assert (bios.parent >= 0).tolist() == [False, True, True, True]
    first, own = bios.file[0], bios.file[3]
    assert bios.file.tolist() == [first, first, first, own]
    assert NO_FILE < first != own > NO_FILE


def test_paths_are_cut_and_slices_have_their_file(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a path that is longer than a column should be
    records = [*names(START, 12, LONG, b"end"), *bio(0, 12)]
    # WHEN it is reported  THEN its end is shown
    out = cli("report", "--by", "file", write(tmp_path / "x.biotrail", records)).out
    assert f"…{'n' * 43}/end " in out
    assert LONG.decode() not in out
    # GIVEN a log that was recorded without files
    path = write(tmp_path / "x.biotrail", bio(0, None), {}, files=None)
    # WHEN it is asked for them  THEN it is said what to do
    for arguments in (["report", "--by", "file"], ["slow", "--file", "*"], ["hist", "--file", "*"]):
        done = cli(*arguments, path)
        assert done.status == 1
        assert "record --files" in done.err
    # AND nothing else is changed
    assert cli.json("report", path)["files"] == []
    assert "files (direct" not in cli("info", path).out


def test_every_command_tells_files(tmp_path: Path, cli: Cli) -> None:
    # GIVEN the sample
    path = sample(tmp_path / "x.biotrail")
    # WHEN and THEN info says that files were recorded, and what is not known of them
    assert "files (direct I/O: file not known)" in cli("info", path).out
    other = write(tmp_path / "y.biotrail", bio(0, 12), files={"direct": True})
    assert "files, of direct I/O where iomap does it" in cli("info", other).out
    # AND what a log of today says of more ways, also of one that this version does not know
    facts = {"direct": False, "ways": ["device", "call", "new"]}
    more = write(tmp_path / "z.biotrail", bio(0, 12), files=facts)
    said = " ".join(cli("info", more).out.split())
    assert "files, of direct I/O on block devices, by the running call elsewhere, new" in said
    # AND dump shows the records
    lines = cli("dump", "--kind", "fN", path).out.splitlines()
    assert len(lines) == 7
    assert "inode=12 generation=1 level=0 piece=0 flags=0 component=table" in lines[0]
    # AND each of the slowest has its file
    table = "/srv/db/table"
    ios = cli.json("slow", path)["ios"]
    assert [one["io"]["file"] for one in ios] == [None, None, None, "/srv/wal", table, table]
    assert "file /srv/wal" in cli("slow", path).out
    # AND with a pattern only those of such files are there
    chosen = cli.json("slow", "--file", "/srv/*/t*", path)["ios"]
    assert [one["io"]["file"] for one in chosen] == [table] * 2
    counts = cli.json("hist", "--size", "--file", "*wal", path)
    assert [h["count"] for h in counts["histograms"]] == [1]
    # AND slices of a trace have the path as an argument, and no others
    slices = traced(path).slices("bio")
    assert [s.args.get("file") for s in slices] == [table, table, "/srv/wal", None, None, None]


def test_a_note_of_another_shape_is_damage(tmp_path: Path, cli: Cli) -> None:
    # GIVEN a log whose mounts are no pairs
    records = [*names(START, 12, b"x"), *bio(0, 12)]
    path = write(tmp_path / "x.biotrail", records, {str(DEV): ["/"]})
    # WHEN it is reported  THEN that is said, and the path is the one in the file system
    out = cli("report", "--by", "file", path).out
    assert "damaged: note" in out
    assert "vda:/x" in out


def test_inodes_of_btrfs_are_called_what_they_are_for(tmp_path: Path, cli: Cli) -> None:
    # GIVEN btrfs's inode of trees with metadata and with data, the one of relocated data, a file
    # of the same number without a name, and inode 1 of another file system
    meta = 12
    btrfs, trees, moved = 39, 0x9E3779B1, 1 ^ (-9 * 0x9E3779B1 & 0xFFFFFFFF)
    records = [task(START, 42, b"btrfs")]
    bios = [(1, trees, 1 << meta), (1, trees, 0), (1, 0, 0), (258, moved, 0), (258, 1, 0)]
    for number, (inode, generation, flags) in enumerate(bios):
        records += bio(number, inode, generation=generation, dev=btrfs, opf=flags)
    records += bio(len(bios), 1, generation=trees)
    kernel = {"flag_bits": {"META": meta}, "op_enum": {"read": 0}}
    mounts = {str(btrfs): [["/", "/mnt"]]}
    log = write(tmp_path / "x.biotrail", records, mounts, kernel=kernel)
    # WHEN they are read THEN metadata has no file, and data is called by how it is moved
    assert paths_of(Trace(log)) == [
        None,
        "(/mnt: data by address)",
        "(/mnt: data by address)",
        "(/mnt: data that is relocated)",
        "inode 258 of /mnt",
        "inode 1 of vda",
    ]
    # AND the former is named by its purpose
    groups = cli.json("report", "--by", "file", log)["groups"]
    assert {one["file_kind"]: one["ios"] for one in groups if one["file"] is None} == {
        "metadata": 1
    }


def renamed(path: Path) -> Path:
    """An I/O of 0.tmp, which becomes wal/1, has another, and leaves its name to another file."""
    later = START + 10_000_000
    return write(
        path,
        [
            *names(START, 12, b"0.tmp"),
            *bio(0, 12),
            *names(START + 1_500_000, 12, b"wal", b"1"),
            *bio(2, 12),
            *names(later, 13, b"0.tmp"),
            *bio(10, 13),
        ],
    )


@pytest.mark.parametrize("window_events", [1 << 20, 1])
def test_a_file_has_its_last_name(tmp_path: Path, window_events: int) -> None:
    # GIVEN a file that is renamed between two I/Os, and another that gets its first name
    trace = Trace(renamed(tmp_path / "x.biotrail"))
    # WHEN they are grouped by path, at once or event by event
    windows = trace.lifecycles(window_events)
    groups = as_json(make_report(trace, windows, by="file"))["groups"]
    # THEN all I/O of the first has its last name, with the one before beside it
    assert sorted((g["file"], g.get("file_was"), g["ios"], g["inode"]) for g in groups) == [
        ("/srv/0.tmp", None, 1, 13),
        ("/srv/wal/1", "/srv/0.tmp", 2, 12),
    ]
    # AND so it is by directory
    trace = Trace(tmp_path / "x.biotrail")
    groups = as_json(make_report(trace, trace.lifecycles(window_events), by="dir"))["groups"]
    assert sorted((g["dir"], g["ios"]) for g in groups) == [("/srv", 1), ("/srv/wal", 2)]


def test_renamed_files_have_the_name_before_too(cli: Cli, tmp_path: Path) -> None:
    # GIVEN a file that is renamed between two I/Os WHEN they are read as a table
    log = renamed(tmp_path / "x.biotrail")
    rows = biotrail.open(log).bios.select(["file", "file_was"]).to_pylist()
    # THEN both have both names
    both = {"file": "/srv/wal/1", "file_was": "/srv/0.tmp"}
    assert rows == [both, both, {"file": "/srv/0.tmp", "file_was": None}]
    # AND so it is where the slowest are shown
    found = cli.json("slow", "-n", "0", log)["ios"]
    assert sorted((one["io"]["file"], one["io"]["file_was"] or "") for one in found) == [
        *[("/srv/0.tmp", "")],
        *[("/srv/wal/1", "/srv/0.tmp")] * 2,
    ]
    # AND in a report, where the name before stands beside the last
    for command in ("slow", "report"):
        assert "/srv/wal/1 (was /srv/0.tmp)" in cli(command, log).out
    lines = list(csv.DictReader(io.StringIO(cli("report", "--csv", log).out)))
    assert {r["file_was"] for r in lines if r["file"] == "/srv/wal/1"} == {"/srv/0.tmp"}
    # WHEN I/O is chosen by a file's last name, or by the one before
    for pattern, ios in (("/srv/wal/*", 2), ("/srv/0.tmp", 3)):
        # THEN all of the file's I/O is chosen, also that before the rename
        told = cli.json("report", "--file", pattern, log)
        assert told["total"]["ios"] == ios


# Where containers see the files of their overlays.

ID = "a1" * 32
CONTAINERD = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        (f"/var/lib/docker/overlay2/{ID}/diff/var/lib/app/x.db", "/var/lib/app/x.db"),
        (f"/var/lib/docker/overlay2/{ID}-init/diff/etc/hosts", "/etc/hosts"),
        ("/data/overlay2/abcdefghijklmnopqrstu0123/diff/x", "/x"),
        (f"/var/lib/containers/storage/overlay/{ID}/diff/x y", "/x y"),
        (f"/home/u/.local/share/containers/storage/overlay/{ID}/diff/x", "/x"),
        (f"{CONTAINERD}/42/fs/usr/bin/x (deleted)", "/usr/bin/x (deleted)"),
        (f"/var/lib/docker/overlay2/{ID}/work/x", None),
        (f"/var/lib/docker/overlay2/{ID}/diff", None),
        ("/srv/overlay/mine/diff/x", None),
        (f"{CONTAINERD}/metadata.db", None),
        ("/etc/fstab", None),
        (f"sda1:…/overlay2/{ID}/diff/x", None),
    ],
)
def test_the_host_s_path_tells_the_container_s(path: str, seen: str | None) -> None:
    assert File(path, 7, 7, device=False, known=True).in_container == seen


def test_reports_have_both(cli: Cli, tmp_path: Path) -> None:
    # GIVEN I/O of a file in a layer of Docker's
    layer = (b"docker", b"overlay2", ID.encode(), b"diff", b"app", b"x.db")
    log = tmp_path / "x.biotrail"
    log.write_bytes(file_logs.log([*file_logs.names(START, 7, *layer), *file_logs.bio(0, 7)]))
    # WHEN it is reported / THEN the container's path stands beside the host's
    (file,) = cli.json("report", log)["files"]
    assert file["file"] == f"/srv/docker/overlay2/{ID}/diff/app/x.db"
    assert file["container_file"] == "/app/x.db"
    assert "/diff/app/x.db (/app/x.db)" in cli("report", "--by", "file", log).out
    assert f"/srv/docker/overlay2/{ID}/diff/app/x.db (/app/x.db)" in cli("slow", log).out
