# SPDX-License-Identifier: Apache-2.0
"""Write bytes and packets to the trace's file, and count its bytes."""

from collections.abc import Iterable
from typing import BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket

from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.converters.outputs.perfetto.tracks.tracks import framed
from biotrail.recorder.schema.errors import OutputError


class PacketFile:
    """The file of a trace, or of one log's part of it.

    out: where bytes go. sequence: id of the log's own packet sequence, which has all packets but
    those of lanes and counters. summary: its `bytes` counts what was written.
    """

    def __init__(self, out: BinaryIO, sequence: int, summary: PerfettoSummary) -> None:
        self._out = out
        self._sequence = sequence
        self._summary = summary

    def packets(self, packets: Iterable[TracePacket]) -> None:
        """Write packets on the log's own sequence, and add their bytes to the summary.

        The packets get its sequence id and, where their flags are 0, SEQ_NEEDS_INCREMENTAL_STATE.
        Raises OutputError where the file cannot be written.
        """
        ready = list(packets)
        for packet in ready:
            packet.trusted_packet_sequence_id = self._sequence
            if not packet.sequence_flags:
                packet.sequence_flags = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        self.write(framed(ready))

    def write(self, data: bytes | memoryview) -> None:
        """Write encoded packets, and add their bytes to the summary.

        data: `Trace.packet` fields, as `framed` returns them; may be empty. Raises OutputError
        where the file cannot be written.
        """
        try:
            self._out.write(data)
        except OSError as error:
            raise OutputError(
                f"The trace cannot be written after {self._summary.bytes} bytes: {error.strerror}. "
                "Make room or choose another place."
            ) from error
        self._summary.bytes += len(data)
