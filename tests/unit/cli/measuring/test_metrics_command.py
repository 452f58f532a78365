# SPDX-License-Identifier: Apache-2.0
"""biotrail metrics: its options, and the server's address and answers."""

import socket
import urllib.error
from http import HTTPStatus

import pytest

from biotrail.cli.measuring.server import Address, MetricsServer, parse_address
from biotrail.cli.serving.exchange import Request, Response, plain
from biotrail.recorder.schema.errors import OutputError
from tests.support.cli_runner import Cli
from tests.support.metrics_scrapes import get


def answer(request: Request) -> Response:
    """An application that says what was asked for, or that its source fails."""
    if request.target == "/fails":
        raise OutputError("the source ended")
    return plain(HTTPStatus.OK, request.target)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9477", ("127.0.0.1", 9477)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:80", ("127.0.0.1", 80)),
        (":80", ("127.0.0.1", 80)),
    ],
)
def test_loopback_addresses_are_taken(text: str, address: tuple[str, int]) -> None:
    # GIVEN an address of this machine alone WHEN it is read THEN it is that
    assert parse_address(text) == Address(*address)


@pytest.mark.parametrize(
    "text", ["0.0.0.0:1", "[::]:1", "db1:1", "127.0.0.1", "127.0.0.1:x", ":65536"]
)
def test_other_addresses_are_refused(text: str) -> None:
    # GIVEN an address that others reach, or none WHEN it is read THEN it is refused
    with pytest.raises(ValueError, match=r"no loopback address|is no address"):
        parse_address(text)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_server_answers_requests_to_its_own_name(host: str) -> None:
    # GIVEN a server on a free port
    with MetricsServer(Address(host, 0), answer) as server:
        url = f"http://{server.address}"
        # WHEN it is asked by its address, or as localhost THEN it answers
        assert get(f"{url}/metrics") == "/metrics\n"
        assert get(f"{url}/metrics", Host=f"localhost:{server.address.port}") == "/metrics\n"
        # WHEN another name led there THEN it refuses
        with pytest.raises(urllib.error.HTTPError) as refused:
            get(f"{url}/metrics", Host="example.com")
        assert refused.value.code == 403
        # WHEN the source fails THEN the answer says why
        with pytest.raises(urllib.error.HTTPError) as failed:
            get(f"{url}/fails")
        assert (failed.value.code, failed.value.read()) == (500, b"the source ended\n")


def test_a_port_that_is_taken_is_named() -> None:
    # GIVEN a port in use
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        # WHEN a server shall have it THEN the error says so, with a remedy
        with pytest.raises(OutputError, match=f"127.0.0.1:{port} is in use.*--listen"):
            MetricsServer(Address("127.0.0.1", port), answer)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--keep", "5s"), "--keep needs -o FILE"),
        (("--keep", "5s", "-o", "-"), "--keep needs -o FILE"),
        (("-o", "a.biotrail"), "give --keep 30s, too"),
        (("--by", "unit"), "--by is of figures that the model adds up"),
        (("--blame",), "--blame is of figures that the model adds up"),
        (("--events", "light", "--blame=file"), "is not one of 'owner'"),
        (("--op", "read"), "with filters give --events light"),
        (("--keep", "5s", "-o", "a.biotrail", "--op", "read"), "leave the filters out"),
        (("--listen", "0.0.0.0:1"), "no loopback address"),
    ],
)
def test_usage_errors(cli: Cli, arguments: tuple[str, ...], said: str) -> None:
    # GIVEN options that contradict each other WHEN metrics is called THEN it says so: usage
    done = cli("metrics", *arguments)
    assert done.status == 2
    assert said in " ".join(done.err.split())
