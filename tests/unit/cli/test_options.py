# SPDX-License-Identifier: Apache-2.0
"""Options of commands: what values they take, what they refuse, and what they open."""

import csv
import gzip
import io
import json
import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import click
import pytest
import zstandard

from biotrail.cli.dump import kinds
from biotrail.cli.measuring.server import parse_address
from biotrail.cli.options.compressing import compressed, in_thread
from biotrail.cli.options.cuts import parse_moment
from biotrail.cli.options.record_arguments import follow_options, given
from biotrail.cli.options.record_keeping import trigger
from biotrail.cli.options.task_options import pod
from biotrail.cli.pairs import PairArguments, lines
from biotrail.cli.record import NOT_PASSED_ON
from biotrail.cli.record import command as record
from biotrail.converters.events.files import Labels
from biotrail.recorder.filters.filters import Filters
from biotrail.recorder.probes.maps import admission
from biotrail.recorder.probes.rings.ring import RingSizes
from biotrail.recorder.schema.errors import SiteError
from biotrail.recorder.schema.payloads import KernelEnums
from biotrail.recorder.sites.declarations import READY_MADE, load
from biotrail.recorder.sites.declarations import read as read_declarations
from biotrail.text import units
from biotrail.text.values import as_read, name, percent_from, text
from tests.fuzz.command_options import ALL
from tests.support import file_logs
from tests.support.cli_runner import Cli
from tests.support.named_scopes import kernel_names, scopes_of
from tests.support.paths import SAMPLE
from tests.support.perfetto_check import read
from tests.support.stack_logs import START

# Every option of every command refuses what its field cannot hold, and takes names as bytes.

NO_NUMBERS = ("nan", "inf", "-inf", "1e999", "-1", "1" + "0" * 20, "1" + "0" * 20 + "s", "9" * 4301)
"""What is no number that any field holds."""
NO_TEXT = "a\udcff"
"""Bytes that are no UTF-8, as Python has them."""


def parser(parameter: click.Parameter) -> object:
    """The function that is the parameter's type; None: the type is a class."""
    return getattr(parameter.type, "func", None)


def is_text(parameter: click.Parameter) -> bool:
    return parser(parameter) is text


def is_name(parameter: click.Parameter) -> bool:
    return parser(parameter) in (name, pod) or isinstance(parameter.type, click.Path)


def is_number(parameter: click.Parameter) -> bool:
    """Whether the value is neither text nor a name nor one of several words."""
    # Letters of kinds may spell `nan`.
    words = isinstance(parameter.type, click.Choice | click.types.BoolParamType)
    is_word = words or is_text(parameter) or parser(parameter) is kinds
    return not is_word and not is_name(parameter)


def parameters(chosen: Callable[[click.Parameter], bool]) -> Iterator[object]:
    """(command, parameter) of all commands' parameters that are chosen."""
    for path, command in ALL:
        for one in command.params:
            if chosen(one):
                yield pytest.param(command, one, id=" ".join((*path, one.opts[0])))


def parsed(command: click.Command, parameter: click.Parameter, value: str) -> object:
    """The parameter's value as the command gets it."""
    with click.Context(command) as context:
        words = [value] if parameter.multiple or parameter.nargs < 0 else value
        return parameter.type_cast_value(context, words)


def test_each_parameter_has_a_type_with_a_range() -> None:
    # GIVEN all commands THEN no parameter is any text, or any number
    for path, command in ALL:
        for one in command.params:
            where = (*path, *one.opts)
            assert not isinstance(one.type, click.types.StringParamType), where
            assert not isinstance(one.type, click.FloatRange), where
            assert type(one.type) is not click.IntRange, (where, "units.Count has ends")


