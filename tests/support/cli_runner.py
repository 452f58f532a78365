# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process."""

from dataclasses import dataclass
from pathlib import Path

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
