# SPDX-License-Identifier: Apache-2.0
"""`biotrail follow` on this kernel, by tracepoints and their stacks alone (--way typed)."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from biotrail.recorder.log import LogReader
from tests.support.cli_runner import Cli
from tests.support.devices import LoopDevice
from tests.support.paths import ROOT
from tests.support.record_command import biotrail, wait_until

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
def device(loop_device: LoopDevice) -> LoopDevice:
    return loop_device


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


@pytest.mark.parametrize("struct", ["request", "bio"])
def test_lives_are_as_many_as_ios(device: LoopDevice, tmp_path: Path, struct: str) -> None:
    # GIVEN a disk of its own  WHEN all requests or bios of so many reads are followed: addresses
    # are used again, and no end of a bio is seen on a device with requests
    log = tmp_path / "all.biotrail"
    command = reads(device.path)
    follow(struct, "--way", "typed", "-d", device.path, "-o", log, "--", *command)
    # THEN there is a life for each
    counts = end_of(log)
    assert counts["born"] == READS
    # AND each request's has ended
    ends = counts["ended"] + counts["reused"] + counts["idle"]
    assert ends == READS or struct == "bio"


def test_every_nth_is_followed(device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN reads of a disk  WHEN each 4th request is followed
    log = tmp_path / "some.biotrail"
    options = ("--every", "4", "-d", device.path, "-o", log)
    follow("request", "--way", "typed", *options, "--", *reads(device.path))
    # THEN there are a quarter of the lives
    assert end_of(log)["born"] == READS // 4


def test_no_more_than_so_many_lives(device: LoopDevice, tmp_path: Path) -> None:
    log = tmp_path / "seven.biotrail"
    options = ("--lives", "7", "-d", device.path, "-o", log)
    follow("request", "--way", "typed", *options, "--", *reads(device.path))
    assert end_of(log)["born"] == 7


def test_quick_lives_are_left_out(cli: Cli, device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN reads, none of which takes a minute
    # WHEN only requests slower than that are recorded
    log = tmp_path / "none.biotrail"
    options = ("--slower", "1min", "-d", device.path, "-o", log)
    follow("request", "--way", "typed", *options, "--", *reads(device.path))
    # THEN all were candidates, and none was written
    counts = end_of(log)
    assert (counts["born"], counts["quick"]) == (READS, READS)
    assert tree(cli, log, "--merged")["lives"] == 0


def test_slow_lives_are_written_whole(cli: Cli, device: LoopDevice, tmp_path: Path) -> None:
    # GIVEN reads, each of which takes more than a nanosecond  WHEN requests slower are recorded
    log = tmp_path / "slow.biotrail"
    options = ("--slower", "0.000000001", "-d", device.path, "-o", log)
    follow("request", "--way", "typed", *options, "--", *reads(device.path))
    # THEN each life is there, with all its hits, from birth to death
    counts = end_of(log)
    assert (counts["born"], counts["quick"]) == (READS, 0)
    trees = tree(cli, log, "--slowest", "1000", "--limit", "0")
    assert trees["lives"] == READS


def test_nothing_is_left_after_a_kill(tmp_path: Path) -> None:
    # GIVEN a recording
    if shutil.which("bpftool") is None:
        pytest.skip("needs bpftool")
    log = tmp_path / "killed.biotrail"
    command = ["follow", "request", "--way", "typed", "-o", str(log)]
    process = subprocess.Popen(
        [sys.executable, "-m", "biotrail.cli.main", *command],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "following" in line:
            break
    mine = programs_of(process.pid)
    assert mine
    # WHEN it is killed
    process.send_signal(signal.SIGKILL)
    process.wait()
    process.stderr.close()
    # THEN its programs are gone, and the log is readable
    wait_until(lambda: not mine & loaded(), "the programs are still there")
    with LogReader(log) as reader:
        assert reader.header["sites"]["follow"]["type"] == "request"


def loaded() -> set[int]:
    """Ids of all programs that the kernel holds."""
    shown = subprocess.run(["bpftool", "-j", "prog", "show"], capture_output=True, check=True)
    return {program["id"] for program in json.loads(shown.stdout)}


def programs_of(pid: int) -> set[int]:
    """Ids of the programs that a process has descriptors of."""
    found = set()
    for path in Path(f"/proc/{pid}/fdinfo").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            for line in path.read_text().splitlines():
                if line.startswith("prog_id:"):
                    found.add(int(line.split()[1]))
    return found


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