@pytest.mark.parametrize(("command", "parameter"), list(parameters(is_number)))
def test_no_option_takes_what_is_no_number(
    command: click.Command, parameter: click.Parameter
) -> None:
    # GIVEN an option with a range WHEN it gets what no field holds THEN that is a usage error
    for value in NO_NUMBERS:
        if value == "-1" and parser(parameter) is parse_moment:
            continue  # the last second
        with pytest.raises(click.UsageError):
            parsed(command, parameter, value)


@pytest.mark.parametrize(("command", "parameter"), list(parameters(is_text)))
def test_text_is_utf_8(command: click.Command, parameter: click.Parameter) -> None:
    # GIVEN an option that is text WHEN it gets other bytes THEN that is a usage error
    with pytest.raises(click.UsageError, match="is not UTF-8"):
        parsed(command, parameter, NO_TEXT)


@pytest.mark.parametrize(("command", "parameter"), list(parameters(is_name)))
def test_names_are_any_bytes(command: click.Command, parameter: click.Parameter) -> None:
    # GIVEN an option that names a file, process or cgroup WHEN it gets any bytes THEN it has them
    assert parsed(command, parameter, NO_TEXT) in (NO_TEXT, (NO_TEXT,))


@pytest.mark.parametrize(
    ("parse", "value"),
    [
        (follow_options, "request,every=4294967296"),
        (follow_options, "request,every=18446744073709551616"),
        (follow_options, "request,every=nan"),
        (follow_options, "request,lives=9223372036854775808"),
        (follow_options, "request,slower=100000000000000000000s"),
        (follow_options, f"request,max-functions={'9' * 4301}"),
        (trigger, "slow=1e9s"),
        (trigger, "slow=0"),
        (trigger, "depth=2147483648"),
        (trigger, f"depth={'9' * 4301}"),
        (parse_address, f"127.0.0.1:{'9' * 4301}"),
        (percent_from(), "nan"),
        (percent_from(50, 99.9), "nan%"),
        (units.size_from(), "9999999999G"),
        (units.duration_from(), "1000000001s"),
        (units.duration_from(units.ABOVE_ZERO), "0"),
        (partial(units.Count().convert, param=None, ctx=None), "9223372036854775808"),
    ],
)
def test_numbers_within_values_have_ranges_too(parse: Callable[[str], object], value: str) -> None:
    # GIVEN a value with a number in it that its field does not hold THEN it is a usage error
    with pytest.raises(click.UsageError):
        parse(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *(("10", 10), ("10s", 10), ("250ms", 0.25), ("5min", 300), ("2h", 7200), (".5 s", 0.5)),
        *(("100us", 1e-4), ("0.1ms", 1e-4), ("1000000000", 1e9), (".5s", 0.5)),
    ],
)
def test_durations_are_exact(text: str, seconds: float) -> None:
    # GIVEN a duration as people write it WHEN it is read THEN it is in seconds
    assert units.seconds(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("65536", 65536), ("512K", 512 << 10), ("8M", 8 << 20), ("8MiB", 8 << 20), ("1.5g", 3 << 29)],
)
def test_sizes(text: str, size: int) -> None:
    # GIVEN a size as people write it WHEN it is read THEN it is in bytes
    assert units.bytes_of(text) == size


@pytest.mark.parametrize("ns", [0, 1, 999, 1000, 10_000, 123_456_789, 10**9, 10**18])
def test_durations_become_options_that_read_the_same(ns: int) -> None:
    # GIVEN a duration WHEN it is written as an option's word THEN it is read as the same
    word = units.as_option(ns / 1e9)
    assert "e" not in word
    assert round(units.seconds(word) * 1e9) == ns


def test_a_task_name_of_any_bytes_is_compared_as_bytes() -> None:
    # GIVEN a name that is no UTF-8 WHEN it is a filter THEN the programs have its bytes
    filters = Filters(comms=(os.fsdecode(b"a\xff"),))
    enums: KernelEnums = {"op_enum": {}, "flag_bits": {}}
    found = admission.config(RingSizes.choose(1), [], filters, enums)
    assert bytes(found.comms[0])[:3] == b"a\xff\0"
    # AND on reading it is what such a name looks like in a log
    assert as_read(os.fsdecode(b"a\xff")) == "a\N{REPLACEMENT CHARACTER}"


