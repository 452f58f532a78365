# SPDX-License-Identifier: Apache-2.0
"""Shipping to an S3-compatible server, reading from there, and what goes wrong with it."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from biotrail.converters.inputs.parquet import locations
from tests.support.cli_runner import Cli
from tests.support.ports import free_port
from tests.support.record_command import BIOTRAIL, wait_until
from tests.support.s3_server import S3Server, s3_server
from tests.support.shipped_logs import EVENTS, archive_name, begin_log, write_log

SECONDS = 120
COMMAND = [*BIOTRAIL, "archive", "--watch"]


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
    files = running.files()
    files.create_dir("logs")
    yield running
    files.delete_dir("logs")
    locations._filesystem.cache_clear()


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
