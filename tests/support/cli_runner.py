# SPDX-License-Identifier: Apache-2.0
"""The command line, run in this process."""

import json
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

    def json(self, command: str, *arguments: str | Path) -> Any:
        """Return what a command says with --json."""
        done = self(command, "--json", *arguments)
        assert done.status == 0, done.err
        return json.loads(done.out)
