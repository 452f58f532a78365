# SPDX-License-Identifier: Apache-2.0
"""Makes a small perf.data of a large one: the samples of one disk, and no name of the machine.

Usage: python -m tests.support.perf_trim IN OUT MAJOR:MINOR
"""

import re
import struct
import sys
from pathlib import Path

from biotrail.converters.inputs.perf.layout import RecordType
from biotrail.converters.inputs.perf.records import walk

_KEPT_FEATURES = {1: None, 3: "host", 4: "6.18.0", 5: "6.1", 29: None}
"""Sections that stay, with the text that replaces theirs; None: as they are."""
_DEV_AT = 8 + 8 * 6 + 4 + 8
"""Offset of `dev` in a sample of `perf record -a`: header, six fields, size of RAW, common ones."""


def trimmed(data: bytes, dev: int) -> bytes:
    """Return the file with the samples of a disk (dev_t), rounds, and losses alone."""
    head = list(struct.unpack("<13Q", data[:104]))
    attrs, attrs_bytes, at, size = head[3:7]
    body = data[at : at + size]
    found = walk(body, "<")
    kept = b"".join(
        body[a : a + s]
        for a, k, s in zip(*(c.tolist() for c in (found.at, found.types, found.sizes)), strict=True)
        if k in (RecordType.FINISHED_ROUND, RecordType.LOST)
        or (k == RecordType.SAMPLE and struct.unpack_from("<I", body, a + _DEV_AT)[0] == dev)
    )
    features = [bit for bit in range(64) if head[9] >> bit & 1]
    sections = {}
    for number, bit in enumerate(features):
        offset, length = struct.unpack_from("<QQ", data, at + size + 16 * number)
        text = _KEPT_FEATURES.get(bit)
        if bit in _KEPT_FEATURES:
            section = data[offset : offset + length]
            sections[bit] = _without_names(section) if text is None else _text(text)
    head[6], head[9] = len(kept), sum(1 << bit for bit in sections)
    before = struct.pack("<13Q", *head) + data[104 : max(attrs + attrs_bytes, at)]
    table, contents = b"", b""
    start = at + len(kept) + 16 * len(sections)
    for bit in sorted(sections):
        table += struct.pack("<QQ", start + len(contents), len(sections[bit]))
        contents += sections[bit]
    return before[:at] + kept + table + contents


def _without_names(section: bytes) -> bytes:
    """Return a section with blanks in place of the lines "PID NAME" that formats end with."""
    return re.sub(rb"(?:\d+ [^\n]+\n)+\0*\Z", lambda lines: b" " * len(lines[0]), section)


def _text(text: str) -> bytes:
    """Return a text as perf's headers have it."""
    data = text.encode().ljust(64, b"\0")
    return struct.pack("<I", len(data)) + data


def main() -> None:
    major, minor = map(int, sys.argv[3].split(":"))
    Path(sys.argv[2]).write_bytes(trimmed(Path(sys.argv[1]).read_bytes(), major << 20 | minor))


if __name__ == "__main__":
    main()
