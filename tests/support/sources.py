# SPDX-License-Identifier: Apache-2.0
"""Sources of events: pipes in place of files, and what a source yields, read to its end."""

import io

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Source


class Pipe(io.BytesIO):
    """Bytes that cannot be sought, as from a pipe."""

    def seekable(self) -> bool:
        return False


def everything(source: Source) -> Events:
    return Events.join([part.events for part in source.parts()])
