# SPDX-License-Identifier: Apache-2.0
"""Devices and loads for live tests, as fixtures; all are gone however a test ends.

Live tests run several at once, by pytest-xdist. What they share is told by marks: `alone`
(tests.support.machine), `long`, and xdist's own `xdist_group` for tests that a worker shall run
one after the other.
"""

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from biotrail.recorder.host import cgroups
from tests.support import devices, kernel_completions, machine
from tests.support.both_ways import assert_alike, logs_below
from tests.support.devices import Fio, LoopDevice, MakeLoop
from tests.support.kernel_completions import Completions
from tests.support.path_disks import Disk, mounted
from tests.support.record_command import remove_cgroup

BTF = Path("/sys/kernel/btf/vmlinux")
SET_APART = "set apart"
"""The property of a test's report that names a completion which the test set apart."""
REPORTED = pytest.StashKey[dict[str, list[str]]]()
"""What tests set apart, by their ids."""
SHOWN = 4
KEPT: list[ExitStack] = []
"""The machine, while tests that are alone follow each other."""


def pytest_configure(config: pytest.Config) -> None:
    config.stash[REPORTED] = {}
    config.pluginmanager.register(Reported(config.stash[REPORTED]))
    config.addinivalue_line("markers", "alone: no other live test runs meanwhile")
    config.addinivalue_line("markers", "long: takes many seconds, so it is begun first")


@pytest.hookimpl(tryfirst=True)  # before xdist looks at the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with those that are alone, on one worker, then the long ones.

    At the end, one worker would run a long one and the others wait.
    """
    for item in items:
        if is_alone(item):
            item.add_marker(pytest.mark.xdist_group("alone"), append=False)
    items.sort(key=lambda item: (not is_alone(item), item.get_closest_marker("long") is None))


def is_alone(item: pytest.Item | None) -> bool:
    return item is not None and item.get_closest_marker("alone") is not None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """Share the machine with other live tests, or keep it for all that are alone, in a row.

    Each of these would otherwise wait until all other workers' tests have ended.
    """
    with ExitStack() as shared:
        if not is_alone(item):
            shared.enter_context(machine.taken(alone=False))
        elif not KEPT:
            KEPT.append(ExitStack())
            KEPT[0].enter_context(machine.taken(alone=True))
        try:
            return (yield)
        finally:
            if KEPT and not is_alone(nextitem):
                KEPT.pop().close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Keep what each test set apart, however it ends."""
    kernel_completions.SAID.clear()
    try:
        return (yield)
    finally:
        item.user_properties += [(SET_APART, line) for line in kernel_completions.SAID]


class Reported:
    """Notes what tests set apart: from their reports, which xdist's workers send."""

    def __init__(self, reported: dict[str, list[str]]) -> None:
        self.reported = reported

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        lines = [str(line) for name, line in report.user_properties if name == SET_APART]
        if report.when == "call" and lines:
            self.reported[report.nodeid] = lines


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say which completions no program was run for."""
    if not config.stash[REPORTED]:
        return
    terminalreporter.section("completions that no BPF program was run for, by ftrace")
    for test, said in config.stash[REPORTED].items():
        terminalreporter.write_line(f"{test}: {len(said)}")
        for line in said[:SHOWN]:
            terminalreporter.write_line(f"    {line}")
        if len(said) > SHOWN:
            terminalreporter.write_line(f"    and {len(said) - SHOWN} more")


@pytest.fixture(autouse=True)
def matched_alike(tmp_path: Path) -> Iterator[None]:
    """Reads the test's logs in windows of several sizes: the tables are the same."""
    yield
    for log in logs_below(tmp_path):
        assert_alike(log)


@pytest.fixture
def needs_root() -> None:
    """Skip unless the tests run as root."""
    if os.geteuid() != 0:
        pytest.skip("needs root")


@pytest.fixture
def needs_bpf(needs_root: None) -> None:
    """Skip unless this machine can load typed tracepoint programs."""
    if not BTF.exists():
        pytest.skip(f"needs the kernel's type information: {BTF} is missing")


@pytest.fixture
def make_loop(needs_root: None) -> Iterator[MakeLoop]:
    """Return a function that makes loop devices; all are gone when the test ends.

    Arguments: size in bytes (64 MiB), direct_io (False: the file is reached through the page
    cache), directory (/dev/shm, so that the file is in memory and causes no other disk I/O).
    """
    with ExitStack() as stack:
        yield lambda **options: stack.enter_context(devices.loop(**options))


@pytest.fixture
def loop_device(request: pytest.FixtureRequest, make_loop: MakeLoop) -> LoopDevice:
    """A RAM-backed loop device; parametrize it indirectly with make_loop's arguments.

    @pytest.mark.parametrize("loop_device", [{"direct_io": True}], indirect=True)
    """
    return make_loop(**getattr(request, "param", {}))


@pytest.fixture
def completions(needs_root: None) -> Iterator[Completions]:
    """Return a function that has ftrace record completions, from its call on: kernel_completions.

    truth = completions(loop_device.dev) before a recording; what no program was run for is
    truth.unseen_by(log) after it.
    """
    with kernel_completions.tracing() as trace:
        yield trace


@pytest.fixture
def disk(make_loop: MakeLoop, tmp_path: Path) -> Iterator[Disk]:
    """A loop device with ext4, mounted."""
    with mounted(make_loop(), "ext4", tmp_path / "disk") as found:
        yield found


@pytest.fixture
def zram(needs_root: None) -> Iterator[str]:
    """Name of a fresh bio-based device of 16 MiB: it takes no requests."""
    if not devices.ZRAM.exists():
        pytest.skip("needs zram")
    with devices.zram() as name:
        yield name


@pytest.fixture
def cgroup(needs_root: None) -> Iterator[Path]:
    """A fresh cgroup of the hierarchy that block I/O is charged in, with one below it, `below`."""
    where = cgroups.hierarchy()
    if where is None:
        pytest.skip("needs cgroups: no hierarchy")
    directory = Path(where.point) / f"biotrail-test-{uuid.uuid4().hex[:8]}"
    try:
        (directory / "below").mkdir(parents=True)
    except OSError as error:
        pytest.skip(f"needs cgroups: {error}")
    try:
        unified = directory / "cgroup.controllers"
        if unified.exists() and "io" not in unified.read_text().split():
            pytest.skip("needs cgroups: the io controller is not enabled")
        yield directory
    finally:
        remove_cgroup(directory / "below")
        remove_cgroup(directory)


@pytest.fixture
def fio() -> Fio:
    """Return a function that runs one fio job and returns fio's own JSON.

    fio(loop_device.path, rw="randread", bs="4k", size="16m", ioengine="io_uring", iodepth=8)

    Direct I/O unless told otherwise (direct=False). A failing fio fails the test.
    """
    if shutil.which("fio") is None:
        pytest.skip("needs fio")
    return devices.fio
