# SPDX-License-Identifier: Apache-2.0
"""The beginning of what is to be read, by which its format is recognised."""

import os
import re
import stat
from collections.abc import Callable
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple, cast

from biotrail.converters.inputs.unpacking import GZIP, ZSTD, ZSTD_BLOCK
from biotrail.recorder.log.frames import MAGIC
from biotrail.recorder.log.opening import COMPRESSED
from biotrail.recorder.schema.errors import LogFormatError

PathOrStream = str | os.PathLike[str] | BinaryIO

PEEKED_BYTES = 4096
PACKED_PEEKED_BYTES = ZSTD_BLOCK + 64
"""Bytes in which zstd's first block ends: its head is at most 18, the block's 3."""
PIPE = "the path of a log, or of a pipe that you may read"
_LEAST_BYTES = 64
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]+://")
UTF8_MARK = b"\xef\xbb\xbf"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")
_LOST_PAGE = re.compile(rb"\0{512,}|\0{16,}\Z")
"""Zeros as a page leaves them that was not written, cut off where the looked at bytes end."""
_CONTROL = bytes(set(range(32)) - set(b"\t\n\r\f\x1b"))
_MOST_ODD = 0.02
"""Share of control characters and of bytes that are no UTF-8, which names of threads may have."""


class Beginning(NamedTuple):
    """given: the path, or a stream that still yields `first`, the first bytes; b"": none."""

    given: PathOrStream
    first: bytes

    @property
    def path(self) -> str | None:
        given = self.given
        return os.fspath(given) if isinstance(given, str | os.PathLike) else None


def begin(given: PathOrStream) -> Beginning:
    """Return the beginning of a path or stream; of a pipe as much as is there, 64 bytes at least.

    A stream is set back where it is seekable, else wrapped. A pipe's path becomes a stream: what is
    read of a pipe cannot be read again. Raises OSError: a stream cannot be read; LogFormatError: a
    pipe cannot be opened, or is called an archive.
    """
    if isinstance(given, str | os.PathLike) and is_pipe(given):
        if os.fspath(given).endswith(".parquet"):  # not waited for: it would be refused anyway
            raise LogFormatError(
                f"{os.fspath(given)}: is a FIFO, and an archive cannot be read from a pipe, as its "
                "metadata is at its end: give the archive's path"
            )
        given = open_file(given, PIPE)
    if isinstance(given, str | os.PathLike):
        try:
            with open(given, "rb") as stream:
                return begin(stream)._replace(given=given)
        except OSError:
            return Beginning(given, b"")
    if given.seekable():
        start = given.tell()
        first = given.read(PEEKED_BYTES)
        first += given.read(_wanted(first))
        given.seek(start)
        return Beginning(given, first)
    # Of a pipe what is there: a log that is still being written must not be waited for longer.
    read: Callable[[int], bytes] = getattr(given, "read1", given.read)
    first = b""
    while len(first) < _LEAST_BYTES and (more := read(PEEKED_BYTES - len(first))):
        first += more
    while (wanted := _wanted(first)) and (more := read(wanted)):
        first += more
    return Beginning(cast(BinaryIO, _Prefixed(first, given)), first)


def name_of(given: PathOrStream) -> str:
    if isinstance(given, str | os.PathLike):
        return os.fspath(given)
    return str(getattr(given, "name", "the stream"))


def open_file(given: PathOrStream, what: str) -> BinaryIO:
    """Return a stream, or a file opened by its path, which the caller closes."""
    if not isinstance(given, str | os.PathLike):
        return given
    try:
        return open(given, "rb")
    except OSError as error:
        raise LogFormatError(
            f"{os.fspath(given)}: cannot be opened: {error.strerror or error}; give {what}"
        ) from error


def read_some(stream: BinaryIO, count: int, name: str, offset: int) -> bytes:
    """Return at most `count` bytes. name, offset: where the stream is, for the error's message."""
    try:
        return stream.read(count)
    except OSError as error:
        raise LogFormatError(
            f"{name}: cannot be read at offset {offset}: {error.strerror or error}; copy what can "
            "be read elsewhere"
        ) from error


