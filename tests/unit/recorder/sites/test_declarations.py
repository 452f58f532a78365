# SPDX-License-Identifier: Apache-2.0
"""Declaration files: what may be in them, and what is said of those that are wrong."""

import os
import pwd
from pathlib import Path

import pytest

from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.follow_structs import SITE_BIRTH, SITE_DEATH
from biotrail.recorder.sites import declarations
from biotrail.recorder.sites.declarations import (
    READY_MADE,
    Event,
    ObjectType,
    Pair,
    load,
    own_file,
    parse,
    read,
    resolve,
)
from biotrail.recorder.sites.expressions import NO_VALUE
from biotrail.recorder.sites.following import KernelFunctions, plan
from biotrail.recorder.sites.types import PLACE, TypeTable
from tests.support.named_scopes import KERNELS, kernel_names, scopes_of
from tests.support.paths import ROOT

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


def test_a_file_is_read_beside_the_ready_made_ones(tmp_path: Path) -> None:
    # GIVEN a user's file with a pair and a type
    found = load(written(tmp_path, GOOD))
    # THEN both are there beside the ready-made ones, with the file that they come from
    mine = found.pairs["mine"]
    variant = mine.variants[0]
    assert variant.begins == (Event("sys:one"), Event("sys:two", ("b",), ("x == 1",)))
    assert (variant.key, variant.by, mine.names) == (("a|c",), ("d", "e"), {0: "zero"})
    assert mine.origin == str(tmp_path / "pairs.toml")
    assert "softirq" in found.pairs
    thing = found.types["thing"]
    assert (thing.births, thing.deaths) == (("make_thing",), ("drop_thing", "sys:gone"))
    # GIVEN a user's pair with a ready-made one's name  THEN it is the user's
    text = '[pairs.softirq]\nbegin = "a:b"\nend = "a:c"\nkey = "k"\n'
    assert load(written(tmp_path, text)).pairs["softirq"].variants[0].key == ("k",)
    # GIVEN a struct that no file names  THEN any hit begins its life, and nothing ends it
    assert "inode" not in load(Path("/nonexistent/pairs.toml")).types
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


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    # GIVEN a FIFO, which would never end, a directory, and a file that is far too large
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large").write_bytes(b"#" * (1 << 19))
    for name, message in (("fifo", "no regular file"), (".", "."), ("large", "more than 256 KiB")):
        with pytest.raises(SiteError, match=message):
            read(tmp_path / name)
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


@pytest.mark.skipif(not (PLACE / "vmlinux").exists(), reason="this kernel has no BTF")
def test_ready_made_types_fit_this_kernel() -> None:
    # GIVEN this kernel's types, and functions of which any may be attached
    types = TypeTable.kernel()
    any_function = KernelFunctions({}, frozenset(), None, frozenset())
    for declared in read(READY_MADE).types.values():
        # WHEN it is planned how a type is followed
        found = plan(types, declared, "session", any_function, 10_000)
        # THEN it has an expression that compiles for each of its purposes, and sites that begin and
        # end a life
        values = (found.detail, found.device, found.process)
        wanted = (declared.detail, declared.device, declared.process)
        assert [bool(value.text) for value in values] == [bool(texts) for texts in wanted]
        assert found.named(SITE_BIRTH) and found.named(SITE_DEATH)
        assert found.functions and found.tracepoints


# docs/declarations.md lists every ready-made pair and type, as declarations.toml has them.

PAGE = (ROOT / "docs" / "declarations.md").read_text()
READY = read(READY_MADE)


def pair_row(pair: Pair) -> str:
    """The row of a pair: its first variant's events, key, and the label of `by`."""
    variant = pair.variants[0]
    names = [*dict.fromkeys(event.event for event in variant.begins)]
    begins = ", ".join(f"`{name}`" for name in names)
    key = ", ".join(f"`{text}`" for text in variant.key).replace("|", "\\|")
    by = variant.by[0].partition("=")[0] if variant.by else ""
    return f"| `{pair.name}` | {pair.about} | {begins} | `{variant.end.event}` | {key} | {by} |"


def type_row(declared: ObjectType) -> str:
    detail = f"`{declared.detail[0]}`" if declared.detail else ""
    return f"| `{declared.name}` | {declared.about} | {detail} |"


def test_each_pair_and_type_has_its_row() -> None:
    # GIVEN the ready-made pairs and types  THEN the page has a row of each
    rows = [*map(pair_row, READY.pairs.values()), *map(type_row, READY.types.values())]
    assert [row for row in rows if row not in PAGE.splitlines()] == []


# Which variant of a declared pair a kernel has; the ready-made ones on stock kernels.

NOT_IN_5_10 = {
    "nvme": "5.10 has no types of modules; its format is not among the data",
    **dict.fromkeys(("ext4-fsync", "ext4-writepages", "jbd2-commit"), "likewise"),
    **dict.fromkeys(("f2fs-fsync", "scsi", "fuse"), "likewise"),
    **dict.fromkeys(("xfs-buffer", "xfs-buffer-lock", "xfs-log-space"), "likewise"),
    "lock": "since 5.19",
    "mmap-lock": "since 5.11",
}
ABSENT = {
    "5.10": {"iopf", *NOT_IN_5_10},
    "6.1": {"iopf", "fuse"},
    "6.12": {"iopf"},
    "7.2": {"iopf"},
}
"""iopf is of a module that Debian does not have; fuse's tracepoints came with 6.11."""
FAKE = {
    "a:begin": {"typed": ["rq", "count"], "format": ["dev", "sector"]},
    "a:again": {"typed": ["rq"], "format": ["dev", "sector", "why"]},
    "a:end": {"typed": ["rq", "error"], "format": ["dev", "sector", "status"]},
    "a:plain": {"format": ["dev"]},
}


