# SPDX-License-Identifier: Apache-2.0
"""perf.data made by hand: files and pipes, of either byte order, compressed or not."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import zstandard

MAGIC = 0x32454C4946524550
START = 5_000_000_000
"""When the first read begins (ns)."""
TRACEPOINT, HARDWARE = 2, 0
IP, TID, TIME, ADDR, READ, CALLCHAIN, ID, CPU, PERIOD = (1 << bit for bit in range(9))
STREAM_ID, RAW, IDENTIFIER = 1 << 9, 1 << 10, 1 << 16
USUAL = IDENTIFIER | IP | TID | TIME | CPU | PERIOD | RAW
"""sample_type of `perf record -a -e 'block:*'`."""
LOST, COMM, THROTTLE, UNTHROTTLE, SAMPLE, LOST_SAMPLES = 2, 3, 5, 6, 9, 13
ATTR, TRACING_DATA, ROUND, AUXTRACE, FEATURE, COMPRESSED, COMPRESSED2 = 64, 66, 68, 71, 80, 81, 83
TRACING, HOSTNAME, OSRELEASE, VERSION, CMDLINE, CLOCK_DATA = 1, 3, 4, 5, 11, 29
COMMON = (
    ("unsigned short", "common_type", 2, 0),
    ("unsigned char", "common_flags", 1, 0),
    ("unsigned char", "common_preempt_count", 1, 0),
    ("int", "common_pid", 4, 1),
)
FIELDS = {
    "block_bio_queue": (
        ("dev_t", "dev", 4, 0),
        ("pad", "pad", 4, 0),
        ("sector_t", "sector", 8, 0),
        ("unsigned int", "nr_sector", 4, 0),
        ("char", "rwbs", 8, 0),
        ("char", "comm", 16, 0),
    ),
    "block_rq_issue": (
        ("dev_t", "dev", 4, 0),
        ("pad", "pad", 4, 0),
        ("sector_t", "sector", 8, 0),
        ("unsigned int", "nr_sector", 4, 0),
        ("unsigned int", "bytes", 4, 0),
        ("char", "rwbs", 8, 0),
        ("char", "comm", 16, 0),
    ),
    "block_rq_complete": (
        ("dev_t", "dev", 4, 0),
        ("pad", "pad", 4, 0),
        ("sector_t", "sector", 8, 0),
        ("unsigned int", "nr_sector", 4, 0),
        ("int", "error", 4, 1),
        ("char", "rwbs", 8, 0),
    ),
    "sched_switch": (("int", "next", 4, 1),),
}
"""Fields of the tracepoints that are written here: type, name, size, signed."""
IDS = {name: 1000 + number for number, name in enumerate(FIELDS)}
"""IDs of the tracepoints: perf_event_attr.config."""
SYSTEMS = {name: "sched" if name.startswith("sched") else "block" for name in FIELDS}


def format_text(name: str) -> str:
    """Return what tracefs has as the tracepoint's format."""
    lines, at = [f"name: {name}", f"ID: {IDS[name]}", "format:"], 0
    for kind, label, size, signed in (*COMMON, *FIELDS[name]):
        text = f"{kind} {label}[{size}]" if kind == "char" else f"{kind} {label}"
        lines.append(f"\tfield:{text};\toffset:{at};\tsize:{size};\tsigned:{signed};")
        at += size
    return "\n".join(lines) + '\n\nprint fmt: "%d", REC->dev\n'


