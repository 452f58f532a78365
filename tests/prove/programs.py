# SPDX-License-Identifier: Apache-2.0
"""Real programs, and what they count themselves: independent truths of the figures of reports.

Each load runs for a few seconds on a file system of its own, which is recorded with the whole path.
The program's own counters, read before and after, are held against `biotrail report --json`.
Servers listen on loopback or a socket alone, run without rights, and leave nothing behind.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import pytest

from tests.prove.claims import Claim, failed, skipped, table
from tests.prove.packages import Missing, Programs, programs
from tests.support import devices
from tests.support.file_systems import mounted
from tests.support.ports import free_port
from tests.support.record_command import biotrail, recorder, started, wait_until

PART = "programs"
NOBODY = 65534
SIZE = 400 * devices.MEBIBYTE
SECONDS = 3
"""Of a load that does not end by itself."""
SYNCS = ("fsync", "fdatasync")


@dataclass(frozen=True)
class Place:
    """A file system of its own, on a loop device, where a program works."""

    device: devices.LoopDevice
    mount: Path
    log: Path
    unpacked: Path
    """Where packages may be unpacked."""

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Record the device with the whole path while the block runs. The newest log is kept."""
        options = ("-d", self.device.path, "--path", "--files", "--call-budget", "0")
        with recorder(*options, "-f", "-o", self.log) as recording:
            yield
            recording.terminate()
            _, said = recording.communicate(timeout=120)
            if recording.returncode:
                raise RuntimeError(said.strip().splitlines()[-1])

    def report(self, *options: str) -> dict[str, Any]:
        return dict(json.loads(biotrail("report", "--json", *options, self.log).stdout))

    def calls(self, names: tuple[str, ...], files: str = "") -> tuple[int, float]:
        """Number and seconds of the calls of these names for files here whose path has `files`."""
        found = [
            one
            for one in self.report("--by", "file")["call_groups"]
            if one["call"] in names and _is_of(one.get("file"), self.mount, files)
        ]
        return sum(one["count"] for one in found), sum(one["time"]["sum_ns"] for one in found) / 1e9


def _is_of(file: str | None, mount: Path, part: str) -> bool:
    return file is not None and file.startswith(f"{mount}/") and part in file


@contextmanager
def place(kind: str = "ext4") -> Iterator[Place]:
    """A new file system, which anybody may write to."""
    with tempfile.TemporaryDirectory(prefix="biotrail-prove-") as directory:
        work = Path(directory)
        work.chmod(0o711)
        with devices.loop(SIZE) as loop, mounted(kind, [loop.path], work / "mount") as mount:
            mount.chmod(0o777)
            yield Place(loop, mount, work / "log", work / "unpacked")


def equal(what: str, found: float, truth: float, more: int = 0) -> Claim:
    """A count is the program's own, or up to `more` beside it."""
    bound = f"{truth:,}" + (f" ± {more}" if more else "")
    return Claim(PART, what, f"{found:,}", bound, abs(found - truth) <= more and truth > 0)


def within(what: str, found: float, truth: float, least: float, most: float = 1.0) -> Claim:
    """Seconds are a share of the program's own, from `least` to `most`."""
    bound = f"{least * truth:.3f} to {most * truth:.3f} s"
    return Claim(PART, what, f"{found:.3f} s", bound, least * truth <= found <= most * truth)


def of_fio() -> Iterator[Claim]:
    if shutil.which("fio") is None:
        raise Missing("needs fio")
    with place() as here:
        target = here.mount / "file"
        target.write_bytes(os.urandom(16 * devices.MEBIBYTE))
        os.sync()
        with here.recorded():
            job = devices.fio(target, rw="randread", bs="4k", ioengine="psync", size="16m")
        read = job["jobs"][0]["read"]
        count, seconds = here.calls(("pread64",))
        (device,) = here.report("--op", "read", "--comm", "fio")["devices"]
        bios = device["total"]
        yield equal("fio: reads", count, read["total_ios"])
        yield equal("fio: bytes of its bios", bios["bytes"], read["io_bytes"])
        # What fio times has the call inside of it, and two looks at the clock.
        truth = read["clat_ns"]["mean"] * read["total_ios"] / 1e9
        yield within("fio: time in reads", seconds, truth, 0.9)


STRACED = """
import mmap, os, sys
page = mmap.mmap(-1, 4096)
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_DIRECT)
for i in range(300):
    os.pwrite(fd, page, 4096 * i)
    if i % 3 == 0:
        os.fdatasync(fd)
for i in range(200):
    os.preadv(fd, [page], 4096 * i)
"""