def test_a_huge_number_in_the_declarations_is_one_message(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # GIVEN a file of declarations with a number of 4301 digits
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("SUDO_UID", raising=False)
    (tmp_path / "biotrail").mkdir()
    (tmp_path / "biotrail" / "pairs.toml").write_text(f"[pairs.x]\nkey={'9' * 4301}\n")
    # WHEN pairs are listed THEN it is wrong usage, told in a line
    done = cli("pairs", "--list")
    assert done.status == 2
    assert "pairs.toml: is no TOML" in done.err and done.err.count("\n") == 1


def test_an_option_given_without_its_value_reaches_the_recorder() -> None:
    # GIVEN --path without parts WHEN the printer's recorder gets its words THEN it has all parts
    context = record.make_context("record", ["--print", "--path", "--duration", "5s"])
    assert given(context, NOT_PASSED_ON) == ["--duration=5s", "--path=all"]


# Files have the names that people have for them (`--labels`).

TABLE = "base/16384/16397,accounts\n\n'/srv/*/wal','the log'\n".replace("'", '"')


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with I/O of /srv/base/16384/16397, /srv/x/wal and /srv/x/other."""
    paths = ((7, [b"base", b"16384", b"16397"]), (8, [b"x", b"wal"]), (9, [b"x", b"other"]))
    records: list[bytes] = []
    for number, (inode, names) in enumerate(paths):
        records += file_logs.names(START, inode, *names)
        records += file_logs.bio(number, inode)
    path = tmp_path / "x.biotrail"
    path.write_bytes(file_logs.log(records))
    (tmp_path / "labels.csv").write_text(TABLE)
    return path


@pytest.mark.parametrize(
    ("path", "label"),
    [
        ("/srv/base/16384/16397", "accounts"),
        ("sda1:/base/16384/16397", "accounts"),
        ("base/16384/16397", "accounts"),
        ("/srv/base/16384/16397 (deleted)", "accounts"),
        ("/srv/base/16384/16397_vm", "accounts"),
        ("/srv/base/16384/16397.1", "accounts"),
        ("/srv/base/16384/163971", None),
        ("/srv/xbase/16384/16397", None),
        ("/var/lib/mysql/shop/orders.ibd", "shop orders"),
        ("/etc/fstab", "the table"),
        ("/chroot/etc/fstab", None),
        ("/x/y/z.tmp", "scratch"),
        ("/x/y/special.tmp", "special"),
    ],
)
def test_a_pattern_is_of_a_path_or_its_end(path: str, label: str | None) -> None:
    # GIVEN patterns with and without wildcards, of whole paths and of ends
    labels = Labels(
        [
            ("base/16384/16397", "accounts"),
            ("base/16384/16397[._]*", "accounts"),
            ("shop/*.ibd", "shop orders"),
            ("/etc/fstab", "the table"),
            ("*.tmp", "scratch"),
            ("special.tmp", "special"),
            ("special.tmp", "another"),
        ]
    )
    # WHEN a path is looked up / THEN exact ones win, then the first
    assert labels.of(path) == label


def test_every_output_has_labels(cli: Cli, log: Path) -> None:
    # GIVEN a log with files, and labels of two of them
    labels = ("--labels", log.parent / "labels.csv")
    shown = {"/srv/base/16384/16397 (accounts)", "/srv/x/wal (the log)", "/srv/x/other"}
    # WHEN it is reported as text, by file / THEN labels stand behind the paths
    text = cli("report", "--by", "file", *labels, log).out
    assert all(name in text for name in shown)
    # AND for programs in a field of their own
    told = json.loads(cli("report", "--json", *labels, log).out)
    assert {one["file"]: one.get("label") for one in told["files"]} == {
        "/srv/base/16384/16397": "accounts",
        "/srv/x/wal": "the log",
        "/srv/x/other": None,
    }
    rows = csv.DictReader(io.StringIO(cli("report", "--csv", *labels, log).out))
    assert {row["label"] for row in rows if row["section"] == "files"} == {
        "accounts",
        "the log",
        "",
    }
    # AND in the list of slow I/O and in the trace
    found = json.loads(cli("slow", "--json", *labels, log).out)
    assert {one["io"]["file"] for one in found["ios"]} == shown
    trace = log.parent / "x.pftrace"
    assert cli("convert", *labels, log, "-o", trace).status == 0
    assert {bio.args["file"] for bio in read(trace.read_bytes()).slices("bio")} == shown


def test_a_labels_files_are_chosen_and_its_text_escaped(cli: Cli, log: Path) -> None:
    # WHEN I/O of a label is asked for / THEN it is that of its files
    labels = ("--labels", log.parent / "labels.csv")
    found = json.loads(cli("slow", "--json", "--file", "accounts", *labels, log).out)
    assert [one["io"]["file"] for one in found["ios"]] == ["/srv/base/16384/16397 (accounts)"]
    # GIVEN a label that would move the terminal / WHEN shown / THEN it is text
    (log.parent / "labels.csv").write_text("wal,\x1b[2J\n")
    out = cli("report", "--by", "file", "--labels", log.parent / "labels.csv", log).out
    assert r"\x1b[2J" in out
    assert "\x1b" not in out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"base/1\n", "labels.csv:1: a line of labels has a pattern of paths, a comma and a label"),
        (b"a,b\nc,\n", "labels.csv:2: a line of labels has"),
        (b"a,b,c\n", "labels.csv:1: a line of labels has"),
        (b"\xff,b\n", "labels.csv: the labels cannot be read: "),
        (None, "labels.csv: the labels cannot be read: No such file or directory"),
    ],
)
def test_bad_labels_are_refused(cli: Cli, log: Path, text: bytes | None, message: str) -> None:
    # GIVEN a file that is no table of labels, or none / WHEN it is given
    path = log.parent / "labels.csv"
    path.unlink() if text is None else path.write_bytes(text)
    done = cli("report", "--labels", path, log)
    # THEN one message says where
    assert done.status == 1
    assert message in done.err
    assert len(done.err.splitlines()) == 1


# What the words and options of `biotrail pairs` mean.

NOTHING = PairArguments(
    key=None, by=None, where=(), devices=(), device_field=None,
    filters=Filters(), interval=None, duration=None, as_json=False,
    output=None, force=False,
    buffer_size=None, max_open=64, by_values=64, max_cpu=None, quiet=False,
)  # fmt: skip
KNOWN = read_declarations(READY_MADE)


def test_two_tracepoints_are_a_pair_by_their_key() -> None:
    # GIVEN two tracepoints and a key of two fields
    asked = replace(NOTHING, key="dev, sector", by="dev", where=("bytes > 0",), devices=("vda",))
    # WHEN they are named
    (found,) = asked.pairs(("block:block_rq_issue", "block_rq_complete"), KNOWN)
    # THEN the pair is theirs, named after both, with the device's usual field
    variant = found.variants[0]
    assert found.name == "block_rq_issue-block_rq_complete"
    assert variant.key == ("dev", "sector")
    assert (variant.by, variant.device, variant.where) == (("dev",), ("dev",), ("bytes > 0",))


def test_pairs_are_named_changed_and_suggested() -> None:
    # GIVEN two declared names WHEN they are named THEN both are, as they are declared
    found = NOTHING.pairs(("softirq,block",), KNOWN)
    assert found == [KNOWN.pairs["softirq"], KNOWN.pairs["block"]]
    # GIVEN --by and --where WHEN a pair is named THEN each of its variants has them
    (found,) = replace(NOTHING, by="@cpu", where=("vec == 3",)).pairs(("softirq",), KNOWN)
    assert all(one.by == ("@cpu",) for one in found.variants)
    assert all(one.where[-1] == "vec == 3" for one in found.variants)
    # AND names of the declared --by are not those of the other field
    assert found.names == {}
    # GIVEN a misspelt name WHEN it is named THEN the message has what is near
    with pytest.raises(SiteError, match="did you mean softirq"):
        NOTHING.pairs(("sofirq",), KNOWN)


@pytest.mark.parametrize(
    ("asked", "words", "said"),
    [
        (NOTHING, (), "see --list"),
        (NOTHING, ("a:b", "a:c"), "two tracepoints need --key"),
        (replace(NOTHING, key="x"), ("a:b",), "name the end, too"),
        (replace(NOTHING, key="x,y,z"), ("a:b", "a:c"), "one field, or two"),
        (NOTHING, ("a", "b", "c"), "a command goes behind --"),
    ],
)
def test_wrong_use_is_said(asked: PairArguments, words: tuple[str, ...], said: str) -> None:
    # GIVEN words that name no pair WHEN they are read THEN the usage error says what is missing
    with pytest.raises(click.UsageError, match=said):
        asked.pairs(words, KNOWN)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"force": True}, "name it with -o"),
        ({"output": "x", "as_json": True}, "nothing is printed meanwhile"),
        ({"device_field": "dev"}, "is for -d"),
    ],
)
def test_contradicting_options_are_refused(changed: dict[str, object], said: str) -> None:
    # GIVEN options that contradict each other WHEN they are checked THEN one message says so
    with pytest.raises(click.UsageError, match=said):
        replace(NOTHING, **changed).check()


# The list of declared pairs says which of them a kernel has.


def test_a_pair_that_the_kernel_lacks_has_its_reason(tmp_path: Path) -> None:
    # GIVEN a user's pair beside the ready-made ones, and a 6.1 kernel, which has no fuse events
    own = tmp_path / "pairs.toml"
    own.write_text('[pairs.mine]\nabout = "Mine"\nbegin = "a:b"\nend = "a:c"\nkey = "k"\n')
    # WHEN they are listed
    shown = list(lines(load(own), scopes_of(kernel_names("6.1"))))
    # THEN the user's has its file, and what is missing is said below each such pair alone
    at = next(n for n, line in enumerate(shown) if line.startswith("mine "))
    assert shown[at].endswith(f"Mine  ({own})")
    assert shown[at + 1].strip() == "a:b to a:c"
    assert shown[at + 2].strip() == "not here: this kernel has no tracepoint a:b"
    assert sum("not here" in line for line in shown) == 3  # mine, fuse, iopf


def test_where_the_kernel_cannot_be_asked_nothing_is_said_of_it() -> None:
    # GIVEN a user who may not look into tracefs  THEN pairs are listed all the same
    shown = list(lines(load(Path("/nonexistent")), None))
    assert not any("not here" in line for line in shown)
    begins = next(line for line in shown if "sched_wakeup_new" in line)
    assert begins.strip() == (
        "sched:sched_wakeup or sched:sched_wakeup_new or sched:sched_switch to sched:sched_switch"
    )


# Outputs compressed by a thread beside what writes them: the same bytes, and no error is lost.

DATA = bytes(range(256)) * 40_000  # ten pieces


def written(data: bytes, *sizes: int) -> list[bytes]:
    """Return the data cut into parts of the sizes, in turn."""
    parts, at = [], 0
    while at < len(data):
        size = sizes[len(parts) % len(sizes)]
        parts.append(data[at : at + size])
        at += size
    return parts


def test_bytes_arrive_in_order_whatever_becomes_of_them() -> None:
    # GIVEN small, large and empty writes WHEN a thread passes them on
    out = io.BytesIO()
    with in_thread(out) as stream:
        for part in written(DATA, 100, 3_000_000, 65_537):
            assert stream.write(part) == len(part)
        assert stream.write(b"") == 0
    # THEN all is there, the stream is open, and the thread is gone
    assert out.getvalue() == DATA
    assert "compress" not in [thread.name for thread in threading.enumerate()]
    # GIVEN a buffer that is used again WHEN it is written each time
    out, buffer = io.BytesIO(), bytearray(1000)
    with in_thread(out) as stream:
        for value in range(3):
            buffer[:] = bytes([value]) * 1000
            stream.write(memoryview(buffer))
    # THEN each write had its own content
    assert out.getvalue() == b"".join(bytes([value]) * 1000 for value in range(3))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_compressed_bytes_are_those_of_one_thread(ending: str) -> None:
    # GIVEN the same data, written in different parts WHEN it is compressed
    outs = []
    for sizes in ((100, 70_000), (len(DATA),)):
        out = io.BytesIO()
        with compressed(out, f"a{ending}") as stream:
            for part in written(DATA, *sizes):
                stream.write(part)
        outs.append(out.getvalue())
    # THEN the bytes are the same, those that one thread writes, and give the data back
    alone = io.BytesIO()
    if ending == ".gz":
        with gzip.GzipFile("", "wb", 6, alone, mtime=0) as packed:
            packed.write(DATA)
        assert gzip.decompress(outs[0]) == DATA
    else:
        with zstandard.ZstdCompressor(level=9).stream_writer(alone, closefd=False) as writer:
            writer.write(DATA)
        assert zstandard.ZstdDecompressor().stream_reader(outs[0]).readall() == DATA
    assert outs == [alone.getvalue()] * 2


class _Full(io.RawIOBase):
    """Has room for some bytes."""

    def __init__(self, room: int) -> None:
        self._room = room

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        self._room -= len(data)  # type: ignore[arg-type]
        if self._room < 0:
            raise OSError(28, "No space left on device")
        return len(data)  # type: ignore[arg-type]


@pytest.mark.parametrize("room", [0, 5_000_000])
def test_an_error_of_the_thread_is_raised_where_the_bytes_come_from(room: int) -> None:
    # GIVEN a disk that is full at once, or later WHEN more is written
    with pytest.raises(OSError, match="No space left"), in_thread(_Full(room)) as stream:  # type: ignore[arg-type]
        for part in written(DATA, 100_000):
            stream.write(part)
    # THEN the error came, and the thread is gone
    assert "compress" not in [thread.name for thread in threading.enumerate()]


def test_errors_end_the_thread_and_are_raised() -> None:
    # GIVEN a few bytes, which are passed on when the block ends, and no room for them
    with pytest.raises(OSError, match="No space left"), in_thread(_Full(1)) as stream:  # type: ignore[arg-type]
        # WHEN they are written THEN the end of the block raises
        stream.write(b"abc")
    # GIVEN a stream without room WHEN the one who writes fails
    with pytest.raises(KeyError), in_thread(_Full(0)) as stream:  # type: ignore[arg-type]
        stream.write(DATA)
        raise KeyError("its own")
    # THEN that is the error, and the thread is gone
    assert "compress" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_converted_and_compressed_is_what_was_converted(
    ending: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # GIVEN a log WHEN it is converted with and without compression
    cli = Cli(capsys)
    plain, packed = tmp_path / "a.pftrace", tmp_path / f"b.pftrace{ending}"
    assert cli("convert", SAMPLE, "-o", plain).status == 0
    assert cli("convert", SAMPLE, "-o", packed).status == 0
    # THEN the one is the other compressed
    with packed.open("rb") as stream:
        reader = (
            gzip.GzipFile(fileobj=stream)
            if ending == ".gz"
            else zstandard.ZstdDecompressor().stream_reader(stream)
        )
        assert reader.read() == plain.read_bytes()
