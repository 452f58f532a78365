# SPDX-License-Identifier: Apache-2.0
"""What import-linter's contracts cannot say: that they name every room, and one import name."""

import ast
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = SETTINGS["tool"]["importlinter"]["contracts"]


LINKED = ("recorder", "converters", "bpf")
"""Folders at the top of the tree that biotrail/ has links to."""
TOPS = (*LINKED, "biotrail", "tests", "benchmarks", "scripts")


def layered(name: str) -> set[str]:
    """Modules that the layer contract of this name lists."""
    contract = next(entry for entry in CONTRACTS if entry["name"] == name)
    return {module.strip() for layer in contract["layers"] for module in layer.split("|")}


def rooms(top: str) -> set[str]:
    """Packages and modules directly below a folder of biotrail/, by their import names."""
    found = [path for path in (ROOT / "biotrail" / top).iterdir() if path.name[0] not in "_."]
    packages = {path.name for path in found if (path / "__init__.py").exists()}
    modules = {path.stem for path in found if path.suffix == ".py"}
    return {f"biotrail.{top.replace('/', '.')}.{name}" for name in packages | modules}


@pytest.mark.parametrize(
    ("top", "floors"),
    [
        ("recorder", "The floors of the recorder"),
        ("converters", "The floors of the converters"),
        ("cli", "The floors of the command line"),
        ("converters/outputs/perfetto", "The floors of Perfetto's traces"),
        ("converters/analysis/report", "The floors of reports"),
    ],
)
def test_the_floors_name_every_room(top: str, floors: str) -> None:
    # GIVEN a folder's modules and packages  THEN the contract has a floor for each
    assert rooms(top) == layered(floors)


def test_the_floors_and_outputs_name_every_room() -> None:
    # GIVEN the packages of what is printed  THEN the contract has a floor for each
    packages = {path.parent.name for path in (ROOT / "biotrail" / "text").glob("*/__init__.py")}
    expected = {f"biotrail.text.{name}" for name in packages}
    assert expected == layered("The floors of what is printed")
    # GIVEN the packages of outputs  THEN the contract of independence names each
    contract = next(c for c in CONTRACTS if c["name"] == "Outputs do not know each other")
    packages = {p.parent.name for p in (ROOT / "converters" / "outputs").glob("*/__init__.py")}
    assert {f"biotrail.converters.outputs.{name}" for name in packages} == set(contract["modules"])


def test_modules_have_one_import_name() -> None:
    # GIVEN the links in biotrail/  THEN each leads to the folder at the top of the tree
    for name in LINKED:
        assert (ROOT / "biotrail" / name).resolve() == ROOT / name
    # GIVEN every module of the tree, tests and benchmarks too
    sources = [p for top in TOPS for p in (ROOT / top).rglob("*.py") if not through_link(p)]
    assert len(sources) > 500
    # WHEN their imports are read  THEN none is by the bare name of a folder: that would be a
    # second module of the same file
    assert {str(path.relative_to(ROOT)): names for path in sources if (names := bare(path))} == {}


def through_link(path: Path) -> bool:
    return path.relative_to(ROOT).parts[:2] in {("biotrail", name) for name in LINKED}


def bare(path: Path) -> set[str]:
    """Modules that the file imports by the bare name of a top folder."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name.partition(".")[0] in LINKED}


def test_values_that_stand_for_nothing_are_defined_once() -> None:
    # GIVEN every module of the package  THEN only the schema's assigns NO_SECTOR and NO_TAG
    once, found = {"NO_SECTOR", "NO_TAG"}, []
    for path in (p for top in (*LINKED, "biotrail") for p in (ROOT / top).rglob("*.py")):
        if through_link(path):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            targets = node.targets if isinstance(node, ast.Assign) else []
            names = {t.id.lstrip("_") for t in targets if isinstance(t, ast.Name)}
            found += [(path.name, name) for name in sorted(once & names)]
    assert sorted(found) == [("records.py", "NO_SECTOR"), ("records.py", "NO_TAG")]


def test_no_test_imports_another() -> None:
    # GIVEN every module of tests  THEN what it imports of tests is no test module
    found = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{a.name}" for a in node.names] + [str(node.module)]
            found += [
                (path.name, name)
                for name in names
                if name.startswith("tests.") and ".test_" in name
            ]
    assert found == []
