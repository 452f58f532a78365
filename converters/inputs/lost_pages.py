# SPDX-License-Identifier: Apache-2.0
"""Zeros in a text, as a page leaves them that was not written before the machine went down."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from biotrail.converters.inputs.plain_text import UTF8_MARK


@dataclass(frozen=True)
class Zeros:
    """A line with zeros. line: its number in the block. offset: bytes of the text before them."""

    line: int
    offset: int
    size: int


@dataclass
class Block:
    """Whole lines. offset: bytes of the text before them. zeros: lines that are left empty here."""

    data: bytes
    offset: int
    zeros: list[Zeros] = field(default_factory=list)


def without_zeros(blocks: Iterable[bytes]) -> Iterator[Block]:
    """Yield a text's blocks of lines; a line with zeros is none that a tool wrote, so it is empty.

    Leaves out the mark by which some editors begin UTF-8.
    """
    offset = 0
    for data in blocks:
        plain = data if offset else data.removeprefix(UTF8_MARK)
        yield _block(plain, offset + len(data) - len(plain))
        offset += len(data)


def _block(data: bytes, offset: int) -> Block:
    """Return lines as a block, those with zeros left empty."""
    if b"\0" not in data:
        return Block(data, offset)
    zeros: list[Zeros] = []
    pieces: list[bytes] = []
    line = done = 0
    at = data.find(b"\0")
    while at >= 0:
        begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
        line += data.count(b"\n", done, begin)
        zeros.append(Zeros(line, offset + at, data.count(b"\0", at, end)))
        pieces.append(data[done:begin])
        done, at = end, data.find(b"\0", end)
    return Block(b"".join([*pieces, data[done:]]), offset, zeros)