def pair(**table: object) -> Pair:
    made = {"begin": "a:begin", "end": "a:end", **table}
    return parse({"pairs": {"p": made}}, "here").pairs["p"]


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("name", READY.pairs)
def test_ready_made_pairs_are_found_on_stock_kernels(kernel: str, name: str) -> None:
    # GIVEN the names of a kernel's tracepoints, their arguments and fields
    scopes = scopes_of(kernel_names(kernel))
    # THEN a pair is there, but for those that the kernel is known not to have
    if name in ABSENT[kernel]:
        with pytest.raises(SiteError, match=f"pair {name}: "):
            resolve(READY.pairs[name], scopes)
    else:
        assert resolve(READY.pairs[name], scopes).end.keys


@pytest.mark.parametrize(
    ("kernel", "name"),
    [
        (kernel, name)
        for kernel in KERNELS
        for name, ready in READY.pairs.items()
        if name not in ABSENT[kernel] and any(v.way != "typed" for v in ready.variants)
    ],
)
def test_variants_by_format_are_found_where_the_format_is_known(kernel: str, name: str) -> None:
    # GIVEN a kernel whose types cannot be used
    known = {e: {"format": w["format"]} for e, w in kernel_names(kernel).items() if "format" in w}
    # THEN pairs that have a variant by format are there
    assert resolve(READY.pairs[name], scopes_of(known)).way == "format"


def test_the_way_that_works_is_taken_and_what_is_missing_said_once() -> None:
    # GIVEN a pair whose first variant has a field that is not there
    made = pair(variants=[{"way": "typed", "key": "cmd"}, {"way": "format", "key": "sector"}])
    # THEN it is the second
    found = resolve(made, scopes_of(FAKE))
    assert (found.way, found.variant) == ("format", made.variants[1])
    # GIVEN keys that mean something by types, by the format, or by neither
    assert resolve(pair(key="rq"), scopes_of(FAKE)).way == "typed"
    assert resolve(pair(key="sector"), scopes_of(FAKE)).way == "format"
    # THEN of what is missing there are the reasons of each way
    with pytest.raises(SiteError, match=r"pair p: typed: .*no field tag.*; format: .*no field tag"):
        resolve(pair(key="tag"), scopes_of(FAKE))
    with pytest.raises(SiteError) as caught:
        resolve(pair(begin="a:gone", key="rq"), scopes_of(FAKE))
    assert str(caught.value) == "pair p: this kernel has no tracepoint a:gone"
    # AND a way that a tracepoint lacks
    made = pair(begin="a:plain", key="dev", way="typed")
    with pytest.raises(SiteError, match=r"a:plain has no types \(BTF\) on this kernel"):
        resolve(made, scopes_of(FAKE))
    # AND what no side has
    for wrong in ({"by": "x"}, {"device": ["x", "y"]}, {"where": "x == 1"}):
        with pytest.raises(SiteError, match=r"no field [xy]"):
            resolve(pair(key="rq", way="typed", **wrong), scopes_of(FAKE))


def test_sides_have_their_own_keys_conditions_and_alternatives() -> None:
    # GIVEN a pair that two events can begin, the second with a condition of its own
    made = pair(
        begin=["a:begin", {"event": "a:again", "where": ["why == 1"], "key": ["dev"]}],
        key="sector|status",
    )
    found = resolve(made, scopes_of(FAKE))
    # THEN each has its key, and the condition is the second's alone
    assert [side.event for side in found.begins] == ["a:begin", "a:again"]
    assert [side.keys[0].text for side in found.begins] == ["sector", "dev"]
    assert [len(side.conditions) for side in found.begins] == [0, 1]
    assert [side.choosing for side in found.begins] == [0, 1]
    assert found.end.keys[0].text == "status"
    # GIVEN alternatives: of `by` the begin has the second, of `device` only the end the first
    made = pair(key="rq", by=["nothing", "count"], device=["error"], where=["error != 0"])
    found = resolve(made, scopes_of(FAKE))
    # THEN each is taken from the side that has it, the condition too
    assert (found.by, found.device) == ("count", "error")
    assert found.begins[0].by.text == "count"
    assert found.end.by is NO_VALUE
    assert found.begins[0].device is NO_VALUE
    assert found.end.device.text == "error"
    assert [len(found.begins[0].conditions), len(found.end.conditions)] == [0, 1]


def test_labels_names_and_form_of_values() -> None:
    # GIVEN alternatives of which one has a label, and names of its values
    made = pair(key="rq", by=["x=nothing", "how many = count"], names={"1": "one"})
    found = resolve(made, scopes_of(FAKE))
    # THEN it is shown by the label
    assert (found.by, found.begins[0].by.text) == ("how many", "count")
    assert found.begins[0].by.names == {1: "one"}
    # GIVEN names of values, and another form
    found = resolve(
        pair(key=["rq", "count|error"], by="count", names={"1": "one"}, show="symbol"),
        scopes_of(FAKE),
    )
    # THEN `by` and the key of the same name have them, other values not
    side = found.begins[0]
    assert (side.by.names, side.by.format) == ({1: "one"}, "symbol")
    assert (side.keys[1].names, side.keys[0].format) == ({1: "one"}, "dec")
    # GIVEN a pair whose process is not the one that runs
    found = resolve(pair(key="rq", process="rq->tgid|error"), scopes_of(FAKE))
    # THEN each side has its expression
    assert (found.begins[0].process.text, found.end.process.text) == ("rq->tgid", "error")
