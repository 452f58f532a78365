# SPDX-License-Identifier: Apache-2.0
"""What is called as archives are, and is none, is named as what it is."""

from pathlib import Path

import pytest

from biotrail.cli.cluster import look
from biotrail.cli.fleet import find
from biotrail.converters.analysis.fleet.tree import LeftOut
from biotrail.recorder.schema.errors import ConversionError
from tests.support.cli_runner import Cli
from tests.support.hostile_places import put
from tests.support.shipped_logs import write_log

WRONG = {
    "dangling.parquet": "is a link to nowhere, which is not there",
    "fifo.parquet": "is a FIFO",
    "fifo.biotrail": "is a FIFO",
    "socket.parquet": "is a socket",
    "directory.parquet": "is a directory",
    "link.parquet": "is a directory",
}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with a log, and with what only has the names of archives."""
    place = tmp_path / "place"
    (place / "more.parquet").mkdir(parents=True)
    write_log(place / "run.biotrail", 1)
    write_log(place / "more.parquet" / "run.biotrail", 2)
    put(place / "dangling.parquet", "symbolic link", Path("nowhere"))
    for name in ("fifo.parquet", "fifo.biotrail"):
        put(place / name, "FIFO", place)
    put(place / "socket.parquet", "socket", place)
    (place / "directory.parquet").mkdir()
    put(place / "link.parquet", "symbolic link", place / "directory.parquet")
    return place


@pytest.mark.parametrize("given", ["", "*"])
def test_a_fleet_names_what_is_no_file(place: Path, given: str) -> None:
    # GIVEN such a directory WHEN it is looked through, or by a glob
    found = find([str(place / given)])
    # THEN all that is no file is looked at, and named; the logs are found
    said = {one.file: one.why for one in map(look, found) if isinstance(one, LeftOut)}
    assert said == {str(place / name): why for name, why in WRONG.items()}
    logs = [str(place / "more.parquet" / "run.biotrail"), str(place / "run.biotrail")]
    assert sorted(set(found) - set(said)) == logs


def test_one_that_is_given_is_named(place: Path) -> None:
    # GIVEN the path of one of them WHEN it is given THEN it is named as well
    for name in ("dangling.parquet", "fifo.parquet", "socket.parquet"):
        [path] = find([str(place / name)])
        assert look(path) == LeftOut(str(place / name), WRONG[name])
    with pytest.raises(ConversionError, match=r"directory\.parquet: a directory without archives"):
        find([str(place / "directory.parquet")])


@pytest.mark.parametrize("command", ["archive", "verify", "info"])
@pytest.mark.parametrize("name", ["dangling", "fifo", "socket", "directory"])
def test_other_commands_name_them_too(place: Path, cli: Cli, command: str, name: str) -> None:
    # GIVEN one of them WHEN a command is to read it
    done = cli(command, place / f"{name}.parquet")
    # THEN one message says what it is, and nothing is waited for
    assert done.status == 1
    said = done.out + done.err
    assert said.count("\n") == 1
    assert f"{name}.parquet: " in said
    assert WRONG[f"{name}.parquet"] in said
    assert "Traceback" not in said
