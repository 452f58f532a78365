# SPDX-License-Identifier: Apache-2.0
"""Layouts in which lines of events are printed beside the usual one, by the tools' options.

A line that is not understood as it stands is rewritten to the usual layout where it holds what that
needs. Where it does not, as it has no time, the layout has a name and an option to use instead.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

from biotrail.converters.events.tables import NO_CPU
from biotrail.converters.inputs.beginning import SCRIPT
from biotrail.recorder.schema.block_events import KIND_OF

NAMES_BLOCK_EVENT = re.compile(rb"\bblock_[a-z_]+(?:: |\()")
_LONGEST = 1000
"""Bytes of a line, more than any event's: what the patterns cost stays small."""
_TIME = rb"^(.{0,100}?\d{1,11}\.\d{1,9}: +)"


class Unreadable(NamedTuple):
    name: str
    pattern: re.Pattern[bytes]
    instead: str


def _seconds(us: bytes) -> bytes:
    return b"%d.%06d" % divmod(int(us), 1_000_000)


_PAIR = re.compile(rb"\b([a-z_]+)=(?: *(?:0x[0-9a-f]+ \()?(-?\d+|0x[0-9a-f]+)\b\)?|(\S*))")
_COMM = re.compile(rb" ?\bcomm=(.*?)(?: cmd=.*)?$")
_EVENT = re.compile(rb"\b(block_[a-z_]+):( +)(?:\[FAILED TO PARSE\] +)?(?=[a-z_]+=)(.*)$")
_KERNEL_LOG = re.compile(rb"^(?:<\d+>)?\[ *\d+\.\d+\](?:\[ *\w+\])? ")


def _fields(match: re.Match[bytes]) -> bytes:
    """Return an event's fields, given as names and values, as the tools print them by default."""
    if match[1].decode() not in KIND_OF:
        return match[0]
    comm = _COMM.search(match[3])
    plain = match[3] if comm is None else match[3][: comm.start()]
    of = {pair[1]: pair[2] or pair[3] for pair in _PAIR.finditer(plain)}
    by = {name: _number(value) for name, value in of.items()}
    name = b"[%s]" % (comm[1] if comm else b"")
    if b"dev" not in of:
        return b"%s: %s %d" % (match[1], name, by.get(b"nr_rq", 0))
    if not of.get(b"rwbs") or b"sector" not in of:
        return match[0]
    device = _device(by[b"dev"])
    command = b""
    if b"bytes" in of:
        command = b"%d () " % by[b"bytes"]
    elif match[1].startswith(b"block_rq_") and b"old_dev" not in of:
        command = b"() "
    head = b"%s: %s %s %s%d" % (match[1], device, of[b"rwbs"], command, by[b"sector"])
    if b"new_sector" in of:
        return b"%s / %d %s" % (head, by[b"new_sector"], name)
    head = b"%s + %d" % (head, by.get(b"nr_sector", -1))
    if b"old_dev" in of and b"old_sector" in of:
        return b"%s <- (%s) %d" % (head, _device(by[b"old_dev"]), by[b"old_sector"])
    error = of.get(b"error", of.get(b"errors"))
    return b"%s %s" % (head, name if error is None else b"[%d]" % _number(error))


def _number(value: bytes) -> int:
    """Return a printed number; -1, which no reader takes for one, of what is none."""
    try:
        return int(value, 0)
    except ValueError:
        return -1


def _device(number: int) -> bytes:
    return b"%d,%d" % (number >> 20, number & 0xFFFFF)


