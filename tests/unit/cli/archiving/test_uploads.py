# SPDX-License-Identifier: Apache-2.0
"""Uploads to an S3-compatible server of which an answer was lost: no part of them stays."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import boto3
import pytest

from biotrail.cli.archiving.destination import abort_uploads
from biotrail.converters.inputs.parquet import locations
from tests.support.cli_runner import Cli
from tests.support.ports import free_port
from tests.support.record_command import BIOTRAIL, wait_until
from tests.support.s3_server import S3Server, s3_server
from tests.support.shipped_logs import EVENTS, archive_name, begin_log, write_log

# A proxy before an HTTP server that passes requests on and loses some of the answers.

Loses = Callable[[str], bool]
"""Request line, as "GET /path?query HTTP/1.1" → whether its answer is lost."""
_METHODS = (b"GET ", b"PUT ", b"POST ", b"HEAD ", b"DELETE ")


@contextmanager
def lossy_proxy(port: int, loses: Loses) -> Iterator[int]:
    """Yield the port of a proxy before the server at `port` of this machine.

    A request begins where a client's bytes arrive; a connection with a lost answer is reset.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, port, loses), daemon=True).start()
        yield int(listening.getsockname()[1])


def _accept(listening: socket.socket, port: int, loses: Loses) -> None:
    with suppress(OSError):  # closed: the test is over
        while True:
            client, _ = listening.accept()
            server = socket.create_connection(("127.0.0.1", port))
            lost = threading.Event()
            for target in (_ask, _answer):
                threading.Thread(
                    target=target, args=(client, server, lost, loses), daemon=True
                ).start()


def _ask(client: socket.socket, server: socket.socket, lost: threading.Event, loses: Loses) -> None:
    """Pass a client's bytes on; note if the answer to them is lost."""
    with suppress(OSError):
        while data := client.recv(1 << 20):
            if data.startswith(_METHODS) and loses(data.partition(b"\r\n")[0].decode()):
                lost.set()
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def _answer(
    client: socket.socket, server: socket.socket, lost: threading.Event, _loses: Loses
) -> None:
    """Pass the server's bytes back, up to an answer that is lost."""
    with suppress(OSError):
        while (data := server.recv(1 << 20)) and not lost.is_set():
            client.sendall(data)
    for one in (client, server):
        with suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
        one.close()


# Uploads to an S3-compatible server of which an answer was lost: no part of them stays.

_HANGS = """
import sys, time
from biotrail.converters.inputs.parquet import locations
place = locations.locate(sys.argv[1])
stream = place.filesystem.open_output_stream(place.path)
stream.write(b"x" * (6 << 20))
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def running() -> Iterator[S3Server]:
    with s3_server() as server:
        yield server


@pytest.fixture
def server(running: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """The server, found by this process's environment; with the bucket `logs`, empty."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    locations._filesystem.cache_clear()
    running.files().create_dir("logs")
    yield running
    running.files().delete_dir("logs")
    locations._filesystem.cache_clear()


def uploads(server: S3Server) -> list[str]:
    """The keys to which uploads are under way, as another client of S3 sees them."""
    client = boto3.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{server.port}",
        aws_access_key_id="key",
        aws_secret_access_key="secret",
        region_name="us-east-1",
    )
    found = client.list_multipart_uploads(Bucket="logs").get("Uploads", [])
    return [upload["Key"] for upload in found]


@pytest.mark.parametrize("lost", ["the begin", "the end"])
def test_what_a_lost_answer_leaves_is_aborted(
    server: S3Server, tmp_path: Path, cli: Cli, lost: str
) -> None:
    # GIVEN a storage of which the answer to an upload's begin, or end, is lost for the first time
    write_log(tmp_path / "run.biotrail", 1)
    missing = {"the begin": "?uploads", "the end": "?uploadId="}[lost]
    seen: list[str] = []

    def loses(request: str) -> bool:
        seen.append(request)
        return seen[-1:] == _posts(seen, missing)

    with lossy_proxy(server.port, loses) as port:
        to = f"s3://logs/fleet?endpoint_override=127.0.0.1:{port}&scheme=http"
        # WHEN a log is shipped there, again if need be
        command = [*BIOTRAIL, "archive", "--watch", tmp_path, "--to", to, "--once"]
        for _ in range(2):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
            if done.returncode == 0:
                break
    # THEN its archive is there, and nothing of an upload is left
    assert _posts(seen, missing)
    assert done.returncode == 0, done.stderr
    assert uploads(server) == []
    assert cli("verify", f"s3://logs/fleet/{archive_name(1, 'run')}").status == 0


def _posts(seen: list[str], sign: str) -> list[str]:
    return [one for one in seen if one.startswith("POST") and sign in one]


