# SPDX-License-Identifier: Apache-2.0
"""What is said of a file that is none of those that are read: what it is, and what to do."""

import re

from biotrail.recorder.log.opening import COMPRESSED
from biotrail.recorder.schema.errors import LogFormatError

WHAT_IS_READ = (
    "read are biotrail's own logs and archives, perf.data, trace.dat, blktrace's files, traces of "
    "Perfetto and LTTng, and the text of ftrace, trace-cmd, perf script and blkparse "
    "(docs/inputs.md)"
)
_SCRIPT = "`perf script --ns -F comm,tid,cpu,time,event,trace`"
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
        f"record with `perf record -a -e 'block:*'`; of text give that of {_SCRIPT}",
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
"""Of the first bytes a pattern, what such a file is, and what to do."""


def refusal(name: str, first: bytes) -> LogFormatError:
    """Return the error for a file that begins with `first` and is none of those that are read."""
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
