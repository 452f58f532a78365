# SPDX-License-Identifier: Apache-2.0
"""A virtual machine for each of VMTEST_KERNELS, booted once; the matrix of what held in which."""

import os
import signal
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import kernel_matrix as matrix
from tests.vm.boots import CONSOLE, Boots, at_once
from tests.vm.machine import CHOSEN, NOT_CHOSEN, Machine, boot_command

KERNELS = os.environ.get("VMTEST_KERNELS", "6.1").split()
"""By default Debian 12's own, which has neither block_io_start nor block_io_done."""
OUT = os.environ.get("VMTEST_OUT")
"""Where to keep what the machines leave; what is there already is judged without a boot."""
DOCUMENT = os.environ.get("VMTEST_MATRIX")
"""The page whose generated part is to be written; a run of chosen cases writes none."""
BOOTS_SECONDS = 6 * 3600
"""A test's limit: all machines may have to boot, and perform all cases, under emulation."""
MATRIX = pytest.StashKey[matrix.Matrix]()
CELLS = {"passed": "pass", "failed": "FAIL", "skipped": "skip"}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = matrix.Matrix()


def pytest_itemcollected(item: pytest.Item) -> None:
    """The first test of a kernel waits for its machine, which has limits of its own."""
    item.add_marker(pytest.mark.limit(BOOTS_SECONDS))


def say(config: pytest.Config, line: str) -> None:
    """Shows a line at once: booting takes minutes."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(line)


def wanted_kernels(session: pytest.Session) -> list[str]:
    """Those that a test is to be run for, in the order of the tests."""
    parameters = [item.callspec.params for item in session.items if hasattr(item, "callspec")]
    return list(dict.fromkeys(given["vm"] for given in parameters if "vm" in given))


@dataclass
class Boot:
    """A machine's directory, and when it has ended; None: what is there is to be judged."""

    directory: Path
    ended: "Future[float] | None"


@pytest.fixture(scope="session")
def boots(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Boot]]:
    """Boots all wanted kernels, some at once. The first is judged while the others go on."""
    pool, found = Boots(at_once()), {}
    for kernel in wanted_kernels(request.session):
        if OUT:
            directory = Path(OUT) / kernel
            directory.mkdir(parents=True, exist_ok=True)
        else:
            directory = tmp_path_factory.mktemp(f"linux-{kernel}")
        kept = (directory / CONSOLE).exists()
        ended = None if kept else pool.start(directory, boot_command(kernel, directory))
        found[kernel] = Boot(directory, ended)
    waiting = sum(boot.ended is not None for boot in found.values())
    say(request.config, f"\n{waiting} kernels to boot, {at_once()} at once (VMTEST_PARALLEL)")
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends machines, too
    yield found
    pool.stop()
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session", params=KERNELS)
def vm(request: pytest.FixtureRequest, boots: dict[str, Boot]) -> Machine:
    boot = boots[request.param]
    if boot.ended is not None:
        say(request.config, f"Linux {request.param}: {boot.ended.result():.0f} s")
    machine = Machine(request.param, boot.directory)
    print(machine.console)
    if machine.version:
        again = machine.repeats()
        found = request.config.stash[MATRIX]
        found.note(matrix.PACKAGE, machine.kernel, machine.version)
        found.note(matrix.AGAIN, machine.kernel, str(sum(again.values())))
        if again:
            named = ", ".join(f"{name} {number}" for name, number in again.items())
            say(request.config, f"Linux {request.param}: recorded again for skips: {named}")
    return machine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    kernel = parameters.pop("vm", None) or parameters.pop("both", None)
    if isinstance(kernel, str) and (report.when == "call" or not report.passed):
        words = item.function.__name__.removeprefix("test_").replace("_", " ")
        test = ", ".join([words, *map(str, parameters.values())])
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = reason.removeprefix("Skipped: virtual machine: ")
        cell = matrix.NOT_RUN if reason == NOT_CHOSEN else CELLS[report.outcome]
        item.config.stash[MATRIX].note(test, kernel, cell, reason if cell != matrix.NOT_RUN else "")
    return report


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    found = config.stash[MATRIX]
    if not found.cells:
        return
    terminalreporter.section("what held in which kernel")
    for line in found.lines():
        terminalreporter.write_line(line)
    if DOCUMENT and (booted := found.of_booted()).cells:
        matrix.write(Path(DOCUMENT), booted, whole=not CHOSEN)