def test_what_a_killed_shipper_left_is_aborted_and_nothing_else(
    server: S3Server, tmp_path: Path, cli: Cli
) -> None:
    # GIVEN uploads that a killed program left: to a log's archive, and to objects beside it
    write_log(tmp_path / "run.biotrail", 1)
    name = f"x/{archive_name(1, 'run')}"
    others = [f"{name}.more", "x/a b%+/=?.parquet"]
    for key in (name, *others):
        url = f"s3://logs/{key}"
        with subprocess.Popen(
            [sys.executable, "-c", _HANGS, url], stdout=subprocess.PIPE, env=dict(os.environ)
        ) as child:
            assert child.stdout is not None
            child.stdout.readline()
            wait_until(lambda: key in uploads(server), "the upload is under way")  # noqa: B023
            child.send_signal(signal.SIGKILL)
    # WHEN the log is shipped
    done = cli("archive", "--watch", tmp_path, "--to", "s3://logs/x", "--once")
    # THEN the first is gone, and the others are left to whose they are
    assert done.status == 0, done.err
    assert sorted(uploads(server)) == sorted(others)
    # AND keys with characters that a signature escapes are found as well
    for key in others:
        assert abort_uploads(locations.locate("s3://logs")._replace(path=f"logs/{key}")) == 1
    assert uploads(server) == []


def test_without_rights_or_credentials_shipping_goes_on(
    server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN no server, no credentials, or another kind of storage
    place = locations.locate("s3://logs/x")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    # WHEN uploads are looked for THEN there are none, and no error
    assert abort_uploads(place) == 0
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    assert abort_uploads(place) == 0
    assert abort_uploads(place._replace(url="gs://logs/x")) == 0


def test_a_key_that_is_too_long_is_its_logs_fault(
    server: S3Server, tmp_path: Path, cli: Cli
) -> None:
    # GIVEN a log whose host's name makes a key of more than 1,024 bytes, and another one
    write_log(tmp_path / "a.biotrail", 1, host="é" * 200)
    write_log(tmp_path / "b.biotrail", 2)
    # WHEN they are shipped THEN the second is, and the first is told
    done = cli("archive", "--watch", tmp_path, "--to", "s3://logs", "--once")
    assert done.status == 1
    assert "its key would have 1251 bytes, and object storage takes 1024; its host's" in done.err
    assert "1 log shipped, 1 not shipped" in done.err
    assert [path.name for path in tmp_path.glob("*.biotrail")] == ["a.biotrail"]


# Shipping to an S3-compatible server, reading from there, and what goes wrong with it.

SECONDS = 120
COMMAND = [*BIOTRAIL, "archive", "--watch"]


def test_logs_go_to_a_bucket_and_are_read_from_there(
    server: S3Server, tmp_path: Path, cli: Cli
) -> None:
    # GIVEN two logs, and what a report says of one
    for number in (1, 2):
        write_log(tmp_path / f"run-{number}.biotrail", number, host="rack 1/db7%")
    wanted = cli("info", "--json", tmp_path / "run-1.biotrail")
    # WHEN they are shipped
    done = cli("archive", "--watch", tmp_path, "--to", "s3://logs/fleet", "--once")
    # THEN they are gone, and in the bucket by names that survive the host's
    assert done.status == 0, done.err
    assert list(tmp_path.glob("*.biotrail")) == []
    names = [archive_name(n, f"run-{n}", host="rack%201%2Fdb7%25") for n in (1, 2)]
    urls = [f"s3://logs/fleet/{name}" for name in names]
    assert locations.expand("s3://logs/fleet") == urls
    assert locations.expand("s3://logs/**/run-[2-9]*.parquet") == urls[1:]
    # AND every command reads them there: one, a folder, wildcards
    verified = cli("verify", "s3://logs/fleet")
    assert (verified.status, verified.out.count(f"whole: archive of {EVENTS} events")) == (0, 2)
    found = cli("info", "--json", urls[0])
    assert found.status == 0, found.err
    account = '"account": '
    assert found.out.partition(account)[2] == wanted.out.partition(account)[2] != ""
    both = cli("report", "s3://logs/fleet/*/*/*/*.parquet")
    assert both.status == 0, both.err
    assert both.out.count(urls[0]) and both.out.count(urls[1])


def test_what_is_made_of_an_archive_at_a_url_goes_to_the_working_directory(
    server: S3Server, tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN an archive in a bucket
    write_log(tmp_path / "run.biotrail", 1)
    assert cli("archive", "--watch", tmp_path, "--to", "s3://logs", "--once").status == 0
    [url] = locations.expand("s3://logs")
    monkeypatch.chdir(tmp_path)
    # WHEN commands read it, some of them twice; and one by the endpoint in the URL
    endpoint = f"{url}?endpoint_override=127.0.0.1:{server.port}&scheme=http"
    for arguments in (("convert", url), ("slow", url), ("hist", url), ("info", endpoint)):
        done = cli(*arguments)
        # THEN they succeed
        assert done.status == 0, done.err
    # AND the trace is here, by the archive's name
    assert len(list(tmp_path.glob("run-*.pftrace"))) == 1


def test_an_upload_that_ended_halfway_is_taken_up(
    server: S3Server, tmp_path: Path, cli: Cli
) -> None:
    # GIVEN an object that holds a part of a log's archive
    write_log(tmp_path / "run.biotrail", 1)
    place = locations.locate("s3://logs").child(archive_name(1, "run"))
    with place.filesystem.open_output_stream(place.path) as stream:
        stream.write(b"PAR1 and no more")
    # WHEN the log is shipped
    done = cli("archive", "--watch", tmp_path, "--to", "s3://logs", "--once")
    # THEN the object is the whole archive
    assert done.status == 0, done.err
    assert cli("verify", place.url).status == 0
    assert list(tmp_path.glob("*.biotrail")) == []


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("s3://nowhere/x", "there is no such bucket: make it, or give another one"),
        ("s3://logs?endpoint_override=127.0.0.1:1&scheme=http", "the storage cannot be reached"),
        ("s3://key:secret@logs/x", "a URL with a password shows in every list of processes"),
        ("s3:///x", "names no bucket"),
        ("gopher://logs/x", "gopher:"),
    ],
)
def test_what_is_wrong_is_one_message_and_nothing_is_lost(
    server: S3Server, tmp_path: Path, cli: Cli, to: str, said: str
) -> None:
    # GIVEN a log
    log = write_log(tmp_path / "run.biotrail", 1)
    before = log.read_bytes()
    # WHEN it is shipped to where it cannot go
    done = cli("archive", "--watch", tmp_path, "--to", to, "--once")
    # THEN one line says so, and the log is as it was
    assert (done.status, done.err.count("\n")) == (1, 1), done.err
    assert said in done.err
    assert "secret" not in done.err.replace("AWS_SECRET", "")
    assert log.read_bytes() == before


