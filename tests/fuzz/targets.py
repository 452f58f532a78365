# SPDX-License-Identifier: Apache-2.0
"""What is fuzzed: any bytes as a log, as other tools' data, as a command line with its file.

A target takes bytes, and raises when biotrail breaks its promise: a clear message with status
1 or 2, or a result; never another exception; and what reading costs is bounded by the file's size,
counted in bytes. Both the tests and `make fuzz` call these.
"""

import io
import os
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import click

from biotrail.cli import info, stacks, view
from biotrail.cli.main import cli, main
from biotrail.cli.measuring.application import application
from biotrail.cli.measuring.server import guarded
from biotrail.cli.reporting import flame_graph
from biotrail.cli.reporting import page as report_page
from biotrail.cli.reporting.slowest import look_again
from biotrail.cli.serving.loopback_server import MOST_HEAD_BYTES, Connection
from biotrail.converters.analysis.choosing.choosing import Choice
from biotrail.converters.analysis.distributions.histograms import Histograms, Measure, Question
from biotrail.converters.analysis.page import html
from biotrail.converters.analysis.slow.slow import Slowest, Wanted
from biotrail.converters.analysis.stacks.flame import Recorded, flame
from biotrail.converters.analysis.stacks.stacks import Weight
from biotrail.converters.inputs.foreign import ForeignSource
from biotrail.converters.inputs.log import LogSource, Source
from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.converters.outputs.perfetto import convert as perfetto
from biotrail.converters.pipeline import Trace
from biotrail.recorder.log import LogReader
from biotrail.recorder.schema.errors import LogFormatError
from biotrail.recorder.schema.records import Kind
from biotrail.text import hist as hist_text
from biotrail.text import stacks as stacks_text
from biotrail.text.slow import slow as slow_text
from tests.fuzz.borders import within
from tests.fuzz.fuzz_mending import mended
from tests.support.metrics_scrapes import exposed
from tests.support.read_cost import Counting, check, counted
from tests.support.sources import Pipe

COMMANDS = frozenset(name.encode() for name in cli.list_commands(click.Context(cli)))
ANSWERING = frozenset({b"verify", b"doctor"})
"""Commands whose answer may be no: status 1, and what is wrong on standard output."""
FILE = "@"
"""This word of a command line stands for the fuzzed file."""
_WORDS_AT_MOST = 16
_STATUSES = (0, 1, 2)


def log(data: bytes) -> None:
    """Frames: as they are and with their checksums set right, from a file and a pipe."""
    for bytes_ in (data, mended(data)):
        for stream in (io.BytesIO(bytes_), Pipe(bytes_)):
            try:
                with counted() as spent:
                    reader = LogReader(stream)
                    for chunk in reader.chunks():
                        assert chunk.clock["monotonic"] >= 0
            except LogFormatError as error:
                check_message(str(error))
                continue
            finally:
                check(bytes_, spent)
            assert all(window["start"] <= window["end"] for window in reader.damaged)
            assert all(isinstance(problem, str) for problem in reader.problems)


def model(data: bytes) -> None:
    """A log with right checksums, through the model, the account and a conversion."""
    _through(mended(data))


def blktrace(data: bytes) -> None:
    """blktrace's records, through the model, the account and a conversion."""
    cost(data)
    _through(data)


def archive(data: bytes) -> None:
    """An archive, with its magic number where it should be, likewise."""
    magic = b"PAR1"
    data = magic + data[len(magic) : -len(magic)] + magic
    cost(data)
    _through(data)


def inputs(data: bytes) -> None:
    """Any other tool's recording, as its first bytes say which, likewise.

    One of which no event can be read is refused.
    """
    cost(data)
    _through(data)
    refused_without_events(data)


def blkparse(data: bytes) -> None:
    """Printed records of blkparse, likewise."""
    inputs(data)


def lttng(data: bytes) -> None:
    """A directory with metadata, whose length is in the first four bytes, and one stream."""
    size = int.from_bytes(data[:4], "little") % (len(data) + 1)
    with tempfile.TemporaryDirectory(prefix="biotrail-fuzz-") as directory:
        Path(directory, "metadata").write_bytes(data[4 : 4 + size])
        Path(directory, "blk_0").write_bytes(data[4 + size :])
        try:
            trace = Trace(directory)
            found = sum(len(window.bios) for window in trace.lifecycles())
            info.facts(trace)
        except LogFormatError as error:
            check_message(str(error))
            return
        assert found >= 0
        if not _events(directory):
            assert_refused([directory], b"")


def refused_without_events(data: bytes) -> None:
    """That no command ends well with a recording of another tool of which no event can be read."""
    try:
        source = open_source(io.BytesIO(data))
        if isinstance(source, LogSource | ArchiveSource) or _events(source):
            return
    except LogFormatError:
        pass
    assert_refused([FILE], data)


def _events(given: str | Source) -> int:
    """How many block events are read; names of threads are none."""
    parts = open_source(given).parts()
    return sum(int((part.events.kind != Kind.TASK).sum()) for part in parts)


def assert_refused(arguments: list[str], content: bytes) -> None:
    """That a report of it is a message and status 1."""
    status, said = run(["report", *arguments], content)
    assert (status, "Traceback" in said) == (1, False), (status, said)
    check_message(said)


def cost(data: bytes) -> None:
    """What one reading of all events handles is bounded by the file's size.

    Another tool's recording gives a block event, or an error: what was not read is no success.
    """
    events = 0
    with counted() as spent:
        try:
            source = open_source(Counting(data, spent))
            for part in source.parts():
                events += int((part.events.kind != Kind.TASK).sum())
            assert events or not isinstance(source, ForeignSource)
        except LogFormatError as error:
            check_message(str(error))
    check(data, spent)


def _through(data: bytes) -> None:
    try:
        trace = Trace(io.BytesIO(data))
        perfetto.convert(trace.lifecycles(), trace.context, io.BytesIO(), stacks=trace.stacks)
        "\n".join(info.lines("log", trace)).encode()
        info.facts(trace)
        trace = Trace(io.BytesIO(data))
        if "stacks" in trace.reader.header:
            table = stacks.gather(trace)
            "\n".join(stacks_text.text_lines(trace, table, Weight.LATENCY, 5)).encode()
            stacks_text.as_dict(trace, table, Weight.COUNT)
            tree = flame([Recorded("", table.callers(), trace.stacks.all())])
            for form in (".svg", ".html"):
                flame_graph.text(form, "x", tree, Weight.BYTES, [])
        _answers(data)
        html.page("page", "", report_page.collect(lambda: Trace(io.BytesIO(data)))).encode()
    except LogFormatError as error:
        check_message(str(error))


def _answers(data: bytes) -> None:
    trace = Trace(io.BytesIO(data))
    found = Slowest(trace, Choice(trace.context), Wanted(5))
    counted = [
        Histograms(trace.context, Choice(trace.context), Question(measure, over_time=True))
        for measure in Measure
    ]
    for window in trace.lifecycles(on_window=found.watch):
        for distribution in counted:
            distribution.add(window)
    look_again(found, Trace(io.BytesIO(data)))
    "\n".join(slow_text.lines_of_all([("", found)], slow_text.Detail.USUAL)).encode()
    for distribution in counted:
        "\n".join(hist_text.lines(trace, distribution, "usecs")).encode()


def command(data: bytes) -> None:
    """The first line is the command line, words apart by blanks; the rest is the file."""
    line, _, content = data.partition(b"\n")
    words = [word for word in line.split(b" ") if word][:_WORDS_AT_MOST]
    if not words or words[0] not in COMMANDS or b"-h" in words or b"--help" in words:
        return
    arguments = [_harmless(word) for word in words]
    status, said = run(arguments, mended(content))
    assert status in _STATUSES, (status, said)
    assert "Traceback" not in said, said
    if status and not (status == 1 and words[0] in ANSWERING):
        assert "rror: " in said, said
        check_message(said)


def check_message(text: str) -> None:
    """A message is short, printable and says something."""
    assert len(text.strip()) > 10, text
    text.encode()


def _harmless(word: bytes) -> str:
    """A word that names nothing outside the working directory."""
    text = os.fsdecode(word.replace(b"\0", b""))
    return text.replace("/", "_").replace("..", "__")


def run(arguments: list[str], content: bytes) -> tuple[int, str]:
    """(exit status, what went to standard error) in a directory of its own."""
    with tempfile.TemporaryDirectory(prefix="biotrail-fuzz-") as directory:
        for name in (b"file", b"a\xff"):
            Path(os.fsdecode(os.path.join(os.fsencode(directory), name))).write_bytes(content)
        words = [word.replace(FILE, "file") for word in arguments]
        with within(directory), _redirected(directory, content) as said:
            try:
                main(words)
            except SystemExit as end:
                status = end.code
        assert isinstance(status, int)
        sys.stdout.flush()
        return status, said.getvalue()


@contextmanager
def _redirected(directory: str, stdin: bytes) -> Iterator[io.StringIO]:
    before, cwd = (sys.stdin, sys.stdout, sys.stderr), os.getcwd()
    wait, show, reachable = view.wait, view.show, view.reachable
    said = io.StringIO()
    os.chdir(directory)
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin))
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    sys.stderr = said
    # Nobody fetches the trace, no browser is to open, and nothing is asked of the network.
    view.wait = lambda server, goes_on: None
    view.show = lambda *arguments: None
    view.reachable = lambda origin: False
    try:
        yield said
    finally:
        sys.stdin, sys.stdout, sys.stderr = before
        view.wait, view.show, view.reachable = wait, show, reachable
        os.chdir(cwd)


def server(data: bytes) -> None:
    """What a peer sends to the server of metrics: an answer, never a status 500, in bounds."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        connection = Connection(theirs, _SCRAPED, 0.0)
        sent, said, goes_on = 0, b"", True
        while goes_on:
            if sent < len(data):
                sent += ours.send(data[sent : sent + _SENT_AT_ONCE])
            elif not connection.answering:
                ours.shutdown(socket.SHUT_WR)
            goes_on = connection.step(0.0)
            with suppress(BlockingIOError):
                said += ours.recv(1 << 20)
            assert len(connection._head) <= 2 * MOST_HEAD_BYTES
    assert not said or (said[:9] == b"HTTP/1.1 " and said[9:12] in _ANSWERS), said[:40]


_SENT_AT_ONCE = 4096
_ANSWERS = {b"200", b"400", b"403", b"431", b"501", b"505"}
_SCRAPED = guarded(application(exposed()), {"127.0.0.1", "localhost"})

TARGETS: dict[str, Callable[[bytes], None]] = {
    "log": log,
    "model": model,
    "blktrace": blktrace,
    "archive": archive,
    "inputs": inputs,
    "blkparse": blkparse,
    "lttng": lttng,
    "command": command,
    "server": server,
}
