# SPDX-License-Identifier: Apache-2.0
"""Compressed recordings: members, frames, damage; recognised by any block; bounded in cost."""

import gzip
import io
import random
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.unpacking import (
    RATIO,
    SLACK,
    UNPACKING_ERRORS,
    Allowance,
    beginning,
    unpacked,
)
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import paths, perf_files, system_traces, trace_dat
from tests.support.read_cost import Counting, check, counted

MIB = 1 << 20
CONTENT = b"".join(b"%d 223490 + 8 [kjournald]\n" % (i * 7919 % 100_003) for i in range(40_000))
SKIPPED = b"\x51\x2a\x4d\x18\x04\0\0\0abcd"


def zstd(data: bytes, **options: bool) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


def streamed(data: bytes) -> bytes:
    """As `zstd` compresses a pipe: without the content's size."""
    made = zstandard.ZstdCompressor().compressobj()
    return made.compress(data) + made.flush()


def read(data: bytes, size: int = 100_000) -> tuple[bytes, str, Allowance]:
    """(all that can be read, why not more, the allowance)."""
    allowance = Allowance()
    stream = unpacked(io.BytesIO(data), data[:4], allowance)
    found = b""
    try:
        while piece := stream.read(size):
            found += piece
    except UNPACKING_ERRORS as error:
        return found, str(error), allowance
    return found, "", allowance


WHOLE = {
    "plain": (CONTENT, 1),
    "gzip": (gzip.compress(CONTENT), 1),
    "gzip, two members and padding": (gzip.compress(CONTENT) * 2 + bytes(70_000), 2),
    "zstd": (zstd(CONTENT), 1),
    "zstd of a pipe": (streamed(CONTENT), 1),
    "zstd, frames of all sorts": (
        zstd(CONTENT, write_checksum=True) + SKIPPED + streamed(CONTENT) + zstd(CONTENT),
        3,
    ),
    "zstd, empty frames": (zstd(b"") + zstd(CONTENT) + streamed(b""), 1),
}


@pytest.mark.parametrize("name", WHOLE)
def test_all_members_and_frames_are_read(name: str) -> None:
    # GIVEN a file of one or several
    data, times = WHOLE[name]
    # WHEN it is read, in small and in large pieces
    for size in (1000, 100_000, 10 * MIB):
        found, why, allowance = read(data, size)
        # THEN all is there
        assert found == CONTENT * times
        assert (why, allowance.stored) == ("", len(data))


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(CONTENT)[: len(gzip.compress(CONTENT)) // 2],
        gzip.compress(CONTENT)[:-3],
        gzip.compress(CONTENT) + b"more",
        zstd(CONTENT)[: len(zstd(CONTENT)) // 2],
        streamed(CONTENT)[:-1],
        zstd(CONTENT, write_checksum=True)[:-2],
        zstd(CONTENT) + b"more",
        zstd(CONTENT)[:20_000] + b"\xff" * 100 + zstd(CONTENT)[20_100:],
        b"\x28\xb5\x2f\xfd",
        b"\x1f\x8b",
    ],
    ids=range(10),  # compressed bytes differ from process to process
)
def test_damage_is_told_behind_what_can_be_read(data: bytes) -> None:
    # GIVEN a file that is cut off or damaged
    # WHEN it is read
    found, why, _ = read(data)
    # THEN what is before the damage is there, and why there is no more
    assert CONTENT.startswith(found)
    assert why


def test_what_unpacks_to_nothing_is_given_up() -> None:
    # GIVEN 100 times 10 MiB of zeros, by gzip and zstd
    for pack in (gzip.compress, zstd):
        # WHEN they are read
        found, why, allowance = read(pack(bytes(10 * MIB)) * 100)
        # THEN it ends before all is unpacked, and without any one large piece
        assert "with little of use" in why
        assert len(found) <= SLACK + RATIO * allowance.stored


def test_a_beginning_needs_zstd_s_first_block() -> None:
    # GIVEN the first bytes of a file
    packed = zstd(CONTENT)
    # WHEN the first block ends in them or not
    # THEN the content's first bytes are known, or none
    assert beginning(packed, 1000) == CONTENT[:1000]
    assert beginning(packed[:4096], 1000) == b""
    assert beginning(gzip.compress(CONTENT)[:500], 100) == CONTENT[:100]
    assert beginning(CONTENT[:500], 100) == CONTENT[:100]


