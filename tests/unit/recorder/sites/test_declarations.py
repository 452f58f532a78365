# SPDX-License-Identifier: Apache-2.0
"""Declaration files: what may be in them, and what is said of those that are wrong."""

import os
import pwd
from pathlib import Path

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import Event, ObjectType, load, own_file, read
from biotrail.recorder.sites.expressions import ObjectScope
from biotrail.recorder.sites.types import PLACE, TypeTable

GOOD = """
[pairs.mine]
about = "From here to there"
begin = ["sys:one", { event = "sys:two", key = ["b"], where = "x == 1" }]
end = "sys:three"
key = "a|c"
by = ["d", "e"]
names = { 0 = "zero" }

[types.thing]
births = "make_thing"
deaths = ["drop_thing", "sys:gone"]
detail = "number"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pairs.toml"
    path.write_text(text)
    return path


def test_a_file_is_read(tmp_path: Path) -> None:
    # GIVEN a user's file with a pair and a type
    found = load(written(tmp_path, GOOD))
    # THEN both are there beside the ready-made ones, with the file that they come from
    mine = found.pairs["mine"]
    variant = mine.variants[0]
    assert variant.begins == (
        Event("sys:one"),
        Event("sys:two", ("b",), ("x == 1",)),
    )
    assert (variant.key, variant.by, mine.names) == (("a|c",), ("d", "e"), {0: "zero"})
    assert mine.origin == str(tmp_path / "pairs.toml")
    assert "softirq" in found.pairs
    thing = found.type("thing")
    assert (thing.births, thing.deaths) == (("make_thing",), ("drop_thing", "sys:gone"))


def test_a_users_pair_comes_before_the_ready_made_one(tmp_path: Path) -> None:
    # GIVEN a user's pair with a ready-made one's name  THEN it is the user's
    text = '[pairs.softirq]\nbegin = "a:b"\nend = "a:c"\nkey = "k"\n'
    assert load(written(tmp_path, text)).pairs["softirq"].variants[0].key == ("k",)


def test_a_struct_without_declaration_lives_from_any_hit() -> None:
    # GIVEN a struct that no file names  THEN any hit begins its life, and nothing ends it
    assert load(Path("/nonexistent/pairs.toml")).type("inode") == ObjectType("inode")
    assert ObjectType("inode").births == ("*",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = =\n", r"is no TOML: .*line 1"),
        ("[pair.x]\n", r"\[file\], pair: no such key; near: pairs; keys: pairs, types"),
        ("pairs = 3\n", r"\[pairs\]: is a number, not a table"),
        ("[pairs]\nx = 3\n", r"\[pairs.x\]: is a number, not a table"),
        ('[pairs."a b"]\n', r"\[pairs\], a b: is no name"),
        ("[pairs.x]\n", r"\[pairs.x\], begin: is missing"),
        ('[pairs.x]\nbegin = "a:b"\n', r"\[pairs.x\], end: is missing"),
        ('[pairs.x]\nbegin = "ab"\nend = "a:b"\nkey="k"\n', r"begin: 'ab' is no tracepoint: write"),
        ('[pairs.x]\nbegin = 7\nend = "a:b"\nkey="k"\n', r"event: is a number, not a text"),
        ('[pairs.x]\nbegin = "a:b"\nend = "a:b"\n', r"key: has to have one expression or 2"),
        (
            '[pairs.x]\nbegin = "a:b"\nend = "a:b"\nkey=["a","b","c"]\n',
            r"key: has to have one expression or 2",
        ),
        (
            '[pairs.x]\nbegin={event="a:b",key=["a","b"]}\nend = "a:b"\nkey="k"\n',
            r"key: .* as many for each event",
        ),
        (
            '[pairs.x]\nbegin = "a:b"\nend = "a:b"\nkey="k"\nway="kprobe"\n',
            r"way: 'kprobe' is neither typed nor format",
        ),
        (
            '[pairs.x]\nbegin = "a:b"\nend = "a:b"\nkey="k"\nshow="octal"\n',
            r"show: 'octal' is none of dec, signed",
        ),
        (
            '[pairs.x]\nbegin = "a:b"\nend = "a:b"\nkey="k"\nkeys="k"\n',
            r"\[pairs.x\], keys: no such key; near: key",
        ),
        (
            '[pairs.x]\nvariants=[{begin = "a:b", end = "a:b", key="k", wher="x"}]\n',
            r"\[pairs.x.variants\[0\]\], wher: no such key; near: where",
        ),
        ("[pairs.x]\nvariants=[]\n", r"variants: is no list of tables"),
        (
            '[pairs.x]\nbegin = "a:b"\nend = "a:b"\nkey="k"\nnames={a="b"}\n',
            r"names: 'a' is no number",
        ),
        ('[types.x]\nbirths = "a b"\n', r"\[types.x\], births: 'a b' is neither a function nor"),
        ('[types.x]\ndeaths = "*"\n', r"deaths: '\*' is neither"),
        ("[types.x]\ndetail = [3]\n", r"detail: is a number, not a text"),
        ('[types.x]\ndetail = ""\n', r"detail: is empty"),
        (f'[types.x]\nabout = "{"x" * 400}"\n', r"about: is longer than 300 characters"),
        ('[types.x]\nabout = "\\u001b[2J"\n', r"about: .* do not print"),
        ("[types.x]\nbirths = [" + '"a",' * 65 + "]\n", r"births: has more than 64"),
    ],
)
def test_what_is_wrong_is_one_message(tmp_path: Path, text: str, message: str) -> None:
    # GIVEN a file with one mistake  THEN its message has the file, the table and the key
    with pytest.raises(SiteError, match=message) as caught:
        read(written(tmp_path, text))
    assert str(caught.value).startswith(f"{tmp_path}/pairs.toml: ")
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_file_is_not_read(tmp_path: Path) -> None:
    # GIVEN a FIFO, which would never end, a directory, and a file that is far too large
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * (1 << 19))
    for name, message in (("fifo", "no regular file"), (".", "."), ("large", "more than 256 KiB")):
        with pytest.raises(SiteError, match=message):
            read(tmp_path / name)


def test_a_missing_file_is_an_error_only_where_it_was_named(tmp_path: Path) -> None:
    # GIVEN no file  THEN the user's own may be missing, another not
    assert read(tmp_path / "none", missing=True).pairs == {}
    with pytest.raises(SiteError, match="there is no such file"):
        read(tmp_path / "none")


def test_the_users_file_is_that_of_who_called_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    # GIVEN root by sudo of another user, with root's XDG_CONFIG_HOME
    user = next(entry for entry in pwd.getpwall() if entry.pw_uid)
    monkeypatch.setenv("SUDO_UID", str(user.pw_uid))
    monkeypatch.setenv("XDG_CONFIG_HOME", "/root/elsewhere")
    monkeypatch.setattr(declarations.os, "geteuid", lambda: 0)
    # THEN it is in that user's home
    assert own_file() == Path(user.pw_dir) / ".config/biotrail/pairs.toml"
    # AND without sudo XDG_CONFIG_HOME counts
    monkeypatch.delenv("SUDO_UID")
    assert own_file() == Path("/root/elsewhere/biotrail/pairs.toml")


def test_ready_made_types_fit_this_kernel() -> None:
    # GIVEN this kernel's types
    if not (PLACE / "vmlinux").exists():
        pytest.skip("this kernel has no BTF")
    types = TypeTable.kernel()
    for declared in read(declarations.READY_MADE).types.values():
        # THEN each declared type has an expression that compiles for each of its purposes, and
        # tracepoints or functions that begin and end a life
        scope = ObjectScope(types, declared.name)
        for alternatives in (declared.detail, declared.device, declared.process):
            assert not alternatives or any(compiles(scope, text) for text in alternatives)
        there = {t.name for t in types.functions_taking(declared.name)}
        there |= {t.name for t in types.tracepoints_taking(declared.name)}
        for sites in (declared.births, declared.deaths + declared.last):
            assert sites == ("*",) or any(site.rpartition(":")[2] in there for site in sites)


def compiles(scope: ObjectScope, text: str) -> bool:
    try:
        scope.value(text)
    except SiteError:
        return False
    return True
