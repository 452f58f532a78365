# SPDX-License-Identifier: Apache-2.0
"""What all tests share: `--update` for goldens, limits of time, the policy on skips, commands."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support.cli_runner import Cli
from tests.support.golden_files import Expect, expecting
from tests.support.skip_policy import Permission, Skip, forbidden, read_permissions
from tests.support.time_limit import TimeLimit, signals_as_usual

MAY_SKIP = Path(__file__).with_name("may-skip.toml")
PERMISSIONS = pytest.StashKey[list[Permission]]()
SKIPS = pytest.StashKey[list[Skip]]()
COLLECTED_ONLY = pytest.ExitCode.NO_TESTS_COLLECTED

# How long an example takes says nothing on a busy machine. The examples are the same in each run,
# so that a run says what a change did; `--hypothesis-profile explore` draws new ones.
hypothesis.settings.register_profile(
    "explore", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile(
    "biotrail", hypothesis.settings.get_profile("explore"), derandomize=True
)
hypothesis.settings.load_profile("biotrail")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("biotrail")
    group.addoption(
        "--update", action="store_true", help="rewrite the expected files of golden tests"
    )
    group.addoption(
        "--strict-skips",
        action="store_true",
        default=os.environ.get("CI", "") not in ("", "0", "false"),
        help="fail when a test skips that may-skip.toml does not list (default where CI is set)",
    )


def pytest_configure(config: pytest.Config) -> None:
    os.environ.pop("COLUMNS", None)  # pytest-xdist sets it; what is printed here is a pipe's
    config.stash[PERMISSIONS] = read_permissions(MAY_SKIP)
    config.stash[SKIPS] = []
    config.pluginmanager.register(SkipRecorder(config.stash[SKIPS]))
    config.addinivalue_line("markers", "limit(seconds): how long each phase of the test may take")
    config.pluginmanager.register(TimeLimit())
    signals_as_usual()


class SkipRecorder:
    """Notes every skip, of single tests and of whole modules."""

    def __init__(self, skips: list[Skip]) -> None:
        self.skips = skips

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._note(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._note(report)

    def _note(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.skipped and not hasattr(report, "wasxfail"):
            text = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
            self.skips.append(Skip(report.nodeid, str(text).removeprefix("Skipped: ")))


def _unlisted(config: pytest.Config) -> list[Skip]:
    return forbidden(config.stash[SKIPS], config.stash[PERMISSIONS])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    strict = session.config.getoption("--strict-skips")
    if strict and _unlisted(session.config) and session.exitstatus in (0, COLLECTED_ONLY):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    skips, unlisted = config.stash[SKIPS], _unlisted(config)
    if not skips:
        return
    terminalreporter.section("skipped tests")
    for skip in skips:
        mark = "NOT LISTED" if skip in unlisted else "may skip  "
        terminalreporter.write_line(f"{mark}  {skip.test}: {skip.reason}")
    if unlisted and config.getoption("--strict-skips"):
        terminalreporter.write_line(
            f"FAILED: {len(unlisted)} skipped that tests/may-skip.toml does not list; "
            "provide what they need, or add an entry that says why they may.",
            red=True,
        )


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """biotrail's commands, run in this process."""
    return Cli(capsys)


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Signals as a program at a terminal has them, however the tests were started."""
    usual = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def update(request: pytest.FixtureRequest) -> bool:
    """Whether golden tests shall rewrite their expected files."""
    return bool(request.config.getoption("--update"))


@pytest.fixture
def expect(update: bool) -> Expect:
    """Hold a text against the file of a golden test."""
    return expecting(update)
