# SPDX-License-Identifier: Apache-2.0
"""`biotrail follow` on this kernel, by tracepoints and their stacks alone (--way typed)."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from biotrail.converters.events.site_tables import Hits
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from tests.support.cli_runner import Cli
from tests.support.devices import LoopDevice
from tests.support.paths import ROOT
from tests.support.record_command import biotrail

pytestmark = pytest.mark.usefixtures("needs_bpf")

READS = 40
BLOCK = 4096


def follow(*arguments: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    return biotrail("follow", *arguments, status=status)


def reads(path: str | Path, count: int = READS) -> list[str]:
    """A command that reads blocks one after the other, past the page cache."""
    return ["dd", f"if={path}", "of=/dev/null", f"bs={BLOCK}", f"count={count}", "iflag=direct"]


def end_of(log: Path) -> dict[str, int]:
    """What END says of lives."""
    with LogReader(log) as reader:
        end = reader.end
    assert end is not None
    counts: dict[str, int] = end["sites"]["follow"]
    return counts


def tree(cli: Cli, log: Path, *options: str) -> Any:
    done = cli("tree", "--json", *options, log)
    assert done.status == 0, done.err
    return json.loads(done.out)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """A file on this machine's disk, of which nothing is in the page cache."""
    path = tmp_path / "data"
    with path.open("wb") as stream:
        stream.write(os.urandom(READS * BLOCK))
        stream.flush()
        os.fsync(stream.fileno())
    yield path
    path.unlink()


def test_a_direct_reads_tree_goes_from_the_call_to_the_completion(
    cli: Cli, file: Path, tmp_path: Path
) -> None:
    # GIVEN direct reads of a file, one after the other
    # WHEN the requests are followed by tracepoints
    log = tmp_path / "rq.biotrail"
    follow("request", "--way", "typed", "--comm", "dd", "-o", log, "--", *reads(file))
    # THEN the stacks have the path from the system call to the driver, in its order
    lines = cli("tree", "--folded", log).out.splitlines()
    issues = [line.rpartition(" ")[0].split(";") for line in lines if "block_rq_issue" in line]
    of_dd = [line for line in issues if line[1] == "dd" and "iomap_dio_rw" in line]
    assert of_dd, lines
    path = of_dd[0]
    wanted = ("vfs_read", "iomap_dio_rw", "blk_mq_", "block_rq_issue")
    places = [next(i for i, name in enumerate(path) if name.startswith(want)) for want in wanted]
    assert places == sorted(places), path
    # AND the completion, in the context where it ran
    ends = [line.split(";") for line in lines if "block_rq_complete" in line]
    assert any("blk_update_request" in line for line in ends), lines
    # AND each life was recorded from its birth to its death
    assert tree(cli, log, "--merged")["lives"] >= READS