_REWRITTEN: tuple[tuple[re.Pattern[bytes], bytes | Callable[[re.Match[bytes]], bytes]], ...] = (
    # Events among functions, with times and threads.
    (
        re.compile(
            rb"^ *(\d+\.\d{6}) \| +(\d+)\) +(\S.{0,15}?)-(\d+) +\|.{0,200}?"
            rb"/\* (block_[a-z_]+: .*) \*/$"
        ),
        rb"\3-\4 [\2] \1: \5",
    ),
    # ftrace's latency-format, verbose.
    (
        re.compile(
            rb"^ *(\S.{0,15}?) +(\d+) +(\d+) \d+ (?:[0-9a-f]{8} )+\[[0-9a-f]+\] +(\d+)\.(\d{3})ms "
            rb"\([+-]?\d+\.\d{3}ms\): "
        ),
        lambda m: b"%s-%s [%s] %s: " % (m[1], m[2], m[3], _seconds(m[4] + m[5])),
    ),
    # ftrace's latency-format.
    (
        re.compile(rb"^( *\S.{0,15}?-\d+ +\d+[^\s\d]\S*) +(\d+)us[ $@*#!+]: "),
        lambda m: b"%s %s: " % (m[1], _seconds(m[2])),
    ),
    # perf script without CPU.
    (
        re.compile(rb"^( *\S.{0,15}? +\d+(?:/\d+)?) +(\d+\.\d+): +(?=(?:\d+ +)?\w+:block_)"),
        rb"\1 [%d] \2: " % NO_CPU,
    ),
    # Differences beside the times.
    (re.compile(_TIME + rb"\([+-]\d+(?:\.\d+)?\) +(?=\S)"), rb"\1"),
    # perf script's periods.
    (re.compile(_TIME + rb"\d+ +(?=\S)"), rb"\1"),
    # Fields by name.
    (_EVENT, _fields),
)
"""Layouts whose lines are rewritten: a pattern, and what stands for its match, in the order in
which they are tried; a line may be of several."""

UNREADABLE = (
    Unreadable(
        "a function graph, whose events have no times",
        re.compile(rb"/\* block_[a-z_]+: .*\*/"),
        "print it with ftrace's options funcgraph-abstime and funcgraph-proc, or use the tracer "
        "nop",
    ),
    Unreadable(
        "ftrace's options raw, hex or bin, which print no fields",
        re.compile(rb"^(?:\d+ \d+ \d+|(?:[0-9a-f]{8} ){2}[0-9a-f]{16}) type: [0-9a-f]+$", re.M),
        "print it without: `echo noraw > trace_options`, `echo nohex > trace_options`",
    ),
    Unreadable(
        "ftrace's option nocontext-info, which prints no times",
        re.compile(rb"^block_[a-z_]+: ", re.M),
        "print it with: `echo context-info > trace_options`",
    ),
    Unreadable(
        "perf trace's, which prints no CPUs and cuts names",
        re.compile(rb"^ *\d+\.\d{3} (?:\( *[\d.]*(?: ms)?\): )?\S.*?/\d+ \w+:block_\w+\(", re.M),
        f"record with `perf record -a -e 'block:*'` and print with {SCRIPT}",
    ),
    Unreadable(
        "perf script's without threads",
        re.compile(rb"^(?: *\S.{0,15}?)?(?: +\[\d{3,}\])? +\d+\.\d+: +\w+:block_[a-z_]+: ", re.M),
        f"print them: {SCRIPT}",
    ),
    Unreadable(
        "perf script's without times",
        re.compile(rb"^ *\S.{0,15}? +\d+(?:/\d+)?(?: +\[\d{3,}\])? +\w+:block_[a-z_]+: ", re.M),
        f"print them: {SCRIPT}",
    ),
    Unreadable(
        "babeltrace's",
        re.compile(rb"\bblock_[a-z_]+: \{ ?(?:cpu_id|dev) = "),
        "give the directory of LTTng's trace itself",
    ),
)
BLK_TRACER = Unreadable(
    "that of ftrace's tracer blk",
    re.compile(rb"\d+,\d+"),
    "print it as blktrace's data: options `bin` and `nocontext-info` (docs/blktrace.md)",
)
DIFFERENCES = (
    "times are differences to the event before (perf script --deltatime), from which none can be "
    f"told where lines are missing: print times: {SCRIPT}"
)


def usual(line: bytes) -> bytes | None:
    """Return a line, without its end, as it would be in the usual layout; None: it is of none."""
    if len(line) > _LONGEST:
        return None
    found = _KERNEL_LOG.sub(b"", line, count=1)
    for pattern, by in _REWRITTEN:
        found = pattern.sub(by, found, count=1)
    return None if found == line else found
