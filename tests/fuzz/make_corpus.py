# SPDX-License-Identifier: Apache-2.0
"""Makes the first inputs of the fuzzers from tests/data: .venv/bin/python tests/fuzz/make_corpus.py

Inputs named `crash-*` are not made: each once broke something, and stays.
"""

import gzip
import io
import re
import struct
from pathlib import Path
from typing import Any

from biotrail.recorder.log import LogWriter
from tests.fuzz.fuzz_mending import plain

# As a script it stands alone; pytest has these paths already.
from tests.support import (
    crafted_archives,
    crafted_logs,
    file_logs,
    path_logs,
    perf_files,
    stack_logs,
    system_traces,
    text_layouts,
    trace_dat,
)
from tests.support.captures import clock, header, load, records
from tests.support.paths import DATA

CORPUS = Path(__file__).with_name("corpus")
LOGS = {
    "zram": ("bio-based-zram", False),
    "partition": ("partition-remap-loop", False),
    "nowait": ("nowait-early-failure", True),
    "fsync": ("fsync-virtio", False),
    "intervals": ("partial-completion-error-loop", True),
}
"""Captures that are small, each with and without pointers."""
_CRAFTED_BYTES = 6000
"""Of each log that asks for more work than its size should cost."""
_PRINTED = ("loop1.txt", "vda.txt", "zram1.txt", "vda.summary.txt")
_CTF_HEAD = 37
"""Bytes of a metadata packet's head, in which its lengths are in bits."""
_FORMS = b"""\
  8,0    0        1     0.000000100    42  Q   R 8 + 8 [dd]
  8,0    0        2     0.000000200    42  X   R 8 / 12 [dd]
  8,0    0        3     0.000000300    42  M   R 8 + 4 [dd]
  8,0    0        0     0.000000350     0  m   N cfq1 alloced
  8,0    0        4     0.000000400    42 UT   N [dd] 3
  8,0    0        5     0.000000500    42  D   R 36 (12 00 ..) [dd]
  8,0    0        6     0.000000600    42  C   R (12 00 ..) [65531]
  8,1    0        7     0.000000700    42  A FWFS 8 + 8 <- (8,1) 0
  8,0    0        8     0.000000800    42  S   W 8 + 8 [dd]
  8,0    0       19     0.000000900    42  R   W 8 + 8 (   12) [0]
"""
_SCHEMA = [{"kind": 1, "size": 56}, {"kind": 200, "size": 16}]
_LOSS = {"start": 10**12, "end": 10**12 + 5, "cpu": 0, "level": 0, "kind": 1, "count": 3}
END = {
    "clocks": clock(10**9),
    "reason": "stopped",
    "seconds": 1.5,
    "recorder": {"cpu_seconds": 0.1, "max_rss_bytes": 1 << 20},
}
STACKS = (
    [*stack_logs.bio(0, 900, 5, 3), *stack_logs.bio(1, 900, -17, -14), *stack_logs.bio(2, 9, 8)],
    [{"kernel": {"5": stack_logs.READ}, "user": {"3": [["", "/bin/dd", 1], ["", "", 7]]}}],
)
"""Records and notes of a log with call stacks."""
FILES = [
    *file_logs.names(stack_logs.START, 12, b"dir", b"n" * 50),
    *file_logs.names(stack_logs.START, 13, b"gone", deleted=True, cut=True),
    *file_logs.bio(0, 12),
    *file_logs.bio(1, 13),
    *file_logs.bio(2, stack_logs.DEV, dev=0),
]
"""Records of a log that tells files."""


def path_log() -> bytes:
    """A log with the path beside the block layer, of which timing ended."""
    made = path_logs.PathLog()
    made.task(42, b"dd")
    made.bio(100, 900, entry=50, dirtied=(40, 7, b"writer"))
    made.waits(50, 200, 700, 800)
    made.returns(50, 1000, blocked=500, runnable=100, queued=1)
    made.request(2000, 3000, hard=50, raised=40, soft=30, irq=9, context=1)
    note = {"until": stack_logs.START + 1500, "percent": 7.5, "budget": 5.0}
    cost = {"calls": 9, "timed": 8, "seconds": {"time": 1e-6}}
    return made.data(notes={"call_timing": note}, end={"path": cost, "seconds": 1.0})


