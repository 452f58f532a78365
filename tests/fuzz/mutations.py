# SPDX-License-Identifier: Apache-2.0
"""Changes to inputs, as hypothesis draws them: bytes anywhere, JSON, frames, records."""

import io
import json
import os
import struct
from typing import Any

from hypothesis import strategies as st

from biotrail.recorder.log import LogWriter, Segment
from biotrail.recorder.log.frames import FrameType
from biotrail.recorder.schema.records import BY_KIND, RECORDS, TIMESTAMP_BITS, Kind
from tests.fuzz import command_options
from tests.fuzz.make_corpus import CORPUS, END
from tests.support.captures import header

EDGES = (0, 1, 7, 8, 255, 256, 4095, 4096, 0xFFFF, 1 << 31, (1 << 32) - 1)
FAR = (*EDGES, 1 << 55, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 4096, (1 << 64) - 1)
NOW = 1_000_000_000_000
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1.5, 1e308, float("nan"), 1 << 40, 1 << 63, 10**30, "", "x", "\udcff\x1b[2J",
    "a\0b", [], [[]], [None], {}, {"x": None}, [{}], "7" * 300,
)  # fmt: skip
HEADER = {k: v for k, v in header().items() if k not in ("schema", "format")}
READING = ("info", "dump", "convert", "view", "stacks", "report", "slow", "hist")
"""Commands that get words of each other's options, beside those of their own."""
WORDS = [
    "@", "-", "--json", "--associate", "intervals", "identity", "--format", "json", "blkparse",
    "perfetto", "otf2", "blktrace", "-o", "out.pftrace", "out", ".", "", "--force", "--kind", "Q,D",
    "Ω", "-d", "loop0", "7:0", "--from", "1ms", "1e9", "99999999999999999999999d", "--to",
    "--limit", "-1", "3", "--port", "0", "70000", "--no-open", "--nonsense", "\udcff", "info",
    "--over", "--margin", "--around", "--window", "--top", "--failed", "--op", "read", "--linear",
    "9" * 400, "--size", "--depth", "--stage", "D2C", "--heatmap", "--in", "--brief", "-v",
    "last 1ms", "14:03:05", "2026-01-31T14:03:05Z", "--pid", "--comm", "a*", "--cgroup", "/",
    "--slower-than", "--slowest", "--max-size", "out.pftrace.gz", "out.pftrace.zst",
    "--by", "process", "--interval", "--html", "--folded", "--latency", "-n", "--sort", "p99",
]  # fmt: skip