def of_strace() -> Iterator[Claim]:
    if shutil.which("strace") is None:
        raise Missing("needs strace")
    with place() as here:
        counts, file = here.log.with_name("strace"), here.mount / "file"
        traced = ("strace", "-f", "-c", "-o", counts)
        with here.recorded():
            devices.run(*traced, sys.executable, "-c", STRACED, file)
        truth = {
            words[-1]: int(words[3])
            for line in counts.read_text().splitlines()
            if len(words := line.split()) >= 5 and words[3].isdigit()
        }
        for name in ("pwrite64", "fdatasync", "preadv2"):
            yield equal(f"strace -c: {name}", here.calls((name,))[0], truth.get(name, 0))


def _metrics(url: str) -> dict[str, float]:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as page:
        lines = page.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def _put(url: str, number: int) -> None:
    words = {"key": b64encode(b"k%d" % number).decode(), "value": b64encode(bytes(256)).decode()}
    data = json.dumps(words).encode()
    with urllib.request.urlopen(f"{url}/v3/kv/put", data=data, timeout=60) as answer:
        answer.read()


def _answers(url: str) -> bool:
    try:
        return bool(_metrics(url).get("etcd_server_has_leader"))
    except OSError:
        return False


def of_etcd() -> Iterator[Claim]:
    """etcd's write-ahead log, by its histogram."""
    with place() as here:
        found = programs(("etcd",), ("etcd-server",), here.unpacked)
        url, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        command = (
            *(found.path("etcd"), "--data-dir", here.mount / "etcd", "--name", "one"),
            *("--listen-client-urls", url, "--advertise-client-urls", url),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", f"one={peer}"),
        )
        with served(command, found):
            wait_until(partial(_answers, url), "etcd does not answer")
            with here.recorded():
                before = _metrics(url)
                with ThreadPoolExecutor(4) as clients:
                    list(clients.map(partial(_put, url), range(1500)))
                after = _metrics(url)
        name = "etcd_disk_wal_fsync_duration_seconds"
        truth = {end: after[name + end] - before[name + end] for end in ("_count", "_sum")}
        count, seconds = here.calls(("fdatasync",), ".wal")
        # A scrape and an fsync may cross; Go's scheduler is in etcd's times.
        yield equal("etcd: fsyncs of the WAL", count, int(truth["_count"]), 3)
        yield within("etcd: time of the WAL's fsyncs", seconds, truth["_sum"], 0.85)


@contextmanager
def served(command: tuple[str | Path, ...], of: Programs) -> Iterator[subprocess.Popen[Any]]:
    """A server without rights, ended with SIGTERM."""
    options = {"user": NOBODY, "group": NOBODY, "extra_groups": [], "env": of.environment}
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": "/"}
    with started(command, **options, **quiet) as server:
        try:
            yield server
        finally:
            server.terminate()
            server.wait(timeout=120)


def asked(command: tuple[str | Path, ...], of: Programs) -> str:
    """What a program without rights prints; RuntimeError if it fails."""
    done = subprocess.run(
        command,
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        env=of.environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=300,
    )
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def _is_ready(command: tuple[str | Path, ...], of: Programs) -> bool:
    try:
        asked(command, of)
    except RuntimeError:
        return False
    return True


