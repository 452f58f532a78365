# SPDX-License-Identifier: Apache-2.0
"""What a log's reader says is missing, as tables of loss windows."""

from typing import Any, TypeVar

from biotrail.converters.events.loss import loss_windows, no_loss
from biotrail.converters.events.tables import LossWindows
from biotrail.converters.inputs.log import Source
from biotrail.converters.lifecycles.cutting import Span, losses_within

Window = TypeVar("Window", bound=dict[str, Any])


class Losses:
    """The loss windows and damaged chunks of one log, as its reader meets them."""

    def __init__(self, reader: Source) -> None:
        """Begin before the first that `fresh` returns."""
        self._reader = reader
        self._loss = 0
        self._damage = 0

    def overlapping(self, windows: list[Window], span: Span | None) -> list[Window]:
        """Return the windows that overlap a span; None: all."""
        if span is None:
            return windows
        return [w for w in windows if span.overlaps(int(w["start"]), int(w["end"]))]

    def fresh(self, span: Span | None) -> LossWindows:
        """Return the loss windows that the reader has met since the last call, cut to the span.

        Those of lost records, and a row for each chunk that cannot be read.
        """
        losses = self._reader.losses[self._loss :]
        damaged = self._reader.damaged[self._damage :]
        self._loss += len(losses)
        self._damage += len(damaged)
        found = loss_windows(losses, damaged)
        return found if span is None else losses_within(found, span)

    def forgotten(self, losses: int, damaged: int) -> None:
        """Take note that the reader has dropped so many of its oldest, which were returned."""
        self._loss -= losses
        self._damage -= damaged

    def all(self) -> LossWindows:
        """Return all loss windows that the reader has met."""
        if not self._reader.losses and not self._reader.damaged:
            return no_loss()
        return loss_windows(self._reader.losses, self._reader.damaged)
