# SPDX-License-Identifier: Apache-2.0
"""What a source of events yields, read to its end."""

from biotrail.converters.events.events import Events
from biotrail.converters.inputs.log import Source


def everything(source: Source) -> Events:
    return Events.join([part.events for part in source.parts()])