@st.composite
def damaged(draw: st.DrawFn, inputs: list[bytes]) -> bytes:
    """An input with up to four changes: cut, changed, doubled, spliced with another."""
    data = bytearray(draw(st.sampled_from(inputs)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        match draw(st.sampled_from(["flip", "cut", "word", "drop", "double", "splice"])):
            case "flip" if data:
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "cut":
                del data[at:]
            case "word":
                size = draw(st.sampled_from([1, 2, 4, 8]))
                value = draw(st.sampled_from(FAR)) % (1 << 8 * size)
                data[at : at + size] = value.to_bytes(size, "little")
            case "drop":
                del data[at : at + draw(st.integers(1, 64))]
            case "double":
                data[at:at] = data[at : at + draw(st.integers(1, 200))]
            case "splice":
                other = draw(st.sampled_from(inputs))
                data[at:] = other[draw(st.integers(0, max(len(other) - 1, 0))) :]
    return bytes(data)


@st.composite
def odd(draw: st.DrawFn, value: Any) -> Any:
    """The JSON value with something in it replaced by what does not belong there."""
    children: list[Any] = []
    if isinstance(value, dict):
        children = list(value)
    elif isinstance(value, list):
        children = list(range(len(value)))
    if not children or draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(ODD))
    key = draw(st.sampled_from(children))
    changed = value.copy()
    changed[key] = draw(odd(value[key]))
    return changed


@st.composite
def records(draw: st.DrawFn) -> bytes:
    """One record, its fields out of few values, so that records are about the same things."""
    kind = draw(st.sampled_from([r for r in RECORDS if r.kind != Kind.PAD])).kind
    time = draw(st.sampled_from([NOW, NOW + 1, NOW + 50, NOW - 1000]) | st.sampled_from(FAR))
    head = int(kind) << TIMESTAMP_BITS | time & ((1 << TIMESTAMP_BITS) - 1)
    value = st.sampled_from(
        [0, 0x100, 0x200, 0x300, 0x400, 8, 4096, 1 << 32 | 4096, 7 << 20]
    ) | st.sampled_from(FAR)
    words = [draw(value) for _ in range(BY_KIND[kind].size // 8 - 1)]
    return struct.pack(f"<{1 + len(words)}Q", head, *words)


@st.composite
def written(draw: st.DrawFn, header: dict[str, Any], end: dict[str, Any]) -> bytes:
    """A log with any records, and JSON in which something may be wrong."""
    wrong = draw(st.sampled_from(["", "", "header", "end", "loss", "note", "clock"]))
    stream = io.BytesIO()
    head = draw(odd(header)) if wrong == "header" else header
    writer = LogWriter(stream, head if isinstance(head, dict) else header, level=0)
    now = draw(st.sampled_from(FAR)) if wrong == "clock" else NOW
    clock = dict.fromkeys(("monotonic", "boottime", "realtime", "uncertainty"), now)
    if draw(st.booleans()):
        clock["boottime"] = draw(st.sampled_from(FAR))
    for _ in range(draw(st.integers(1, 3))):
        body = b"".join(draw(st.lists(records(), max_size=12)))
        cpu = draw(st.sampled_from([0, 1, 0xFFFF]))
        # Layout 0, as nothing checks it while writing; too short or odd segments too.
        body = body[: len(body) - draw(st.sampled_from([0, 0, 0, 1, 8]))]
        segment = Segment(cpu, 0, draw(st.sampled_from([0, 8, 4000, 4090])), body)
        writer.write_chunk([segment], clock)
    loss: Any = [{"start": NOW, "end": NOW + 9, "cpu": 0, "level": 0, "kind": 1, "count": 2}]
    writer.write_loss(draw(odd(loss)) if wrong == "loss" else loss)
    device = {"dev": 7 << 20, "name": "loop0", "disk": 7 << 20, "stacked_on": [8 << 20]}
    note: Any = {"devices": [device]}
    name = draw(st.sampled_from(["devices", "cgroups", "other"]))
    writer.write_note(name, draw(odd(note)) if wrong == "note" else note)
    if wrong == "end":
        changed = draw(odd(end))
        writer._write_payload(FrameType.END, json.dumps(changed).encode())
    else:
        writer.close(end)
    return stream.getvalue()


def kept(corpus: str) -> list[bytes]:
    """The inputs kept for a target, in the order of their names."""
    return [path.read_bytes() for path in sorted((CORPUS / corpus).iterdir())]


@st.composite
def command_lines(draw: st.DrawFn) -> bytes:
    """A command with any arguments and, behind a line's end, any file."""
    if draw(st.booleans()):
        words = draw(command_options.words())
    else:
        name = draw(st.sampled_from(READING))
        words = [name, *draw(st.lists(st.sampled_from(["@", *WORDS]), max_size=6))]
    file = draw(
        st.sampled_from(kept("log") + kept("blktrace") + kept("archive")) | written(HEADER, END)
    )
    line = b" ".join(os.fsencode(word.replace(" ", "\0")) for word in words)
    return line.replace(b"\n", b"_") + b"\n" + file


def inputs_of(target: str) -> st.SearchStrategy[bytes]:
    if target == "command":
        return command_lines()
    if target == "model":
        return written(HEADER, END) | damaged(kept("log"))
    return damaged(kept(target))
