# SPDX-License-Identifier: Apache-2.0
"""scripts/recorder_start.py: a recorder file runs where it can, from a closed place."""

import importlib.util
import platform
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.paths import ROOT

HERE = {"python": "{}.{}".format(*sys.version_info[:2]), "machine": platform.machine()}


@pytest.fixture
def start() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "recorder_start", ROOT / "scripts" / "recorder_start.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.NEEDS.update(HERE, glibc="2.17", size=1)
    return module


@pytest.mark.parametrize(
    ("need", "version", "said"),
    [
        ({"python": "3.99"}, None, "this file is for Python 3.99, and this is Python"),
        ({"machine": "s390x"}, None, "this file is for s390x, and this machine is"),
        ({"glibc": "9.9"}, None, "this file needs glibc 9.9 or later"),
        ({"python": "3.99"}, (3, 10), "biotrail needs Python 3.11 or later"),
        ({"python": "3.99"}, (3, 15), "the file whose name has cp315"),
    ],
)
def test_another_machine_or_python_gives_one_message(
    start: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    need: dict[str, str],
    version: tuple[int, int] | None,
    said: str,
) -> None:
    # GIVEN a file for another Python, machine or C library, and no command of that Python; or a
    # Python that no file is for, or that has its own
    start.NEEDS.update(need)
    monkeypatch.setattr(sys, "version_info", version or sys.version_info)
    monkeypatch.delenv("BIOTRAIL_PYTHON_SOUGHT", raising=False)
    # WHEN it is started
    with pytest.raises(SystemExit) as end:
        start.check_machine()
    # THEN it ends with one line that says what is wrong, or what to take
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


def test_here_it_goes_on(start: ModuleType) -> None:
    # GIVEN a file for this machine, WHEN it is started, THEN nothing is said
    start.check_machine()


def test_place_is_made_for_this_user_alone(
    start: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # GIVEN a directory that is not there yet
    monkeypatch.setenv("SHIV_ROOT", str(tmp_path / "a" / "b"))
    # WHEN it is chosen
    place, free = start.choose_place()
    # THEN it is this user's alone
    assert Path(place) == tmp_path / "a" / "b"
    assert Path(place).stat().st_mode & 0o777 == 0o700
    assert free > 0


@pytest.mark.parametrize("kind", ["open to others", "a link", "a file"])
def test_place_of_others_is_refused(
    start: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    kind: str,
) -> None:
    # GIVEN a place that others could change
    place = tmp_path / "place"
    if kind == "open to others":
        place.mkdir(mode=0o755)
    elif kind == "a link":
        place.symlink_to(tmp_path)
    else:
        place.touch(mode=0o600)
    monkeypatch.setenv("SHIV_ROOT", str(place))
    # WHEN it is chosen
    with pytest.raises(SystemExit) as end:
        start.choose_place()
    # THEN one line says so
    assert end.value.code == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(place) in line and "SHIV_ROOT=DIRECTORY" in line