@pytest.mark.parametrize(
    ("words", "born", "written"),
    [
        (("request",), READS, READS),
        (("bio",), READS, READS),
        (("request", "--every", "4"), READS // 4, READS // 4),
        (("request", "--lives", "7"), 7, 7),
        (("request", "--slower", "1min"), READS, 0),
        (("request", "--slower", "0.000000001"), READS, READS),
    ],
    ids=str,
)
def test_lives_are_as_many_as_wanted(
    cli: Cli,
    loop_device: LoopDevice,
    tmp_path: Path,
    words: tuple[str, ...],
    born: int,
    written: int,
) -> None:
    # GIVEN reads of a disk of its own  WHEN all requests or bios are followed (addresses are used
    # again), each 4th, no more than seven, or those slower than any, or than none
    log = tmp_path / "log.biotrail"
    options = ("--way", "typed", "-d", loop_device.path, "-o", log)
    follow(*words, *options, "--", *reads(loop_device.path))
    # THEN there is a life for each of these, and the quick ones are left out
    counts = end_of(log)
    assert (counts["born"], counts["born"] - counts["quick"]) == (born, written)
    assert tree(cli, log, "--slowest", "1000", "--limit", "0")["lives"] == written
    # AND each request's has ended; no end of a bio is seen on a device with requests
    ends = counts["ended"] + counts["reused"] + counts["idle"]
    assert ends == READS or words != ("request",)


def echo(rounds: int = 20) -> None:
    """Send and receive over TCP on loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            peer, _ = server.accept()
            with peer:
                while data := peer.recv(100):
                    peer.sendall(data)

        thread = threading.Thread(target=serve)
        thread.start()
        with socket.create_connection(server.getsockname()) as client:
            for _ in range(rounds):
                client.sendall(b"x" * 50)
                assert client.recv(100)
        thread.join()


@pytest.mark.parametrize("struct", ["sk_buff", "task_struct", "folio", "bio", "io_kiocb"])
def test_other_types_are_recorded(cli: Cli, tmp_path: Path, struct: str) -> None:
    # GIVEN a program with traffic on loopback, a file that it writes, and threads
    program = (
        "import sys; sys.path.insert(0, '.'); from tests.live.test_follow_live import echo; echo();"
        f"open('{tmp_path}/out', 'wb').write(bytes(1 << 20))"
    )
    # WHEN objects are followed while it runs
    log = tmp_path / "other.biotrail"
    command = [sys.executable, "-c", program]
    done = follow(struct, "--way", "typed", "--max", "200", "-o", log, "--", *command)
    # THEN lives are recorded, and read as trees
    assert "LOST" not in done.stderr
    assert cli("tree", "--merged", log).status == 0
    if struct in ("sk_buff", "task_struct", "folio"):
        assert end_of(log)["born"] > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["requst"], "no struct requst; near: "),
        (["request", "--way", "typed", "--pid", "1", "-d", "nosuchdisk"], "nosuchdisk"),
        (["bio_vec_iter_bits"], "no struct bio_vec_iter_bits"),
        (["module_layout_x"], "ready-made types: "),
    ],
)
def test_what_cannot_be_followed_has_one_message(arguments: list[str], said: str) -> None:
    # GIVEN a type or device that is not there  THEN one line says so, without a traceback
    done = follow(*arguments, status=1)
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2, done.stderr


def test_without_a_log_the_tree_is_printed(file: Path) -> None:
    # GIVEN reads  WHEN requests are followed without -o
    done = follow("request", "--way", "typed", "--comm", "dd", "--", *reads(file))
    # THEN the merged tree is printed, and no log is left
    assert "lives of request" in done.stdout
    assert "block_rq_issue" in done.stdout


def test_a_dry_run_attaches_nothing() -> None:
    done = follow("request", "--way", "typed", "--dry-run")
    assert "tracepoint block_rq_issue, argument 0" in done.stdout
    assert not done.stderr


# Packets and pages that are followed by declaration alone: each one's way is in its life.

_LOADS = ROOT / "tests" / "support" / "site_loads.py"
MESSAGES, PAGES = 40, 32


def lives(path: Path, struct: str, comm: str, load: Sequence[str]) -> Iterator[dict[str, int]]:
    """Record objects of a type while a load runs; each life's sites in order, with its detail.

    A dict by the site's name: the index of its first hit in the life; "detail": the last.
    """
    # Tracepoints alone, which every host can attach.
    follow = ("follow", struct, "--way", "typed", "--comm", comm, "--max", "4096", "-o", path)
    biotrail(*follow, "--", sys.executable, _LOADS, comm, *load)
    names = [site["name"] for site in LogReader(path).header["sites"]["follow"]["sites"]]
    tables = [window.sites.hits for window in Trace(path).lifecycles() if window.sites]
    hits = Hits.concatenate(tables)
    for life in np.unique(hits.life).tolist():
        rows = np.flatnonzero(hits.life == life)
        found: dict[str, int] = {}
        for at, site in enumerate(hits.site[rows].tolist()):
            found.setdefault(names[site], at)
        yield {**found, "detail": int(hits.detail[rows[0]])}


def test_each_message_goes_from_its_sender_to_its_reader(tmp_path: Path) -> None:
    # GIVEN messages over TCP on the loopback device, and as many answers
    found = list(lives(tmp_path / "log", "sk_buff", "bt-echo", ["echo", str(MESSAGES)]))
    # THEN each is one life, from the queue of the device through the stack to the copy for the
    # reader, in that order
    way = ("net_dev_queue", "netif_receive_skb", "tcp_probe", "skb_copy_datagram_iovec")
    whole = [life for life in found if all(site in life for site in way)]
    assert len(whole) == 2 * MESSAGES
    for life in whole:
        places = [life[site] for site in way]
        assert places == sorted(places)


def test_each_page_goes_into_the_cache_and_becomes_dirty(tmp_path: Path) -> None:
    # GIVEN a file whose pages are written by a mapping, synced and deleted; the kernel may keep
    # the deleted file's pages for longer than the recording
    load = ["map", str(PAGES), str(tmp_path / "file")]
    found = list(lives(tmp_path / "log", "folio", "bt-pages", load))
    # THEN each of its pages, known by its index in the file, has a life from the page cache on
    way = ("mm_filemap_add_to_page_cache", "writeback_dirty_folio")
    whole = {life["detail"] for life in found if all(site in life for site in way)}
    assert whole >= set(range(PAGES)), found
