# SPDX-License-Identifier: Apache-2.0
"""Where a container sees a file of its root, which is an overlay, by the file's path on the host.

The path alone tells it, so it does for logs of any age:

| whose | layers lie in |
|---|---|
| Docker (overlay2) | `…/overlay2/ID/diff/` |
| Podman, CRI-O (containers/storage) | `…/overlay/ID/diff/` |
| containerd (also that of Docker and k3s) | \
`…/io.containerd.snapshotter.v1.overlayfs/snapshots/N/fs/` |
"""

import re

_LAYER = re.compile(
    r"[^:]*?/(?:overlay2?/(?:[0-9a-f]{64}(?:-init)?|[0-9a-z]{25})/diff"
    r"|io\.containerd\.snapshotter\.v1\.overlayfs/snapshots/\d+/fs)(/.*)",
    re.DOTALL,
)


def path_in_container(path: str) -> str | None:
    """Return the path that containers with this layer see; None: it is in no layer."""
    found = _LAYER.fullmatch(path)
    return found[1] if found else None
