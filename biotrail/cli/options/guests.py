# SPDX-License-Identifier: Apache-2.0
"""The options that join a guest's log with its host's: --guest-of and --image."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from biotrail.cli.options.gathering import gathered, option
from biotrail.cli.options.opening import Reading
from biotrail.cli.options.recordings import InputRecording, open_recordings
from biotrail.text import values

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.guest import Guest
    from biotrail.converters.analysis.slow.slow import SlowIO


@dataclass(frozen=True)
class GuestOf:
    """Whether two logs are a guest's and its host's, and how they belong together."""

    guest_of: str | None = option(
        "--guest-of",
        usual=None,
        type=values.Name(),
        metavar="PID|NAME",
        help="The first LOG is a guest's, the second its host's, where this process was the "
        "virtual machine: link the guest's requests with the host's I/O.",
    )
    image: tuple[str, ...] = option(
        "--image",
        usual=(),
        multiple=True,
        metavar="MAP",
        type=values.FileName(),
        help="With --guest-of: where the disk's image is on the host, the output of qemu-img map "
        "--output=json IMAGE or filefrag -v IMAGE (docs/guests.md). Can be given twice.",
    )

    def check(self, refused: bool = False, why: str = "") -> None:
        """Raise click.UsageError for --image without --guest-of.

        Also, with the words `why`, for --guest-of beside other options, if `refused`.
        """
        if self.guest_of is not None and refused:
            raise click.UsageError(f"--guest-of {why}")
        if self.image and self.guest_of is None:
            raise click.UsageError("--image is of a guest's disk: give --guest-of, too")

    def join(self, recordings: Sequence[Sequence[str]], reading: Reading) -> "Guest":
        """Read both recordings and return the guest joined with its host.

        recordings: files of the guest's recording, then of the host's; opened anew. Raises
        click.UsageError: they are not two; TraceError.
        """
        from biotrail.converters.analysis.guests.guest import join
        from biotrail.converters.analysis.guests.image import read_mapping

        if len(recordings) != 2:
            raise click.UsageError("--guest-of joins two recordings: GUEST.biotrail HOST.biotrail")
        mapping = read_mapping(self.image)
        guest, host = (open_recordings(list(paths), reading)[0].trace for paths in recordings)
        return join(guest, host, values.as_read(self.guest_of or ""), mapping)


def joined_guest(
    asked: GuestOf, given: Sequence[InputRecording], reading: Reading
) -> "Guest | None":
    """Return the guest that is asked for; None: none is. As `GuestOf.join`."""
    if asked.guest_of is None:
        return None
    return asked.join([one.paths for one in given], reading)


NameSide = Callable[[Sequence["SlowIO"]], None]
"""A function that sets the `side` of slow I/Os of the guest."""


def sides_of(asked: GuestOf, given: Sequence[InputRecording], reading: Reading) -> NameSide | None:
    """Return how the guest's slow I/Os learn their `side`; None: no guest is asked for."""
    guest = joined_guest(asked, given, reading)
    if guest is None:
        return None
    from biotrail.converters.analysis.guests.figures import side_of, sides

    known = sides(guest)

    def name_side(ios: Sequence["SlowIO"]) -> None:
        """Set the side of each I/O: that of the request which finished last."""
        for slow in ios:
            last = max(slow.requests, key=lambda one: one.number, default=None)
            if last is not None and last.number in known:
                slow.side = side_of(guest, *known[last.number])

    return name_side


guest_options = gathered(GuestOf, "guest")
"""Adds --guest-of and --image to a command, which gets `guest`."""