def of_postgres() -> Iterator[Claim]:
    """PostgreSQL's write-ahead log, and what it read and wrote of tables."""
    packages = ("postgresql-15", "postgresql-client-15", "libpq5")
    with place() as here:
        found = programs(("initdb", "postgres", "psql", "pgbench"), packages, here.unpacked)
        data, port = here.mount / "data", str(free_port())
        reach = ("-h", here.mount, "-p", port, "-U", "prove", "-d", "postgres")
        asked((found.path("initdb"), "-D", data, "-U", "prove", "-A", "trust", "--no-sync"), found)
        settings = {
            **{"listen_addresses": "", "unix_socket_directories": here.mount, "port": port},
            **{"track_wal_io_timing": "on", "autovacuum": "off", "shared_buffers": "8MB"},
            **{"wal_sync_method": "fdatasync", "max_wal_size": "100MB", "min_wal_size": "32MB"},
        }
        words = [word for key, value in settings.items() for word in ("-c", f"{key}={value}")]
        query = (found.path("psql"), *reach, "-q", "-A", "-t", "-F", " ", "-c")
        bench = (found.path("pgbench"), *reach[:-2], "-n")

        def answer(sql: str) -> list[float]:
            """The numbers of one row."""
            return [float(word) for word in asked((*query, sql), found).split()]

        with served((found.path("postgres"), "-D", data, *words), found):
            wait_until(
                partial(_is_ready, (*query, "select 1"), found), "PostgreSQL does not answer"
            )
            asked((*bench, "-i", "-q", "-s", "2", "postgres"), found)
            asked((*query, "checkpoint"), found)
            version = answer("show server_version_num")[0]
            if version >= 180000:
                raise Missing("pg_stat_wal has had no syncs since PostgreSQL 18")
            syncs = "select wal_sync, wal_sync_time from pg_stat_wal"
            with here.recorded():
                before = answer(syncs)
                asked((*bench, "-c", "4", "-j", "2", "-T", str(SECONDS), "postgres"), found)
                time.sleep(1.5)  # backends pass their sums on when they end, others once a second
                after = answer(syncs)
            count, seconds = here.calls(("fdatasync",), "/pg_wal/")
            # The WAL writer's last sums may be passed on a second later.
            yield equal("pg_stat_wal: wal_sync", count, int(after[0] - before[0]), 5)
            truth = (after[1] - before[1]) / 1e3
            yield within("pg_stat_wal: wal_sync_time", seconds, truth, 0.9)
            if version < 160000:
                yield skipped(PART, "pg_stat_io", f"PostgreSQL {version // 10000:.0f}; since 16")
                return
            yield from _of_pg_stat_io(here, asked, query, found)


def _of_pg_stat_io(
    here: Place, ask: Callable[..., str], query: tuple[str | Path, ...], found: Programs
) -> Iterator[Claim]:
    """fsyncs of relations; what else pg_stat_io counts, the page cache answers mostly."""
    sql = "select coalesce(sum(fsyncs), 0) from pg_stat_io where object = 'relation'"
    with here.recorded():
        before = float(ask((*query, sql), found))
        ask((*query, "update pgbench_accounts set abalance = 1", "-c", "checkpoint"), found)
        time.sleep(1.5)
        after = float(ask((*query, sql), found))
    count, _ = here.calls(SYNCS, "/base/")
    yield equal("pg_stat_io: fsyncs of relations", count, int(after - before), 2)


INNODB = ("Innodb_data_reads", "Innodb_data_writes", "Innodb_data_fsyncs")


def of_mariadb() -> Iterator[Claim]:
    packages = ("mariadb-server-core", "mariadb-client-core", "libmariadb3", "liburing2")
    with place() as here:
        found = programs(("mariadbd", "mariadb"), packages, here.unpacked)
        root = Path("/usr") if found.root is None else found.root / "usr"
        data, socket = here.mount / "data", here.mount / "socket"
        data.mkdir()
        os.chown(data, NOBODY, NOBODY)
        server = (
            *(found.path("mariadbd"), "--no-defaults", f"--basedir={root}", f"--datadir={data}"),
            *(f"--lc-messages-dir={root / 'share/mysql'}", f"--socket={socket}"),
            *("--skip-networking", "--innodb-use-native-aio=0", "--innodb-buffer-pool-size=8M"),
            *(
                "--innodb-log-file-size=16M",
                "--innodb-flush-method=O_DIRECT",
                "--skip-grant-tables",
            ),
            *("--innodb-doublewrite=1", "--innodb-buffer-pool-dump-at-shutdown=0"),
            # It would read pages that were never written, for which the file system asks no device.
            "--innodb-read-ahead-threshold=0",
        )
        (data / "bench").mkdir()
        os.chown(data / "bench", NOBODY, NOBODY)
        query = ("-N", "-B", "-D", "bench", "-e")
        client = (found.path("mariadb"), "--no-defaults", f"--socket={socket}", *query)
        wanted = f"show global status where variable_name in {INNODB}"

        def counters() -> dict[str, int]:
            rows = (line.split() for line in asked((*client, wanted), found).splitlines())
            return {name: int(value) for name, value in rows}

        with served(server, found):
            wait_until(partial(_is_ready, (*client, "select 1"), found), "MariaDB does not answer")
            made = "create table bench.t (id int primary key, pad char(200)) engine=innodb;"
            fill = "insert into bench.t select seq, repeat('x', 200) from seq_1_to_60000"
            asked((*client, f"{made}{fill}"), found)
            statements = "".join(
                f"update bench.t set pad = repeat('y', 200) where id = {1 + 7919 * n % 60000};"
                for n in range(400)
            )
            with here.recorded():
                before = counters()
                asked((*client, f"{statements}select sum(length(pad)) from bench.t"), found)
                after = counters()
        truth = {name: after[name] - before[name] for name in INNODB}
        reads, _ = here.calls(("pread64", "readv", "preadv"))
        syncs, _ = here.calls(SYNCS)
        writes, _ = here.calls(("pwrite64", "writev", "pwritev"), "ibd")
        # The page cleaner goes on between a look at the counters and the recording's ends.
        yield equal("InnoDB: data_reads", reads, truth["Innodb_data_reads"], 2)
        yield equal("InnoDB: data_writes", writes, truth["Innodb_data_writes"], 8)
        yield equal("InnoDB: data_fsyncs", syncs, truth["Innodb_data_fsyncs"], 4)


