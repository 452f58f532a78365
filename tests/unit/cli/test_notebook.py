# SPDX-License-Identifier: Apache-2.0
"""docs/notebook.ipynb runs, and its plots are made.

What it shows is renewed by: jupyter execute --inplace docs/notebook.ipynb
"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.support.paths import ROOT

NOTEBOOK = ROOT / "docs" / "notebook.ipynb"


def outputs(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


def plots(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_the_notebook_runs_and_shows_plots(tmp_path: Path) -> None:
    # GIVEN the notebook as it is shown
    shown = nbformat.read(NOTEBOOK, as_version=4)
    there, said = plots(shown), len(outputs(shown))
    # WHEN all of it is run (a cell that fails raises)
    run = NotebookClient(shown, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    run.execute()
    # THEN it has as many plots and outputs as before
    assert plots(run.nb) == there >= 2
    assert len(outputs(run.nb)) == said
