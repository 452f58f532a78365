# SPDX-License-Identifier: Apache-2.0
"""A program of its own that reads CTF traces by babeltrace2's Python bindings, as columns.

The bindings (`bt2`) are built for the distribution's Python, which need not be the one that
biotrail runs on; and what they do to a damaged trace, up to an abort, ends with this process.
Nothing is imported but `bt2`, the standard library and this package.

Standard output is a sequence of frames, each `FRAME`, a JSON object and the packed records that it
describes:

    {"frame": "start", "clock": …, "environment": …, "events": …, "began": …, "span": …, …}
    {"frame": "batch", "tables": […], "reached": …, "losses": […], "passed_over": …, "problems": …}
    {"frame": "end"}         the last one, when all was read
    {"frame": "error", "missing": …, "text": …}    instead of all; missing: bt2 cannot be imported

Times are in the clock's cycles. A table's "fields" are (name, numpy's type) of its records; among
these are "number", an event's place in the order of reading, and "time" and "cpu".

The public API makes some ten Python objects for each event (28,000 events/s). So events are read
by the functions of the C API that the bindings are built on (`bt2._native_bt`, ten times as fast),
and all else, which is rare, by the public API.
"""

import resource
import signal
from collections.abc import Sequence

from biotrail.converters.inputs.lttng.child.frames import send

_MEMORY = 8 << 30
"""Bytes of address space: a hostile trace can ask for more than any machine has."""


_OPENING_SECONDS = 30
"""Seconds of CPU time after which the traces' opening is given up. babeltrace2 reads metadata and
packets' headers for it, and what is damaged may keep it for ever."""


def main(scratch: str, directories: Sequence[str]) -> int:
    """Read the traces in these directories; return the exit status.

    scratch: an empty directory for copies, which the caller removes.
    """
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    # The signal's default action ends the process, within C functions, too.
    signal.setitimer(signal.ITIMER_PROF, _OPENING_SECONDS)
    try:
        # Imported here because they import bt2.
        from biotrail.converters.inputs.lttng.child.graph import read_all
        from biotrail.converters.inputs.lttng.child.reading import causes
    except ImportError as error:
        send({"frame": "error", "missing": True, "text": str(error)})
        return 1
    try:
        read_all(directories, scratch)
    except Exception as error:  # whatever it is, it becomes the user's message
        said = causes(error) or type(error).__name__
        send({"frame": "error", "missing": False, "text": said})
        return 1
    send({"frame": "end"})
    return 0