def _transactions(name: str) -> int:
    (info,) = Path("/proc/fs/jbd2").glob(f"{name}-*/info")
    return int(info.read_text().split()[0])


def of_jbd2() -> Iterator[Claim]:
    """Commits of a journal of ext4."""
    with place() as here:
        if not Path("/proc/fs/jbd2").is_dir():
            raise Missing("needs a kernel with jbd2")
        with here.recorded():
            before = _transactions(here.device.name)
            for number in range(50):
                with open(here.mount / f"file{number}", "wb") as file:
                    file.write(bytes(4096))
                    file.flush()
                    os.fsync(file.fileno())
            devices.run("sync", "--file-system", here.mount)
            after = _transactions(here.device.name)
        commits = here.report()["commits"]
        found = sum(one["commits"] for one in commits if one["device"] == here.device.name)
        # The kernel counts a commit a moment after its end; one more may come by time, every 5 s.
        yield equal("/proc/fs/jbd2: transactions", found, after - before, 1)


def _xfs(name: str) -> dict[str, list[int]]:
    """A file system's counters, by the word at the beginning of their line."""
    own = Path(f"/sys/fs/xfs/{name}/stats/stats")
    text = (own if own.exists() else Path("/proc/fs/xfs/stat")).read_text()
    lines = (line.split() for line in text.splitlines())
    return {name: list(map(int, numbers)) for name, *numbers in lines}


def of_xfs() -> Iterator[Claim]:
    with place("xfs") as here:
        with here.recorded():
            before = _xfs(here.device.name)
            for number in range(50):
                with open(here.mount / f"file{number}", "wb") as file:
                    file.write(bytes(4096))
                    file.flush()
                    os.fsync(file.fileno())
            after = _xfs(here.device.name)
        log = [after["log"][place] - before["log"][place] for place in range(2)]
        groups = here.report("--by", "purpose")["groups"]
        (journal,) = [one for one in groups if one["purpose"] == "journal"]
        # A write of the log that passes its end is two bios.
        yield equal("/proc/fs/xfs/stat: log writes", journal["ios"], log[0], 2)
        yield equal("/proc/fs/xfs/stat: blocks of the log", journal["bytes"] // 512, log[1])


TRUTHS: dict[str, Callable[[], Iterator[Claim]]] = {
    "fio": of_fio,
    "strace": of_strace,
    "etcd": of_etcd,
    "postgres": of_postgres,
    "mariadb": of_mariadb,
    "jbd2": of_jbd2,
    "xfs": of_xfs,
}


def of_program(name: str) -> list[Claim]:
    try:
        return list(TRUTHS[name]())
    except (Missing, pytest.skip.Exception) as why:
        return [skipped(PART, name, re.sub(r"\s+", " ", str(why)).replace("|", "/"))]
    except (OSError, RuntimeError, ValueError, AssertionError, subprocess.SubprocessError) as error:
        said = (str(error).splitlines() or [type(error).__name__])[0].replace("|", "/")
        return [Claim(PART, f"{name} can run here", said, "", False)]


def prove(names: tuple[str, ...] = ()) -> list[Claim]:
    if os.geteuid():
        raise RuntimeError("needs root")
    return [claim for name in names or TRUTHS for claim in of_program(name)]


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(TRUTHS)))
def main(names: tuple[str, ...]) -> None:
    """Print the table of NAMES (all unless named); exit 1 when anything does not hold."""
    found = prove(names)
    click.echo(table(found))
    sys.exit(failed(found))


if __name__ == "__main__":
    main()
