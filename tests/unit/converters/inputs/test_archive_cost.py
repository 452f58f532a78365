# SPDX-License-Identifier: Apache-2.0
"""What it costs to read an archive is bounded by its size: its columns share no bytes."""

import base64
import io

import numpy as np
import pytest
import zstandard

from biotrail.converters.inputs.parquet import source as archive_module
from biotrail.converters.inputs.parquet.account import _unpack_chunks
from biotrail.converters.inputs.parquet.source import ArchiveSource
from biotrail.recorder.schema.errors import LogFormatError
from tests.support import crafted_archives


def test_row_groups_that_share_their_bytes_are_refused() -> None:
    # GIVEN an archive in which 200 row groups are the same bytes, as its account says
    data = crafted_archives.repeated(200)
    # WHEN it is opened
    with pytest.raises(LogFormatError) as error:
        ArchiveSource(io.BytesIO(data))
    # THEN it is refused, with the place
    assert "columns share the bytes from offset" in str(error.value)
    assert "make it again from the log" in str(error.value)


def test_the_same_archive_with_one_row_group_is_read() -> None:
    # GIVEN an archive made in the same way, whose row group stands there once
    source = ArchiveSource(io.BytesIO(crafted_archives.repeated(1)))
    # WHEN it is read
    events = sum(len(part.events) for part in source.parts())
    # THEN all of it is there
    assert events == source.metadata.account.events > 0
    assert not source.problems


def test_more_events_than_the_bytes_can_hold_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN an archive whose row group has more events for its bytes than one may
    monkeypatch.setattr(archive_module, "MOST_EVENTS_A_BYTE", 0)
    # WHEN it is opened
    with pytest.raises(LogFormatError, match=r"row group 0 has \d+ events in \d+ bytes"):
        ArchiveSource(io.BytesIO(crafted_archives.plain()))


def test_a_table_of_chunks_beyond_belief_is_refused() -> None:
    # GIVEN a table of a million chunks, all the same, in a few bytes
    packed = base64.b64encode(zstandard.compress(np.zeros(6_000_000, "<i8").tobytes()))
    assert len(packed) < 10_000
    # WHEN it is read
    # THEN it is refused
    with pytest.raises(LogFormatError, match="its table of chunks cannot be read"):
        _unpack_chunks("it", packed)
