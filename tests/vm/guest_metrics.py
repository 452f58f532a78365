# SPDX-License-Identifier: Apache-2.0
"""In the virtual machine: `biotrail metrics`, whose program adds up in the kernel, beside a log."""

import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from tests.vm.guest_bcc import WAIT_SECONDS, biotrail
from tests.vm.guest_case import Case, Unavailable, disk, fio_script

LOADS = {
    "plain": {"ioengine": "psync", "iodepth": 1, "rw": "randrw", "bsrange": "4k-64k", "size": "8m"},
    "synced": {"ioengine": "psync", "iodepth": 1, "rw": "randwrite", "size": "512k", "fsync": 4},
}
"""One I/O of 4 to 64 KiB at a time; writes with fsync."""
_OPENMETRICS = {"Accept": "application/openmetrics-text; version=1.0.0"}


@contextmanager
def serving(case: Case, device: str) -> Iterator[str]:
    """The URL of `biotrail metrics` of a device; its exit status and what it said are told."""
    words = biotrail("metrics", "-d", device, "--listen", "127.0.0.1:0")
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline()
            found = re.search(r"http://\S+", said)
            if found is None:
                raise RuntimeError(said + process.stderr.read())
            yield found[0]
            process.send_signal(signal.SIGINT)
            case.told["said"] = process.stderr.read()
            case.told["status"] = process.wait(WAIT_SECONDS)
        finally:
            process.kill()


def metrics(case: Case) -> None:
    """Both loads on virtio-blk, counted by the program and recorded as light."""
    try:
        import prometheus_client  # noqa: F401 - what metrics needs
    except ImportError as error:
        raise Unavailable("prometheus_client is not installed") from error
    name = disk("virtio")
    script = fio_script(case, name, LOADS)
    case.told["devices"] = [name]
    with serving(case, name) as url:
        case.record([name], ["bash", str(script)], more=["--events", "light"])
        asked = urllib.request.Request(url, headers=_OPENMETRICS)
        with urllib.request.urlopen(asked, timeout=WAIT_SECONDS) as answer:
            (case.directory / "metrics.txt").write_bytes(answer.read())


CASES = (metrics,)
