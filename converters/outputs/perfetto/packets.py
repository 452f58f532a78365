# SPDX-License-Identifier: Apache-2.0
"""Write bytes and packets to the trace's file, and count its bytes."""

from collections.abc import Iterable
from typing import BinaryIO

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket, TrackEvent

from biotrail.converters.outputs.perfetto.summary import PerfettoSummary
from biotrail.recorder.schema.errors import OutputError


def varint(value: int) -> bytes:
    """Return a number of at least 0 as a protobuf varint in its shortest form."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def framed(packets: Iterable[TracePacket]) -> bytes:
    """Return the packets as they stand in a file: `Trace.packet` fields, one after the other."""
    out = []
    for packet in packets:
        data = packet.SerializeToString()
        out += [b"\x0a", varint(len(data)), data]
    return b"".join(out)


def begin_packet(track: int, at: int, name: str, category: str) -> TracePacket:
    """Return the packet that begins a slice on the track with that uuid. at: ns."""
    packet = TracePacket(timestamp=at)
    event = packet.track_event
    event.type, event.track_uuid, event.name = TrackEvent.TYPE_SLICE_BEGIN, track, name
    event.categories.append(category)
    return packet


def end_packet(track: int, at: int) -> TracePacket:
    """Return the packet that ends the track's innermost slice. at: ns."""
    packet = TracePacket(timestamp=at)
    packet.track_event.type, packet.track_event.track_uuid = TrackEvent.TYPE_SLICE_END, track
    return packet


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
