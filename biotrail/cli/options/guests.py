# SPDX-License-Identifier: Apache-2.0
"""The options that join a guest's log with its host's: --guest-of and --image."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from biotrail.cli.options.gathering import gathered, option
from biotrail.cli.options.opening import Reading
from biotrail.cli.options.recordings import InputRecording, Recording, open_recordings
from biotrail.text import values

if TYPE_CHECKING:  # imported where a guest is asked for
    from biotrail.converters.analysis.guests.guest import Guest


@dataclass(frozen=True)
class GuestOf:
    """Whether two logs are a guest's and its host's, and how they belong together."""

    guest_of: str | None = option(
        "--guest-of",
        type=values.name,
        metavar="PID|NAME",
        help="The first LOG is a guest's, the second its host's, where this process was the "
        "virtual machine: link the guest's requests with the host's I/O.",
    )
    image: tuple[str, ...] = option(
        "--image",
        multiple=True,
        metavar="MAP",
        type=values.FileName(),
        help="With --guest-of: where the disk's image is on the host, the output of qemu-img map "
        "--output=json IMAGE or filefrag -v IMAGE (docs/guests.md). Can be given twice.",
    )

    def check(self, refused: bool = False, why: str = "") -> None:
        """Raise click.UsageError for --image alone and, if `refused`, for --guest-of and `why`."""
        if self.guest_of is not None and refused:
            raise click.UsageError(f"--guest-of {why}")
        if self.image and self.guest_of is None:
            raise click.UsageError("--image is of a guest's disk: give --guest-of, too")

    def joined(
        self, recordings: Sequence[Recording | InputRecording], reading: Reading
    ) -> "Guest | None":
        """Read the guest's recording and its host's, and join them; None: no guest is asked for."""
        if self.guest_of is None:
            return None
        from biotrail.converters.analysis.guests.disk_requests import read_mapping
        from biotrail.converters.analysis.guests.guest import join

        if len(recordings) != 2:
            raise click.UsageError("--guest-of joins two recordings: GUEST.biotrail HOST.biotrail")
        mapping = read_mapping(self.image)
        guest, host = (open_recordings(one.paths, reading)[0].trace for one in recordings)
        return join(guest, host, values.as_read(self.guest_of), mapping)


guest_options = gathered(GuestOf, "guest")