def test_wrong_credentials_are_said(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a server that does not know the access key
    write_log(tmp_path / "run.biotrail", 1)
    with s3_server(INITIAL_NO_AUTH_ACTION_COUNT="0") as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        locations._filesystem.cache_clear()
        # WHEN a log is shipped to it, and an archive read from it
        done = cli("archive", "--watch", tmp_path, "--to", "s3://logs", "--once")
        read = cli("info", "s3://logs/x.parquet")
    locations._filesystem.cache_clear()
    # THEN one line says so, and the log stays
    for one in (done, read):
        assert (one.status, one.err.count("\n")) == (1, 1), one.err
        assert "access denied: check the credentials" in one.err
    assert (tmp_path / "run.biotrail").exists()


def test_a_url_at_which_there_is_nothing(server: S3Server, cli: Cli) -> None:
    # GIVEN an empty bucket; WHEN something in it is read
    for url, said in (
        ("s3://logs/x.parquet", "cannot be opened: No such file or directory"),
        ("s3://logs/*.parquet", "no archive there"),
    ):
        done = cli("report", url)
        # THEN one line says that it is not there
        assert (done.status, done.err.count("\n")) == (1, 1), done.err
        assert said in done.err


def test_a_watcher_goes_on_when_the_storage_does(tmp_path: Path) -> None:
    # GIVEN a watcher whose storage is down, a log, and one that is being written
    port = free_port()
    logs, said = tmp_path / "logs", tmp_path / "said"
    logs.mkdir()
    write_log(logs / "run-1.biotrail", 1)
    environment = {**os.environ, **S3Server(port).environment}
    with (logs / "run-2.biotrail").open("wb") as stream, said.open("wb") as err:
        begin_log(stream, 2)
        stream.flush()
        watcher = subprocess.Popen(
            [*COMMAND, str(logs), "--to", "s3://logs/x"], env=environment, stderr=err
        )
        try:
            wait_until(
                lambda: b"tried again" in said.read_bytes(), "it says that the storage is down"
            )
            # WHEN it is there again
            with s3_server(port) as server:
                server.files().create_dir("logs")
                # THEN the log is shipped
                wait_until(lambda: not (logs / "run-1.biotrail").exists(), "the log is shipped")
                # AND when it is terminated it ends well, and the other log stays
                watcher.send_signal(signal.SIGTERM)
                assert watcher.wait(SECONDS) == 0
        finally:
            watcher.kill()
            watcher.wait(SECONDS)
    lines = said.read_text().splitlines()
    assert len([line for line in lines if "cannot be" in line]) == 1, lines
    assert "biotrail: the destination works again" in lines
    assert lines[-1] == "biotrail: 1 log shipped, 1 still being written"
    assert (logs / "run-2.biotrail").exists()
