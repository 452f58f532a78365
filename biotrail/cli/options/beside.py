# SPDX-License-Identifier: Apache-2.0
"""Writing beside the rest: a stream whose bytes another thread passes on."""

import io
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

_PIECE = 1 << 20
"""Bytes that are passed on at a time."""
_WAITING = 4
"""Pieces that wait at most: who writes faster than the stream takes them has to wait as well."""


@contextmanager
def beside(stream: BinaryIO) -> Iterator[BinaryIO]:
    """Yield a stream that can only be written to; a thread writes the same bytes to `stream`.

    All bytes are with `stream` when the block ends without an exception; one that `stream` raised
    comes from a later write or from the end of the block. An exception in the block ends the
    thread, and what was not yet written is given up. Leaves `stream` open. Up to 6 MiB wait.
    """
    writer = _Beside(stream)
    try:
        yield cast(BinaryIO, writer)
    except BaseException:
        writer.give_up()
        raise
    writer.finish()


class _Beside(io.RawIOBase):
    """Collects what is written in pieces, which its thread writes to a stream in their order."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._piece = bytearray()
        self._pieces: queue.Queue[bytearray | None] = queue.Queue(_WAITING)
        self._error: BaseException | None = None
        self._given_up = False
        self._thread = threading.Thread(target=self._pass_on, name="beside", daemon=True)
        self._thread.start()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any) -> int:
        """Take a copy of the bytes; return how many. Raises what the stream raised meanwhile."""
        if self._error is not None:
            raise self._error
        before = len(self._piece)
        self._piece += data
        taken = len(self._piece) - before
        if len(self._piece) >= _PIECE:
            self._put()
        return taken

    def finish(self) -> None:
        """Wait until all is written. Raises what the stream raised."""
        self._put()
        self._end()
        if self._error is not None:
            raise self._error

    def give_up(self) -> None:
        """End the thread; what waits is not written."""
        self._given_up = True
        self._end()

    def _put(self) -> None:
        self._pieces.put(self._piece)
        self._piece = bytearray()

    def _end(self) -> None:
        self._pieces.put(None)
        self._thread.join()

    def _pass_on(self) -> None:
        """Write piece after piece; after an error go on taking them, so that nobody waits."""
        while (piece := self._pieces.get()) is not None:
            if self._error is None and not self._given_up:
                try:
                    self._stream.write(piece)
                except BaseException as error:  # raised where the bytes come from
                    self._error = error
