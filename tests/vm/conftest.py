# SPDX-License-Identifier: Apache-2.0
"""A virtual machine for each of VMTEST_KERNELS, booted once; the matrix of what held in which."""

import os
from collections.abc import Generator
from pathlib import Path

import kernel_matrix as matrix
import pytest
from machine import CHOSEN, Machine

KERNELS = os.environ.get("VMTEST_KERNELS", "6.1").split()
"""By default Debian 12's own, which has neither block_io_start nor block_io_done."""
OUT = os.environ.get("VMTEST_OUT")
"""Where to keep what the machines leave; what is there already is judged without a boot."""
DOCUMENT = os.environ.get("VMTEST_MATRIX")
"""The page whose generated part is to be written."""
MATRIX = pytest.StashKey[matrix.Matrix]()
CELLS = {"passed": "pass", "failed": "FAIL", "skipped": "skip"}


def pytest_configure(config: pytest.Config) -> None:
    config.stash[MATRIX] = matrix.Matrix()


@pytest.fixture(scope="session", params=KERNELS)
def vm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    if OUT:
        directory = Path(OUT) / request.param
        directory.mkdir(parents=True, exist_ok=True)
    else:
        directory = tmp_path_factory.mktemp(f"linux-{request.param}")
    machine = Machine(request.param, directory)
    print(machine.console)
    if machine.version:
        request.config.stash[MATRIX].note(matrix.PACKAGE, machine.kernel, machine.version)
    return machine


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    parameters = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    kernel = parameters.pop("vm", None)
    if kernel and (report.when == "call" or not report.passed):
        words = item.function.__name__.removeprefix("test_").replace("_", " ")
        test = ", ".join([words, *map(str, parameters.values())])
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        reason = reason.removeprefix("Skipped: virtual machine: ")
        item.config.stash[MATRIX].note(test, kernel, CELLS[report.outcome], reason)
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
    if DOCUMENT and not CHOSEN and (booted := found.of_booted()).cells:
        matrix.write(Path(DOCUMENT), booted)
