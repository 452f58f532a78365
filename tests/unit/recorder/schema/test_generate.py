# SPDX-License-Identifier: Apache-2.0
"""bpf/records.h and the tables of docs/log-format.md follow the schema."""

import ctypes
import shutil
import subprocess

import pytest

from biotrail.recorder.schema import generate
from biotrail.recorder.schema.errors import TraceError
from biotrail.recorder.schema.records import RECORDS
from tests.support.paths import ROOT


def test_what_is_committed_is_up_to_date(capsys):
    # GIVEN the tree WHEN it is checked
    status = generate.main(["--check", "--root", str(ROOT)])
    # THEN nothing is stale
    assert (status, capsys.readouterr().out) == (0, "")


def test_a_stale_header_is_shown(tmp_path, capsys):
    # GIVEN a tree whose header was changed by hand
    generate.main(["--root", str(tmp_path)])
    header = tmp_path / generate.HEADER
    header.write_text(header.read_text().replace("BT_Q = 1,", "BT_Q = 2,"))
    capsys.readouterr()
    # WHEN it is checked
    status = generate.main(["--check", "--root", str(tmp_path)])
    # THEN the difference and the remedy are printed, and the file is left alone
    said = capsys.readouterr()
    assert status == 1
    assert "-\tBT_Q = 2," in said.out
    assert "+\tBT_Q = 1," in said.out
    assert "biotrail.recorder.schema.generate" in said.err
    assert "BT_Q = 2," in header.read_text()


def test_prose_around_the_tables_is_kept(tmp_path, capsys):
    # GIVEN a document with prose around the marks
    document = tmp_path / generate.DOCUMENT
    document.parent.mkdir()
    document.write_text(
        f"# Title\n\nBefore.\n\n{generate.BEGIN_MARK}\nold\n{generate.END_MARK}\n\nAfter.\n"
    )
    # WHEN it is generated
    assert generate.main(["--root", str(tmp_path)]) == 0
    # THEN only what is between the marks is new
    text = document.read_text()
    assert text.startswith("# Title\n\nBefore.\n\n" + generate.BEGIN_MARK)
    assert text.endswith(generate.END_MARK + "\n\nAfter.\n")
    assert "\nold\n" not in text
    assert "\n    bio         u64           address of the struct bio: " in text
    # GIVEN a document without the marks
    document.write_text("# Title\n")
    # WHEN it is checked
    status = generate.main(["--check", "--root", str(tmp_path)])
    # THEN the message names the marks
    assert status == 1
    assert generate.BEGIN_MARK in capsys.readouterr().err
    with pytest.raises(TraceError, match="lacks the lines"):
        generate.document_text("# Title\n")


def test_every_record_has_its_struct_and_asserts():
    # GIVEN the header
    text = generate.header_text()
    # WHEN each record is looked up THEN its struct, its size and each of its offsets are there
    for record in RECORDS:
        name = f"bt_{record.kind.name.lower()}"
        assert f"struct {name} {{" in text
        assert f"sizeof(struct {name}) == {record.size}," in text
        for field in record.fields:
            assert f"__builtin_offsetof(struct {name}, {field.name}) == " in text
    # GIVEN all structs
    names = [f"bt_{record.kind.name.lower()}" for record in RECORDS]
    # WHEN they are compared THEN each is its own, below the project's prefix
    assert len(set(names)) == len(names)
    assert all(name.startswith("bt_") for name in names)


def test_a_compiler_agrees_with_the_layout(tmp_path):
    # GIVEN a C compiler of this machine
    compiler = shutil.which("clang") or shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler")
    source = tmp_path / "layout.c"
    source.write_text(f'#include <linux/types.h>\n#include "{ROOT / generate.HEADER}"\n')
    # WHEN it compiles the header
    done = subprocess.run(
        [compiler, "-std=gnu11", "-fsyntax-only", source], capture_output=True, text=True
    )
    # THEN no static assert fails
    assert done.returncode == 0, done.stderr


def test_the_recorders_structs_are_the_programs() -> None:
    # GIVEN the declared structs
    for struct in generate.STRUCTS:
        # WHEN their classes are compared with the header
        text = generate.shared_text()
        # THEN it asserts the size of each, and every member's place
        assert f"sizeof(struct {struct.name}) == {ctypes.sizeof(struct.ctype)}" in text
        for member in struct.members:
            place = getattr(struct.ctype, member.name).offset
            assert f"offsetof(struct {struct.name}, {member.name}) == {place}" in text
