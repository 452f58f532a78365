# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process, and the data of the pages that it writes."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from biotrail.cli.main import main


@dataclass
class Done:
    status: int
    out: str
    err: str


class Cli:
    """cli("info", path) → exit status, standard output, standard error."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *arguments: str | Path) -> Done:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(argument) for argument in arguments])
        said = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, said.out, said.err)


def page_text(page: Path) -> str:
    """The JSON that a page holds, as it stands there."""
    [found] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page.read_text("utf-8"), re.S
    )
    assert isinstance(found, str)
    return found


def page_data(page: Path) -> Any:
    """The data that a page holds."""
    return json.loads(page_text(page))