OF_BLKTRACE = "convert - --format perfetto -o -"
OF_STACKS = "stacks --top 2 --latency @"
COMMANDS = (
    "info @",
    "info --json --associate intervals @",
    "info -",
    "dump --kind Q,D,C -d loop0 --from 1ms --to 2s --limit 9 @",
    "dump --format json @",
    "dump --format blkparse @",
    "convert @ -o out.pftrace --force",
    "convert @ -o out.blktrace",
    OF_BLKTRACE,
    "view --no-open --port 0 @",
    "slow --top 3 --over 1us --op write @",
    "slow --failed --json -",
    "slow -v --associate intervals -o slow.pftrace --around 1ms @",
    "hist --heatmap --in ns @",
    "hist --stage D2C --linear 10us --json @",
    "hist --size --depth @",
    "report --by process --interval 1ms @",
    "report --html out.html -",
    OF_STACKS,
    "record --comm a* --pid 1,2 --sectors 0-7 --op read --flags sync+meta --min-size 4K --keep 30s",
    "record --follow request,every=4294967296 --call-budget nan --path --print",
    "pairs softirq --where vec==3 --by vec --for 1s --max-open 64",
    "follow request --every 1 --max 10 --slower 5ms --idle 2s --dry-run",
    "top --interval 1s --count 1 --sort p99 --call-over 1ms",
    "metrics --listen 127.0.0.1:0 --keep 30s --trigger slow=50ms --after 2s --every 60s -o out",
    "tree --life 1 --object 0xffff9b6f83a40000 --sector 8 --slowest 3 @",
    "diff --seed 1 --confidence 95 @ -- @",
    "archive --tables events --level 3 -o out @",
)
"""Lines of each command, by way of which mutations reach its options."""
REQUESTS = (
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "GET /metrics?name[]=biotrail_ios_total HTTP/1.1\r\nHost: 127.0.0.1:9477\r\n"
    "Accept: application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=x\r\n"
    "Accept-Encoding: gzip;q=1.0\r\n\r\n",
    "HEAD / HTTP/1.0\nHost: localhost\n\n",
    "OPTIONS /metrics HTTP/1.1\r\nHost: evil\r\nContent-Length: 3\r\n\r\nabc",
    "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: application/vnd.google.protobuf;"
    "proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n\r\n",
)


def log(capture: str, pointers: bool, level: int) -> bytes:
    """A capture as a log of uncompressed frames; level 0: its records as in the ring."""
    head: dict[str, Any] = {k: v for k, v in header().items() if k != "schema"}
    if level:
        head["schema"] = _SCHEMA
    stream = io.BytesIO()
    writer = LogWriter(stream, head, level=level)
    events = load(DATA / "captures" / f"{capture}.txt")
    last = events[-1]["ns"]
    writer.write_chunk(records(events, drop_pointers=not pointers), clock(last))
    writer.write_loss([_LOSS])
    writer.write_note("devices", {"devices": [{"dev": 7340041, "name": "loop9"}]})
    writer.write_note("cgroups", {"1": "/", "77": "/user.slice"})
    writer.close(END)
    return plain(stream.getvalue())


def blktrace() -> dict[str, bytes]:
    """Beginnings of blktrace's files."""
    found = {}
    for path in sorted((DATA / "blktrace").glob("*")):
        if path.suffix == ".bin" or ".blktrace." in path.name:
            data = path.read_bytes()[:1600]
            if data:
                found[path.name] = data
    return found


def crafted_blktrace() -> dict[str, bytes]:
    """Data that asks for more than its size: repeats, long records, magic numbers everywhere."""
    once = (DATA / "blktrace" / "vda.blktrace.1").read_bytes()[:1600]
    magic = once[:4]
    long = once[:46] + b"\xff\xff"  # a record of 64 KiB, of which the file ends before
    return {
        "made-up-twice": once * 3,
        "made-up-magic": magic * 800,
        "made-up-long": long * 60,
    }


def recordings() -> dict[str, bytes]:
    """Small recordings of other tools, by tool and form."""
    found = {}
    for order, name in (("<", "perf"), (">", "perf-big-endian")):
        made = perf_files.Perf(order)
        records = [r for i in range(4) for r in made.io(10**12 + 9000 * i, 16 * i)]
        records = [made.comm(7, b"reader"), *records, made.lost(3, 10**12 + 40_000), made.round()]
        found[name] = made.file(records)
        found[f"{name}-pipe"] = made.pipe(records)
        found[f"{name}-compressed"] = made.file(made.compressed([b"".join(records)]))
    chains = perf_files.Perf(sample_type=perf_files.USUAL | perf_files.CALLCHAIN | perf_files.READ)
    found["perf-chains"] = chains.file(chains.io(10**12, 8))
    trace = system_traces.reads()
    found["perfetto"] = trace.bytes()
    found["perfetto-packed"] = trace.compressed().bytes()
    found["perfetto-gz"] = gzip.compress(trace.bytes(), mtime=0)
    return found | of_ftrace()


