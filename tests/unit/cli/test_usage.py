# SPDX-License-Identifier: Apache-2.0
"""What does not go together, or makes no sense, ends every command with 2 and the reason."""

import shlex
from pathlib import Path

import pytest

from tests.support.cli_runner import Cli
from tests.support.paths import DATA, SAMPLE

LOGS = {"LOG": SAMPLE, "OTHER": DATA / "calls" / "ext4-on-loop.biotrail"}
WRONG = [
    ("no-such-command", "No such command 'no-such-command'.\n"),
    ("qqqqqq x", "No such command 'qqqqqq'.\n"),
    ("reprot x", "No such command 'reprot'. Did you mean 'report'?"),
    ("recrod x", "No such command 'recrod'. Did you mean 'record'?"),
    # archive
    ("archive", "give LOGs, or --watch DIR --to DESTINATION"),
    ("archive --watch .", "--watch needs --to"),
    ("archive --to x a.biotrail", "need --watch DIR"),
    ("archive --once a.biotrail", "need --watch DIR"),
    ("archive --watch . --to x a.biotrail", "--watch takes no LOG"),
    ("archive --watch . --to x -o y", "--watch takes no LOG"),
    # convert
    ("convert -", "a log from standard input needs -o OUT"),
    ("convert x.biotrail -o x.txt", "the ending of x.txt names no format"),
    ("convert x.biotrail -o ''", "--output': must not be empty"),
    ("convert x.biotrail -o - --format otf2", "otf2 output is a directory: give -o OUT"),
    ("convert LOG OTHER -o x.pftrace --ftrace --detail bios", "which --detail bios has not"),
    ("convert LOG --with t.pftrace -o x.otf2", "--with is for Perfetto traces"),
    ("convert LOG --with t.pftrace -o x.pftrace --max-size 1M", "--with writes one file"),
    ("convert LOG --with - -o x.pftrace", "--with reads its trace twice, so it cannot be a pipe"),
    (
        "convert LOG OTHER --with t -o x.pftrace --max-size 1M",
        "several recordings go into one file",
    ),
    ("convert LOG OTHER --with t -o x.otf2", "go into one Perfetto trace only"),
    ("convert LOG OTHER --with t -o x.pftrace --alone", "exclude each other"),
    ("convert LOG OTHER --with t", "give -o OUT"),
    ("convert LOG LOG -o x.pftrace --image map", "give --guest-of"),
    ("convert LOG --guest-of x -o x.pftrace", "joins two recordings"),
    ("convert LOG LOG --guest-of x --with t -o x", "--guest-of and --with exclude each other"),
    # cuts
    ("convert LOG -o x.pftrace --from soon", "'soon' is no time: write 2.5s"),
    ("convert LOG -o x.pftrace --to 25:00:00", "'25:00:00' is no time"),
    ("convert LOG -o x.pftrace --from 'last week'", "'last week' is no time"),
    ("convert LOG -o x.pftrace --from 2026-13-01", "is no time"),
    ("convert LOG -o x.pftrace --from 5s --to 5s", "--to 5s is not after --from 5s"),
    ("convert LOG -o x.pftrace --around 5s --from 1s", "leave out --from and --to"),
    ("convert LOG -o x.pftrace --window 5s", "give --around TIME"),
    ("convert LOG -o x.pftrace --around 5s --window 0", "not between 1ns"),
    ("convert LOG -o x.pftrace --op dance", "'dance' is not one of 'discard'"),
    ("convert LOG -o x.pftrace --slowest 0", "'--slowest': 0 is not in the range"),
    ("convert LOG -o x.pftrace --pid me", "'--pid': 'me' is not a valid integer"),
    # info, dump
    ("info", "Missing argument 'LOG...'"),
    ("dump --kind @ x.biotrail", "'@' is no kind of record; there are: Q G M"),
    # metrics
    ("metrics --keep 5s", "--keep needs -o FILE"),
    ("metrics --keep 5s -o -", "--keep needs -o FILE"),
    ("metrics -o a.biotrail", "give --keep 30s, too"),
    ("metrics --by unit", "--by is of figures that the model adds up"),
    ("metrics --blame", "--blame is of figures that the model adds up"),
    ("metrics --events light --blame=file", "is not one of 'owner'"),
    ("metrics --op read", "with filters give --events light"),
    ("metrics --keep 5s -o a.biotrail --op read", "leave the filters out"),
    ("metrics --listen 0.0.0.0:1", "no loopback address"),
    # record
    ("record --no-such-option", "No such option"),
    ("record --duration soon", "'soon' is not a duration: write 10s"),
    ("record --duration 0", "'0' is not between 1ns and 1000000000s"),
    ("record --buffer-size many", "'many' is not a size: write 65536"),
    ("record --events none", "'none' is not one of 'light'"),
    ("record --level 99", "99 is not in the range 0<=x<=19"),
    ("record -o ''", "--output': must not be empty"),
    ("record --below", "--below needs -d: without it every device is recorded"),
    ("record --follow request --backend bcc", "--follow needs the core backend"),
    ("record --backend bcc --path", "--path needs the core backend"),
    ("record --path --call-over soon", "'--call-over': 'soon' is not a duration"),
    ("record --files --backend bcc -o x", "--files needs the core backend"),
    ("record --user-stacks -o x", "--user-stacks needs --stacks"),
    ("record --stacks --backend bcc -o x", "--stacks needs the core backend"),
    ("record --json", "--json needs --print"),
    ("record --print -o -", "give -o FILE"),
    ("record --print --rotate 1G", "leave out --rotate"),
    ("record --print --keep 10s", "leave out --rotate and --keep"),
    # report
    ("report ''", "'LOG...': must not be empty"),
    ("report --html '' x.biotrail", "'--html': must not be empty"),
    ("report --interval 0 LOG", "'--interval': '0' is not between 1us"),
    ("report --interval x LOG", "'x' is not a duration"),
    ("report --by weather LOG", "'weather' is not one of 'process'"),
    ("report --json --csv LOG", "--json and --csv: give one of them"),
    ("report --blame --csv LOG", "--blame has no lines in CSV: use --json"),
    ("report --blame --failed LOG", "--blame tells of all I/O"),
    ("report --blame --slower-than 1ms LOG", "--blame tells of all I/O"),
    ("report --html out.html --json LOG", "--html has all groups"),
    ("report --html out.html --csv LOG", "--html has all groups"),
    ("report --html out.html --by cpu LOG", "--html has all groups"),
    ("report --html out.html --interval 1s LOG", "--html has all groups"),
    ("report LOG --guest-of x", "joins two recordings"),
    # slow
    ("slow LOG --guest-of x", "joins two recordings"),
    ("slow LOG LOG --guest-of x --calls", "leave out --calls"),
    # stacks
    ("stacks LOG --flame out.png", ".svg or .html"),
    ("stacks LOG --flame out", ".svg or .html"),
    ("stacks LOG --flame -", ".svg or .html"),
    ("stacks LOG --flame out.svg --folded", "--folded, --json and --flame: give one of them"),
    ("stacks LOG --flame out.svg --json", "--folded, --json and --flame: give one of them"),
    ("stacks LOG --flame out.svg --offsets", "only the text and --json have offsets"),
    ("stacks LOG --flame out.svg -n3", "--flame shows all stacks: leave out --sort"),
    ("stacks LOG --flame out.svg --sort=p99", "--flame shows all stacks: leave out --sort"),
    # top
    ("top --interval 10ms", "'10ms' is not between 1s"),
    ("top -o -", "biotrail record -o - writes to standard output"),
    ("top --count 0", "'--count': 0 is not in the range"),
    ("top --duration 0s", "'0s' is not between 1ns"),
    ("top --blame=file", "'file' is not one of 'owner'"),
    # tree
    ("tree LOG --merged --functions", "give one of them"),
    ("tree LOG --json --folded", "--json: the trees and --functions have it"),
    ("tree LOG --flame x.html", "give a name that ends in .svg"),
    ("tree LOG --object here", "'here' is not a number: write 2048, or 0xffff9b6f83a40000"),
]


@pytest.mark.parametrize(("command", "said"), WRONG, ids=[command for command, _ in WRONG])
def test_wrong_usage_is_told_and_nothing_is_done(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    # GIVEN a directory WHEN a command is wrong there
    monkeypatch.chdir(tmp_path)
    done = cli(*(LOGS.get(word, word) for word in shlex.split(command)))
    # THEN the status is 2, the reason is on standard error, and no file is made
    assert (done.status, done.out) == (2, "")
    assert said in done.err or said in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []
