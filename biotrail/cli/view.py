# SPDX-License-Identifier: Apache-2.0
"""`biotrail view`: opens a log or a trace in the Perfetto UI in the browser."""

import os
import re
import sys
import tempfile
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import click
import zstandard

from biotrail.cli.options import compressing
from biotrail.cli.options.cuts import Cut, cut_options, opened
from biotrail.cli.options.ending import terminated_as_interrupted
from biotrail.cli.options.opening import USUAL, Reading, reading_options
from biotrail.cli.options.perfetto_ui import UI, address, view_of
from biotrail.cli.options.recordings import LOG_ENDINGS
from biotrail.cli.serving.trace_server import EXTRA, TraceServer, UiServer, packaged_ui
from biotrail.converters.inputs import unpacking
from biotrail.converters.outputs.perfetto.names import STANDARD
from biotrail.converters.outputs.perfetto.summary import View
from biotrail.recorder.schema.errors import LogFormatError, OutputError
from biotrail.text import units, values
from biotrail.text.printing import say

WHOLE = Cut()
PORT = 9001
"""The UI's content security policy lets it fetch from this port of 127.0.0.1 only."""

PATIENCE = 3.0
"""Seconds for the UI's server to answer, after which it counts as not reached."""

_TRACE_STARTS = (b"\x0a", b"\x1f\x8b")
"""First bytes of a trace: a protobuf message of `packet` fields (tag 0a), plain or gzip."""


@click.command()
@click.argument("source", metavar="LOG|TRACE", type=values.FileName())
@cut_options
@reading_options(labels=True)
@click.option("--no-open", is_flag=True, help="Print the address and open no browser.")
@click.option(
    "--port",
    type=units.Count(0, 65535),
    default=PORT,
    show_default=True,
    help="Port of 127.0.0.1 to serve on. https://ui.perfetto.dev accepts the default only.",
)
@click.option(
    "--ui",
    "wanted",
    type=click.Choice(["web", "local"]),
    help="web: https://ui.perfetto.dev. local: the UI of an installed package, served from "
    "127.0.0.1 without the internet; needs the extra view: pip install 'biotrail[view]'.  "
    "[default: web; local where that cannot be reached]",
)
@click.option("--origin", type=values.text, default=UI, hidden=True)
def command(
    source: str,
    cut: Cut,
    reading: Reading,
    no_open: bool,
    port: int,
    wanted: str | None,
    origin: str,
) -> None:
    """Open a log or a Perfetto trace in the Perfetto UI (https://ui.perfetto.dev).

    A log is converted first. The trace stays on this machine: the UI, a page in your browser,
    fetches it from 127.0.0.1. The command ends when the UI has fetched the trace, or on Ctrl-C;
    with --ui local on Ctrl-C alone, as it serves the UI, too.
    Your browser may ask whether the page may reach this device: allow it.

    \b
    biotrail view disk.biotrail
    biotrail view --ui local disk.biotrail
    biotrail view --around 14:03:05 disk.biotrail
    biotrail view disk.pftrace
    ssh host sudo biotrail record -o - --duration 5s | biotrail view -
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    ui = packaged_ui() if wanted == "local" else None
    if wanted == "local" and ui is None:
        raise OutputError(f"--ui local needs the extra view: pip install '{EXTRA}'")
    with terminated_as_interrupted(), trace_file(source, cut, reading) as (trace, view):
        size, name = os.fstat(trace.fileno()).st_size, served_name(source)
        if wanted is None and not reachable(origin):
            ui = packaged_ui()
            if ui is None:
                what = f"; pip install '{EXTRA}' brings a UI that needs no internet"
            else:
                what = f": the UI of {ui.package} is served (Perfetto {ui.version})"
            say(f"{origin.partition('://')[2]} cannot be reached from here{what}", err=True)
        with (
            UiServer(trace, size, name, ui, port=port)
            if ui
            else TraceServer(trace, size, name, port=port, origin=origin)
        ) as server:
            page = server.page if isinstance(server, UiServer) else origin
            where = address(page, server.url, view) if view else f"{page}/#!/?url={server.url}"
            show(where, server.port, no_open)
            wait(server, goes_on=ui is not None)


def reachable(origin: str) -> bool:
    """Return whether a web server answers within PATIENCE, through a proxy if one is set."""
    from http.client import HTTPException
    from urllib.request import Request, urlopen

    answered: list[bool] = []

    def ask() -> None:
        with (
            suppress(OSError, HTTPException, ValueError),
            urlopen(Request(origin, method="HEAD"), timeout=PATIENCE),
        ):
            answered.append(True)

    # In a thread, as resolving a name takes as long as the resolver's settings say.
    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return bool(answered)


@contextmanager
def trace_file(
    source: str, cut: Cut = WHOLE, reading: Reading = USUAL
) -> Iterator[tuple[BinaryIO, View | None]]:
    """Yield a trace's file and its view: `source` itself, or a conversion of the log `source`."""
    if source != "-" and not Path(source).is_dir() and is_trace(source):
        if cut != WHOLE:
            raise click.UsageError(f"{source} is a trace already: a part can be made of its log")
        with open(source, "rb") as stream:
            packed = stream.read(4) == unpacking.ZSTD
            stream.seek(0)
            if not packed:
                yield stream, view_of(stream)
                return
            with unnamed_file() as trace:  # the UI may not support zstd
                compressing.unpack(stream, trace, source)
                written(trace)
                yield trace, view_of(trace)
        return
    from biotrail.cli.converting import perfetto
    from biotrail.text.progress import progress

    with unnamed_file() as trace, opened(source, cut, reading) as log:
        with progress(log.trace) as windows:
            summary = perfetto.write_stream(log, log.chosen(windows), trace, STANDARD)
        written(trace)
        if summary.warning:
            say(summary.warning, err=True)
        yield trace, summary.view


@contextmanager
def unnamed_file() -> Iterator[BinaryIO]:
    """Yield an unnamed file, readable by this user alone; the kernel removes it however we end."""
    try:
        file = tempfile.TemporaryFile(prefix="biotrail-view-")  # noqa: SIM115 - closed below
    except OSError as error:
        raise OutputError(
            f"no file can be made in {tempfile.gettempdir()}: {error.strerror}. Set TMPDIR"
        ) from error
    try:
        yield cast(BinaryIO, file)
    finally:
        with suppress(OSError):  # `written` has reported that the rest could not be written
            file.close()


def written(file: BinaryIO) -> None:
    try:
        file.seek(0)
    except OSError as error:
        raise OutputError(
            f"The trace cannot be written in {tempfile.gettempdir()}: {error.strerror}. "
            "Make room, or set TMPDIR to another place."
        ) from error


def is_trace(path: str) -> bool:
    """Return whether a file starts as Perfetto traces do, decompressed if it is zstd."""
    with open(path, "rb") as stream:
        head = stream.read(4)
        if not head:
            raise LogFormatError(f"{path} is empty: neither a log nor a trace.")
        if head == unpacking.ZSTD:
            stream.seek(0)
            with suppress(zstandard.ZstdError):
                head = zstandard.ZstdDecompressor().stream_reader(stream).read(len(head))
    return head.startswith(_TRACE_STARTS)


def served_name(source: str) -> str:
    """Return the trace's name in the URL and the UI, of characters that need no quoting."""
    stem = "stdin" if source == "-" else Path(source).name
    for suffix in (compressing.GZIP, compressing.ZSTD, *LOG_ENDINGS):
        stem = stem.removesuffix(suffix)
    return (re.sub(r"[^A-Za-z0-9._-]+", "_", stem).lstrip(".") or "trace") + ".pftrace"


def show(address: str, port: int, no_open: bool) -> None:
    # Root's is no browser to start.
    graphical = any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    browser = os.geteuid() != 0 and (sys.platform == "darwin" or graphical)
    opened = not no_open and browser and webbrowser.open(address)
    say(f"{'opened' if opened else 'open'} {address}")
    if not opened and "SSH_CONNECTION" in os.environ:
        say(f"from another machine: ssh -L {port}:127.0.0.1:{port} and open it there")
    say("waiting for the UI to fetch the trace; Ctrl-C ends")
    sys.stdout.flush()


def wait_for(event: threading.Event, seconds: float) -> bool:
    return event.wait(seconds)


def wait(server: TraceServer, goes_on: bool = False) -> None:
    """Wait until the trace was fetched, or Ctrl-C; goes_on: for Ctrl-C alone."""
    end = threading.Event() if goes_on else server.fetched
    printed, ended, told = 0, False, False
    try:
        while not ended:
            ended = wait_for(end, 0.2)
            # After the wait, even the last one: a refusal just before the fetch is told, too.
            for why in server.refused[printed:]:
                say(f"refused a request: {why}", err=True)
                printed += 1
            if goes_on and server.fetched.is_set() and not told:
                say("the UI has the trace, and is served until Ctrl-C")
                sys.stdout.flush()
                told = True
    except KeyboardInterrupt:
        say("stopped")
        return
    say("the UI has the trace")