def is_text(first: bytes) -> bool:
    """Return whether a file that begins with these bytes is text in ASCII, UTF-8 or the like."""
    if first.startswith((*_UTF16, MAGIC)):
        return False
    text = _LOST_PAGE.sub(b"", first.removeprefix(UTF8_MARK))
    odd = len(text) - len(text.translate(None, _CONTROL))
    odd += text.decode("utf-8", "replace").count("\ufffd")
    return bool(text) and odd <= _MOST_ODD * len(text)


def is_url(given: Any) -> bool:
    """Return whether `given` is a URL (`SCHEME://…`, as of object storage), no path or stream."""
    return isinstance(given, str) and _URL.match(given) is not None


def is_pipe(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a FIFO, or /dev/fd/N of a pipe, as bash makes of `<(…)`."""
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _wanted(first: bytes) -> int:
    """Return how many more bytes are needed to know the beginning of what is compressed."""
    return max(PACKED_PEEKED_BYTES - len(first), 0) if first.startswith((GZIP, ZSTD)) else 0


class _Prefixed(BytesIO):
    """The bytes already read from a pipe, then the rest of the pipe."""

    def __init__(self, first: bytes, stream: BinaryIO) -> None:
        super().__init__(first)
        self._stream = stream
        self.name = name_of(stream)

    def seekable(self) -> bool:
        return False

    def read(self, size: int | None = -1, /) -> bytes:
        if size is None or size < 0:
            return super().read() + self._stream.read()
        return super().read(size) or self._stream.read(size)


WHAT_IS_READ = (
    "read are biotrail's own logs and archives, perf.data, trace.dat, blktrace's files, traces of "
    "Perfetto and LTTng, and the text of ftrace, trace-cmd, perf script and blkparse "
    "(docs/inputs.md)"
)
SCRIPT = "`perf script --ns -F comm,tid,cpu,time,event,trace`"
_LOOKED_AT = 4096
_KINDS: tuple[tuple[bytes, str, str], ...] = (
    (rb"\xff\xfe|\xfe\xff", "text in UTF-16", "convert it: `iconv -f UTF-16 -t UTF-8 FILE`"),
    (rb"(?s:.{257})ustar", "a tar archive", "unpack it first (tar xf)"),
    (
        rb"(?s:.{0,400}?)TRACE:\r?\n\x78[\x01\x5e\x9c\xda]",
        "atrace -z's, compressed",
        "trace without -z, or let `systrace.py --from-file FILE` unpack it",
    ),
    (
        rb"(?s:.*?) *\d+\.\d{3} \( *(?:\d+\.\d+ ms)?\): ",
        "perf trace's text, of system calls",
        f"record with `perf record -a -e 'block:*'`; of text give that of {SCRIPT}",
    ),
    (
        rb"(?s:.*?)<script[^>]*application/json[^>]*>\s*H4sI",
        "a trace viewer's page with a compressed trace",
        "give the trace that the page was made of",
    ),
    (rb"\s*<(?:!DOCTYPE|html)", "a web page without a trace's text", "give the trace itself"),
    (rb'\s*[{\[]\s*["{\[\]}]', "JSON", "give the recording that it was made of"),
    (rb"\x7fELF", "a program or a core dump (ELF)", ""),
    (rb"(?:\xd4\xc3\xb2\xa1|\xa1\xb2\xc3\xd4|\x0a\x0d\x0d\x0a)", "a capture of packets", ""),
    (rb"SQLite format 3\0", "an SQLite database", ""),
    (
        rb"(?s:.*?)\[\d\d:\d\d:\d\d\.\d+\] \(\+.*?\{ ?cpu_id = ",
        "babeltrace's text",
        "give the directory of LTTng's trace itself",
    ),
    (
        rb"TIME\(s\) +COMM +PID +DISK",
        "biosnoop's or biosnoop.bt's text, which has no events",
        "record with `biotrail record`",
    ),
    (rb"\0{64}", "zeros", "copy it again"),
)


def refusal(name: str, first: bytes) -> LogFormatError:
    for magic, what in COMPRESSED.items():
        if first.startswith(magic):
            return LogFormatError(f"{name}: is compressed by {what}; {WHAT_IS_READ}")
    for pattern, what, instead in _KINDS:
        if re.match(pattern, first[:_LOOKED_AT]):
            remedy = f": {instead}" if instead else ""
            return LogFormatError(f"{name}: is {what}{remedy}; {WHAT_IS_READ}")
    return LogFormatError(
        f"{name}: is none of what biotrail reads: it begins with {first[:16]!r}; {WHAT_IS_READ}"
    )