def of_blkparse() -> dict[str, bytes]:
    """Lines of blkparse, with its summary, in a layout of -f, and of every form."""
    folder = DATA / "blktrace"
    lines = {name: (folder / name).read_bytes().splitlines(keepends=True) for name in _PRINTED}
    summary = b"".join(lines["vda.summary.txt"])
    found = {
        "default": b"".join(lines["loop1.txt"][:60] + lines["vda.txt"][:20]) + summary,
        "bios": b"".join(lines["zram1.txt"]),
    }
    columns = re.compile(
        rb" *(\S+) +(\d+) +(\d+) +(\S+) +(\d+) +([QGIDC]) +(\S+) (\d+) \+ (\d+).*\n"
    )
    rows = [match.groups() for line in lines["loop1.txt"] if (match := columns.fullmatch(line))]
    found["columns"] = b"".join(b"%b %b %b %b %b\n" % (r[3], *r[5:]) for r in rows[:40])
    found["commas"] = b"".join(b"%b , %b, %b, %b, %b, %b, %b, %b, %b\n" % r for r in rows[:40])
    return found | {"forms": _FORMS, "gzip": gzip.compress(found["default"], mtime=0)}


def of_lttng() -> dict[str, bytes]:
    """A trace's metadata, as text without packets, and one of its streams, of one packet."""
    folder = DATA / "lttng" / "kernel"
    packed, metadata, at = (folder / "metadata").read_bytes(), b"/* CTF 1.8 */\n", 0
    while at < len(packed):
        content, packet = struct.unpack_from("<II", packed, at + 24)
        metadata += packed[at + _CTF_HEAD : at + content // 8]
        at += packet // 8
    size = len(metadata).to_bytes(4, "little")
    return {name: size + metadata + (folder / name).read_bytes() for name in ("blk_0", "blk_1")}


def of_ftrace() -> dict[str, bytes]:
    """trace.dat files, also ones that ask for more than their size, and printed events."""
    folder = DATA / "ftrace"
    made = trace_dat.contents_of(folder / "lossy.dat")
    made.formats = {"block": made.formats["block"][:12]}
    for buffer in made.buffers:
        buffer.cpus = {cpu: pages[:4096] for cpu, pages in buffer.cpus.items()}
    found = {
        f"trace-dat-{version}-{codec}": trace_dat.trace_dat(
            made.changed(version=version, codec=codec)
        )
        for version, codec in ((6, "none"), (7, "none"), (7, "zstd"), (7, "zlib"))
    }
    empty = {cpu: bytes(1 << 13) for cpu in range(6)}
    found["trace-dat-made-up-empty"] = trace_dat.trace_dat(
        made.changed(buffers=[trace_dat.Pages("", "mono", empty)])
    )
    for name in ("small.trace", "lossy.trace", "lossy.report"):
        lines = (folder / f"{name}.txt").read_bytes().splitlines(keepends=True)
        found[f"text-{name}"] = b"".join(lines[:30])
    found["text-layouts"] = b"".join(one.text for one in text_layouts.READ)
    found["text-refused"] = b"".join(one.text for one in text_layouts.REFUSED)
    found["text-zeros"] = found["text-small.trace"][:1500] + bytes(4096)
    found["text-zeros"] += found["text-small.trace"][1500:]
    found["text-twice"] = found["text-small.trace"] * 2
    found["text-gzip"] = gzip.compress(found["text-small.trace"], mtime=0)
    return found


def inputs() -> dict[str, dict[str, bytes]]:
    """{target: {name: input}}."""
    logs = {}
    for name, (capture, without) in LOGS.items():
        logs[f"{name}-rows"] = log(capture, not without, 0)
        logs[f"{name}-columns"] = log(capture, not without, 1)
    logs["stacks-columns"] = plain(stack_logs.log(*STACKS))
    logs["files-columns"] = plain(file_logs.log(FILES, schema=None))
    logs["path-columns"] = plain(path_log())
    traces = blktrace()
    crafted = {f"made-up-{name}": make(_CRAFTED_BYTES) for name, make in crafted_logs.MADE.items()}
    others = {OF_BLKTRACE: next(iter(traces.values())), OF_STACKS: logs["stacks-columns"]}
    commands = {
        f"{number:02}": line.encode() + b"\n" + others.get(line, logs["zram-columns"])
        for number, line in enumerate(COMMANDS)
    }
    archives = {
        "fsync": crafted_archives.plain(),
        "partition": crafted_archives.plain("partition-remap-loop"),
        "made-up-repeated": crafted_archives.repeated(40),
    }
    return {
        "log": logs | crafted,
        "blktrace": traces | crafted_blktrace(),
        "archive": archives,
        "inputs": recordings(),
        "blkparse": of_blkparse(),
        "lttng": of_lttng(),
        "command": commands,
        "server": {f"{number}": one.encode() for number, one in enumerate(REQUESTS)},
    }


def main() -> None:
    for target, found in inputs().items():
        (CORPUS / target).mkdir(parents=True, exist_ok=True)
        for name, data in found.items():
            (CORPUS / target / name).write_bytes(data)


if __name__ == "__main__":
    main()
