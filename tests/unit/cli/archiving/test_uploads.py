# SPDX-License-Identifier: Apache-2.0
"""Uploads to an S3-compatible server of which an answer was lost: no part of them stays."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest

from biotrail.cli.archiving.destination import abort_uploads
from biotrail.converters.inputs.parquet import locations
from tests.support.cli_runner import Cli
from tests.support.lossy_proxy import lossy_proxy
from tests.support.record_command import BIOTRAIL, wait_until
from tests.support.s3_server import S3Server, s3_server
from tests.support.shipped_logs import archive_name, write_log

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
