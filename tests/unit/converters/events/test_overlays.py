# SPDX-License-Identifier: Apache-2.0
"""Where containers see the files of their overlays."""

import json
from pathlib import Path

import pytest

from biotrail.converters.events.overlays import path_in_container
from tests.support import file_logs
from tests.support.cli_runner import Cli
from tests.support.stack_logs import START

ID = "a1" * 32
CONTAINERD = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots"


@pytest.mark.parametrize(
    ("path", "seen"),
    [
        (f"/var/lib/docker/overlay2/{ID}/diff/var/lib/app/x.db", "/var/lib/app/x.db"),
        (f"/var/lib/docker/overlay2/{ID}-init/diff/etc/hosts", "/etc/hosts"),
        ("/data/overlay2/abcdefghijklmnopqrstu0123/diff/x", "/x"),
        (f"/var/lib/containers/storage/overlay/{ID}/diff/x y", "/x y"),
        (f"/home/u/.local/share/containers/storage/overlay/{ID}/diff/x", "/x"),
        (f"{CONTAINERD}/42/fs/usr/bin/x (deleted)", "/usr/bin/x (deleted)"),
        (f"/var/lib/docker/overlay2/{ID}/work/x", None),
        (f"/var/lib/docker/overlay2/{ID}/diff", None),
        ("/srv/overlay/mine/diff/x", None),
        (f"{CONTAINERD}/metadata.db", None),
        ("/etc/fstab", None),
        (f"sda1:…/overlay2/{ID}/diff/x", None),
    ],
)
def test_the_host_s_path_tells_the_container_s(path: str, seen: str | None) -> None:
    assert path_in_container(path) == seen


def test_reports_have_both(cli: Cli, tmp_path: Path) -> None:
    # GIVEN I/O of a file in a layer of Docker's
    layer = (b"docker", b"overlay2", ID.encode(), b"diff", b"app", b"x.db")
    log = tmp_path / "x.biotrail"
    log.write_bytes(file_logs.log([*file_logs.names(START, 7, *layer), *file_logs.bio(0, 7)]))
    # WHEN it is reported / THEN the container's path stands beside the host's
    (file,) = json.loads(cli("report", "--json", log).out)["files"]
    assert file["file"] == f"/srv/docker/overlay2/{ID}/diff/app/x.db"
    assert file["container_file"] == "/app/x.db"
    assert "/diff/app/x.db (/app/x.db)" in cli("report", "--by", "file", log).out
    assert f"/srv/docker/overlay2/{ID}/diff/app/x.db (/app/x.db)" in cli("slow", log).out
