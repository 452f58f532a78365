# SPDX-License-Identifier: Apache-2.0
"""Archives whose metadata is right, and that ask for more work than their size should cost."""

import io
import struct
from dataclasses import replace
from unittest import mock

import numpy as np
import pyarrow.parquet as pq

from biotrail.converters.inputs.opening import open_source
from biotrail.converters.inputs.parquet.account import Metadata, pack
from biotrail.converters.outputs.parquet import archive
from biotrail.recorder.log import LogWriter
from tests.support import captures


def plain(capture: str = "fsync-virtio") -> bytes:
    """An archive of a capture, of one row group."""
    log, out = io.BytesIO(), io.BytesIO()
    events = captures.load(capture)
    writer = LogWriter(log, captures.header())
    writer.write_chunk(captures.records(events), captures.clock(events[-1]["ns"]))
    writer.close({"clocks": captures.clock(10**9)})
    archive.write(open_source(io.BytesIO(log.getvalue())), out)
    return out.getvalue()


def repeated(times: int) -> bytes:
    """An archive in which so many row groups are the same bytes of the file."""

    def told(metadata: Metadata) -> dict[str, str]:
        account = metadata.account
        many = replace(account, groups=account.groups * times, events=account.events * times)
        return pack(Metadata(metadata.facts, many, np.tile(metadata.chunks, (times, 1))))

    with mock.patch.object(archive, "pack", told):
        data = plain()
    meta, one = (pq.read_metadata(io.BytesIO(data)) for _ in range(2))
    for _ in range(times - 1):
        meta.append_row_groups(one)
    footer = io.BytesIO()
    meta.write_metadata_file(footer)
    (length,) = struct.unpack_from("<I", data, len(data) - 8)
    return data[: -8 - length] + footer.getvalue()[4:]
