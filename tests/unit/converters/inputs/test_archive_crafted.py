# SPDX-License-Identifier: Apache-2.0
"""Archives made up by somebody: the checksum of their metadata is right, what it covers is not."""

import io
import zlib

import pyarrow.parquet as pq
import pytest

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.account import PREFIX, unpack
from biotrail.converters.outputs.parquet import archive
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import log_samples

PARTS = ("header", "notes", "losses", "end", "account", "chunks")


@pytest.fixture(scope="module")
def genuine() -> dict[str, bytes]:
    """The metadata of a small archive, by name."""
    out = io.BytesIO()
    archive.write(open_source(io.BytesIO(log_samples.sample().data)), out)
    stored = pq.ParquetFile(io.BytesIO(out.getvalue())).metadata.metadata
    ours = {k.decode(): v for k, v in stored.items() if k.startswith(PREFIX.encode())}
    return {key.removeprefix(PREFIX): value for key, value in ours.items()}


def crafted(parts: dict[str, bytes]) -> dict[bytes, bytes]:
    """The metadata of a file with these parts, and the checksum that they need."""
    crc = zlib.crc32(b"".join(parts.get(key, b"") for key in PARTS))
    parts = {**parts, "crc32": f"{crc:08x}".encode()}
    return {(PREFIX + key).encode(): value for key, value in parts.items()}


@pytest.mark.parametrize("missing", PARTS)
def test_a_missing_part_is_named(missing: str, genuine: dict[str, bytes]) -> None:
    # GIVEN metadata without one of its parts, with a right checksum
    stored = crafted({key: value for key, value in genuine.items() if key != missing})
    # WHEN it is unpacked THEN one message names file, part and remedy
    with pytest.raises(LogFormatError) as error:
        unpack("x.parquet", stored)
    expected = f"x.parquet: the log's {missing} is missing; make it again from the log"
    assert str(error.value) == expected


def test_a_key_that_is_no_text_is_ignored(genuine: dict[str, bytes]) -> None:
    # GIVEN metadata with one key more, which begins as ours do and is no UTF-8
    stored = crafted(genuine)
    # WHEN it is unpacked THEN it is as without
    more = unpack("x.parquet", {**stored, PREFIX.encode() + b"\xff": b"?"})
    assert more.account == unpack("x.parquet", stored).account


@pytest.mark.parametrize("part", PARTS)
def test_a_part_that_is_no_text_is_refused(part: str, genuine: dict[str, bytes]) -> None:
    # GIVEN metadata with a part that is no UTF-8, which the checksum counts as U+FFFD
    replaced = crafted({**genuine, part: "\ufffd".encode()})
    stored = {**replaced, (PREFIX + part).encode(): b"\xff"}
    # WHEN it is unpacked THEN that is one message
    with pytest.raises(LogFormatError, match=r"^x.parquet: .*make it again from the log$"):
        unpack("x.parquet", stored)
