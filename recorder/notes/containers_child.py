# SPDX-License-Identifier: Apache-2.0
"""A program of its own that reads the names of containers, which the recorder has no right to.

The files belong to root and hold secrets. This process keeps CAP_DAC_READ_SEARCH alone, if it has
that, and passes on names. Each line of standard input is JSON, {"containers": [id, …], "pods":
[uid, …]}; the answer is a line, too: the payload of a `containers` note, which may be empty. The
process ends at the end of standard input, so at the latest with the recorder.
"""

import json
import os
import sys

_BELOW = "/biotrail/recorder/notes/containers_child.py"
"""This file, below what has to be on the path."""


def _main() -> None:
    # python -I -S: site-packages, and so an installed biotrail, is not on sys.path.
    sys.path.append(os.path.abspath(__file__).removesuffix(_BELOW))
    from biotrail.recorder.host import container_state
    from biotrail.recorder.rights import capabilities

    right = capabilities.current()[1] & capabilities.mask(["CAP_DAC_READ_SEARCH"])
    capabilities.become(right, right, 0)
    capabilities.gain_no_more()
    for line in sys.stdin:
        asked = json.loads(line)
        found = container_state.resolve(asked["containers"], asked["pods"])
        print(json.dumps(found), flush=True)  # noqa: T201 - the answer


if __name__ == "__main__":
    _main()