@dataclass
class Perf:
    """Packs the parts of perf.data for one byte order and one sample_type."""

    order: str = "<"
    sample_type: int = USUAL
    read_format: int = 0
    names: Sequence[str] = ("block_bio_queue", "block_rq_issue", "block_rq_complete")
    flags: int = 1 << 18
    """sample_id_all."""
    period: int = 1
    features: dict[int, bytes] = field(default_factory=dict)

    def pack(self, form: str, *values: object) -> bytes:
        return struct.pack(self.order + form, *values)

    def text(self, text: str) -> bytes:
        """Pack a text as perf's headers have it: its length, and NUL-padded."""
        data = text.encode() + b"\0"
        data = data.ljust(-(-len(data) // 64) * 64, b"\0")
        return self.pack("I", len(data)) + data

    def sample_id(self, name: str) -> int:
        """Return the id of a tracepoint's samples."""
        return 5000 + IDS[name]

    def attr(self, name: str, kind: int = TRACEPOINT) -> bytes:
        """Return a perf_event_attr of 128 bytes."""
        bits = self.flags
        if self.order == ">":
            bits = int(f"{bits:064b}"[::-1], 2)
        head = self.pack(
            "IIQQQQQ", kind, 128, IDS[name], self.period, self.sample_type, self.read_format, bits
        )
        return head.ljust(128, b"\0")

    def record(self, kind: int, body: bytes, misc: int = 0) -> bytes:
        """Return a record with its header."""
        return self.pack("IHH", kind, misc, 8 + len(body)) + body

    def trailer(self, time: int = 0, cpu: int = 0, tid: int = 0) -> bytes:
        """Return the last fields of a record beside samples (struct sample_id)."""
        parts = [
            (TID, self.pack("II", tid, tid)),
            (TIME, self.pack("Q", time)),
            (ID, bytes(8)),
            (STREAM_ID, bytes(8)),
            (CPU, self.pack("II", cpu, 0)),
            (IDENTIFIER, bytes(8)),
        ]
        if not self.flags >> 18 & 1:
            return b""
        return b"".join(data for bit, data in parts if self.sample_type & bit)

    def raw(self, name: str, values: dict[str, object]) -> bytes:
        """Return a tracepoint's record."""
        data = self.pack("HBBi", IDS[name], 0, 0, int(str(values.get("pid", 7))))
        for kind, label, size, signed in FIELDS[name]:
            if kind == "char":
                data += bytes(values.get(label, b""))[:size].ljust(size, b"\0")  # type: ignore[call-overload]
            else:
                code = {4: "i" if signed else "I", 8: "Q"}[size]
                data += self.pack(code, values.get(label, 0))
        return data

    def sample(
        self, name: str, time: int, cpu: int = 0, chain: Sequence[int] = (), **values: object
    ) -> bytes:
        """Return a sample of a tracepoint; values: its fields, pid and tgid."""
        tid = values.get("pid", 7)
        raw = self.raw(name, values)
        raw = raw.ljust(-(-(len(raw) + 4) // 8) * 8 - 4, b"\0")
        identifier = self.pack("Q", self.sample_id(name))
        parts = [
            (IDENTIFIER, identifier),
            (IP, bytes(8)),
            (TID, self.pack("II", values.get("tgid", tid), tid)),
            (TIME, self.pack("Q", time)),
            (ADDR, bytes(8)),
            (ID, identifier),
            (STREAM_ID, bytes(8)),
            (CPU, self.pack("II", cpu, 0)),
            (PERIOD, self.pack("Q", 1)),
            (READ, self._read()),
            (CALLCHAIN, self.pack(f"Q{len(chain)}Q", len(chain), *chain)),
            (RAW, self.pack("I", len(raw)) + raw),
        ]
        body = b"".join(data for bit, data in parts if self.sample_type & bit)
        return self.record(SAMPLE, body)

    def _read(self) -> bytes:
        """Return a sample's READ: zeros, but for the number of a group's values."""
        times = bin(self.read_format & 3).count("1")
        each = 1 + bin(self.read_format & 0b10100).count("1")
        if self.read_format & 8:
            return self.pack("Q", 2) + bytes(8 * (times + 2 * each))
        return bytes(8 * (times + each))

    def io(self, time: int, sector: int, **values: object) -> list[bytes]:
        """Return queue, issue and completion of one read of 8 sectors, 1 µs apart."""
        common = {"dev": 7 << 20, "sector": sector, "nr_sector": 8, "bytes": 4096, "rwbs": b"R"}
        common |= {"comm": b"reader"} | values
        return [self.sample(name, time + 1000 * i, **common) for i, name in enumerate(self.names)]

    def reads(self, count: int) -> list[bytes]:
        """Return the records of reads, one behind the other, 10 µs apart."""
        return [r for i in range(count) for r in self.io(START + 10_000 * i, 64 * i)]

    def comm(self, tid: int, name: bytes, time: int = 0) -> bytes:
        body = self.pack("II", tid, tid) + name.ljust(-(-(len(name) + 1) // 8) * 8, b"\0")
        return self.record(COMM, body + self.trailer(time, 0, tid))

    def lost(self, count: int, time: int, cpu: int = 0) -> bytes:
        return self.record(LOST, self.pack("QQ", 0, count) + self.trailer(time, cpu))

    def round(self) -> bytes:
        """Return a FINISHED_ROUND record."""
        return self.record(ROUND, b"")

    def tracing_data(self) -> bytes:
        """Return the formats of all tracepoints, as trace-cmd and perf write them."""
        parts = [b"\x17\x08\x44tracing0.6\0", bytes([self.order == ">", 8]), self.pack("I", 4096)]
        parts += [b"header_page\0", self.pack("Q", 3), b"abc", b"header_event\0", self.pack("Q", 0)]
        parts += [self.pack("I", 1), self.pack("Q", 2), b"xy"]
        systems = sorted(set(SYSTEMS.values()))
        parts.append(self.pack("I", len(systems)))
        for system in systems:
            names = [name for name in FIELDS if SYSTEMS[name] == system]
            parts += [system.encode() + b"\0", self.pack("I", len(names))]
            for name in names:
                text = format_text(name).encode()
                parts += [self.pack("Q", len(text)), text]
        return b"".join([*parts, self.pack("I", 0), self.pack("I", 0), self.pack("Q", 0)])

    def file(self, records: Iterable[bytes], kinds: dict[str, int] | None = None) -> bytes:
        """Return a file with these records. kinds: perf_event_attr.type by name."""
        data = b"".join(records)
        ids_at = 104
        ids = b"".join(self.pack("Q", self.sample_id(name)) for name in self.names)
        attrs_at = ids_at + len(ids)
        attrs = b""
        for number, name in enumerate(self.names):
            place = self.pack("QQ", ids_at + 8 * number, 8)
            attrs += self.attr(name, (kinds or {}).get(name, TRACEPOINT)) + place
        data_at = attrs_at + len(attrs)
        features = {TRACING: self.tracing_data(), **self.features}
        bits = sum(1 << number for number in features)
        header = self.pack("QQQ", MAGIC, 104, 144)
        header += self.pack("QQQQQQ", attrs_at, len(attrs), data_at, len(data), 0, 0)
        header += b"".join(self.pack("Q", bits >> 64 * i & (1 << 64) - 1) for i in range(4))
        table, contents, at = b"", b"", data_at + len(data) + 16 * len(features)
        for number in sorted(features):
            table += self.pack("QQ", at + len(contents), len(features[number]))
            contents += features[number]
        return header + ids + attrs + data + table + contents

    def pipe(self, records: Iterable[bytes]) -> bytes:
        """Return what `perf record -o -` writes: attrs, features, formats, and the records."""
        parts = [self.pack("QQ", MAGIC, 16)]
        for name in self.names:
            body = self.attr(name) + self.pack("Q", self.sample_id(name))
            parts.append(self.record(ATTR, body))
        for number, data in self.features.items():
            parts.append(self.record(FEATURE, self.pack("Q", number) + data + b"odd"))
        tracing = self.tracing_data()
        tracing = tracing.ljust(-(-len(tracing) // 8) * 8, b"\0")
        parts += [self.record(TRACING_DATA, self.pack("II", len(tracing), 0)), tracing]
        return b"".join([*parts, *records])

    def compressed(self, chunks: Iterable[bytes], kind: int = COMPRESSED) -> list[bytes]:
        """Return records of one zstd stream, one for each of the chunks, and a round after each."""
        packer, found = zstandard.ZstdCompressor().compressobj(), []
        for chunk in chunks:
            data = packer.compress(chunk) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            if kind == COMPRESSED2:
                size = len(data)
                data = self.pack("Q", size) + data.ljust(-(-size // 8) * 8, b"\0")
            found += [self.record(kind, data), self.round()]
        return found