def packet(content: bytes, number: int = 127) -> bytes:
    """A packet of Perfetto's with one field of bytes, by default one that nobody knows."""
    field = system_traces._varint(number << 3 | 2) + system_traces._varint(len(content)) + content
    return b"\x0a" + system_traces._varint(len(field)) + field


READS = system_traces.reads().bytes()
INCOMPRESSIBLE = packet(random.Random(2).randbytes(200_000))


class Pipe(io.BytesIO):
    """Bytes that cannot be sought, and come a few at a time."""

    def seekable(self) -> bool:
        return False

    def read1(self, size: int | None = -1, /) -> bytes:
        return super().read1(min(size or 0, 3000))


@pytest.mark.parametrize("pack", [gzip.compress, zstd, streamed])
def test_a_trace_is_recognised_whatever_its_first_block(
    pack: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    # GIVEN a trace whose first block is as long as blocks get
    data = pack(INCOMPRESSIBLE + READS)
    path = tmp_path / "x"
    path.write_bytes(data)
    for given in (path, io.BytesIO(data), Pipe(data)):
        # WHEN it is opened by its path, as a stream, and from a pipe
        source = open_source(given)
        # THEN it is read as the same trace is that is not compressed
        events = sum(len(part.events) for part in source.parts())
        plain = open_source(io.BytesIO(READS))
        assert events == sum(len(part.events) for part in plain.parts())
        assert source.problems == []


USELESS = packet(bytes(10 * MIB))


def perfetto_packed() -> bytes:
    """A trace with compressed packets in it that hold useless ones."""
    inner = packet(zlib.compress(USELESS + packet(bytes(4 * MIB))), number=50)
    return READS + inner * 10


def perf_compressed() -> bytes:
    perf = perf_files.Perf()
    records = [*perf.io(10**12, 8), perf.round()]
    return perf.file(perf.compressed([b"".join(records) + perf.record(1, bytes(60_000)) * 2000]))


def trace_dat_of_zeros() -> bytes:
    made = trace_dat.contents_of(paths.DATA / "ftrace" / "small.dat")
    cpus = {0: next(iter(made.buffers[0].cpus.values())) + bytes(100 * MIB)}
    buffers = [trace_dat.Pages("", "mono", cpus)]
    return trace_dat.trace_dat(made.changed(version=7, codec="zstd", buffers=buffers))


def printed(name: str) -> bytes:
    return (paths.DATA / name).read_bytes()


BOMBS: dict[str, Callable[[], bytes]] = {
    "perfetto-gz": lambda: gzip.compress(READS, 1) + gzip.compress(USELESS, 1) * 20,
    "perfetto-zst": lambda: zstd(READS) + zstd(USELESS) * 20,
    "perfetto-packed": perfetto_packed,
    "perfetto-packed-gz": lambda: gzip.compress(perfetto_packed()),
    "perf": perf_compressed,
    "trace-dat": trace_dat_of_zeros,
    "text-gz": lambda: (
        gzip.compress(printed("ftrace/small.trace.txt")) + gzip.compress(b"\n" * (10 * MIB)) * 10
    ),
    "blkparse-zst": lambda: zstd(printed("blktrace/loop1.txt")) + zstd(b"\n" * (10 * MIB)) * 10,
}


@pytest.mark.parametrize("name", BOMBS)
def test_cost_is_bounded_by_what_is_used(name: str) -> None:
    # GIVEN a small recording that unpacks to more than 80 MiB of nothing
    data = BOMBS[name]()
    # WHEN it is read
    with counted() as spent:
        try:
            source = open_source(Counting(data, spent))
            events = sum(len(part.events) for part in source.parts())
        except LogFormatError as error:
            assert "with little of use" in str(error)
        else:
            # THEN what is before that is there, and it is told
            assert events > 0
            assert any("with little of use" in problem for problem in source.problems)
    # THEN a part of it was unpacked
    check(data, spent)
    assert 0 < spent.unpacked < 80 * MIB
