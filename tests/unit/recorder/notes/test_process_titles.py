# SPDX-License-Identifier: Apache-2.0
"""Which parts of a command line a log keeps: titles, interpreters and scripts, and no secrets."""

from collections import deque
from pathlib import Path

import pytest

from biotrail.recorder.log import Segment
from biotrail.recorder.notes import titles
from biotrail.recorder.notes.titles import (
    MOST_CHARACTERS,
    MOST_OF_COMMAND_LINE,
    Process,
    TitleWatch,
    look,
    title_of,
)
from biotrail.recorder.schema.payloads import TitlesNote
from biotrail.recorder.schema.records import Kind
from tests.support import log_samples
from tests.support.chunks_by_hand import name_records
from tests.support.stack_logs import START, record

SECRET = "s3cret"
TITLES = [
    ("postgres", "postgres: checkpointer ", "postgres: checkpointer"),
    (
        "postgres",
        "postgres: main: alice shop [local] idle",
        "postgres: main: alice shop [local] idle",
    ),
    ("postgres", "/usr/lib/postgresql/17/bin/postgres|-D|/data", ""),
    ("nginx", "nginx: worker process", "nginx: worker process"),
    (
        "nginx",
        "nginx: master process /usr/sbin/nginx -g pid /x;",
        "nginx: master process /usr/sbin/nginx",
    ),
    # What a title leaves of the arguments that it is written over is none of it.
    ("x", f"x: waiting|ord|--password={SECRET}", "x: waiting"),
    ("redis-server", "redis-server *:6379", "redis-server *:6379"),
    (
        "redis-server",
        "/usr/bin/redis-server 127.0.0.1:6379",
        "/usr/bin/redis-server 127.0.0.1:6379",
    ),
    ("chrome", f"/opt/chrome/chrome --type=renderer --key {SECRET}", ""),
    ("x", f"x: {SECRET}=1 more", ""),
    ("celery", f"celery: worker amqp://guest:{SECRET}@host", "celery: worker"),
    ("y", "/srv/My Programs/y", ""),
    ("python3", f"python3|/srv/backup.py|--token|{SECRET}", "python3 backup.py"),
    ("backup.py", f"/usr/bin/python3|/srv/backup.py|{SECRET}", "python3 backup.py"),
    ("python3", "python3.11|-u|-W|error|-Xdev|a.py", "python3.11 a.py"),
    ("python3", f"python3|-m|celery|-A|{SECRET}", "python3 -m celery"),
    ("python3", f"python3|-c|print('{SECRET}')", ""),
    ("python3", f"python3|--unknown|{SECRET}", ""),
    ("python3", "python3", ""),
    ("python3", "python3|-", ""),
    (
        "java",
        f"java|-Dpassword={SECRET}|-Xmx1g|-jar|/opt/kafka.jar|{SECRET}",
        "java -jar kafka.jar",
    ),
    ("java", f"java|-cp|/a:{SECRET}|kafka.Kafka|{SECRET}", "java kafka.Kafka"),
    ("java", "java|--add-opens=java.base/java=X|--module|a/b.C", "java --module b.C"),
    ("java", f"java|--unknown-option|{SECRET}|Main", ""),
    ("java", f"java|@/run/{SECRET}", ""),
    ("bash", f"bash|/etc/cron.daily/dpkg|{SECRET}", "bash dpkg"),
    ("sh", f"sh|-c|mysql -p{SECRET}", ""),
    ("sh", "sh|-e|-o|pipefail|/srv/run.sh", "sh run.sh"),
    ("bash", "-bash", ""),
    ("perl", f"perl|-w|-I/lib|/usr/bin/spamd|{SECRET}", "perl spamd"),
    ("perl", f"perl|-e|{SECRET}", ""),
    ("ruby", f"ruby|-rbundler|bin/puma|{SECRET}", "ruby puma"),
    ("php", f"php|-d|x={SECRET}|artisan|queue:work", "php artisan"),
    ("node", f"node|--max-old-space-size=10|server.js|{SECRET}", "node server.js"),
    ("node", f"node|-e|{SECRET}", ""),
    ("curl", f"curl|https://user:{SECRET}@host", ""),
    ("mysqldump", f"mysqldump|-p{SECRET}", ""),
    ("cat", "", ""),
]
"""Name of a process, its arguments between bars, its title."""


@pytest.mark.parametrize(("comm", "line", "title"), TITLES)
def test_a_title_has_no_more_than_says_which_program_it_is(
    comm: str, line: str, title: str
) -> None:
    # GIVEN a process's arguments / WHEN asked for its title / THEN no secret is in it
    assert title_of(line.split("|") if line else [], comm) == title
    assert SECRET not in title


def process(proc: Path, comm: str, line: bytes, thread: str | None = None) -> None:
    """Makes the files of process 7, with thread 7, or 8 too, as /proc has them."""
    place = proc / "7"
    names = {"7": comm} | ({"8": thread} if thread else {})
    for tid, name in names.items():
        (place / "task" / tid).mkdir(parents=True)
        (place / "task" / tid / "comm").write_text(f"{name}\n")
    (place / "comm").write_text(f"{comm}\n")
    (place / "cmdline").write_bytes(line)


def test_a_process_is_looked_up_by_one_of_its_threads(tmp_path: Path) -> None:
    # GIVEN a process that wrote a title over its arguments, with a thread of another name
    process(tmp_path, "postgres", b"postgres: walwriter \0\0\0\0", "worker")
    # WHEN looked up by each / THEN its name and title are known
    expected = Process("postgres", "postgres: walwriter")
    assert look(7, 7, "postgres", False, str(tmp_path)) == expected
    assert look(7, 8, "worker", False, str(tmp_path)) == expected
    # WHEN the thread has another name, is not there, or the process is not / THEN nothing is
    assert look(7, 8, "other", False, str(tmp_path)) is None
    assert look(7, 9, "worker", False, str(tmp_path)) is None
    assert look(6, 6, "postgres", False, str(tmp_path)) is None


def test_whole_command_lines_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    # GIVEN a process with arguments, of which one is no UTF-8
    process(tmp_path, "curl", b"curl\0-u\0alice:x\xff\0")
    # WHEN its whole command line is asked for / THEN it is there, and otherwise not
    assert look(7, 7, "curl", True, str(tmp_path)) == Process("curl", "curl -u alice:x\ufffd")
    assert look(7, 7, "curl", False, str(tmp_path)) == Process("curl", "")
    # GIVEN a thread without a command line / WHEN looked up / THEN it has no title
    process(tmp_path / "k", "kworker/0:1", b"")
    assert look(7, 7, "kworker/0:1", False, str(tmp_path / "k")) == Process("kworker/0:1", "")


def test_long_titles_are_cut(tmp_path: Path) -> None:
    # GIVEN a title and a command line without end / WHEN looked up / THEN they are cut
    process(tmp_path, "x", b"x: " + b"y" * 100_000)
    for whole, most in ((False, MOST_CHARACTERS), (True, MOST_OF_COMMAND_LINE)):
        found = look(7, 7, "x", whole, str(tmp_path))
        assert found is not None
        assert len(found.title) == most
        assert found.title.endswith("y…")


# The notes of titles: whose are looked up, when, and what is noted of them.


class Machine:
    """Processes by id; counts the looks."""

    def __init__(self, **processes: Process) -> None:
        self.processes = {int(pid[1:]): one for pid, one in processes.items()}
        self.looks: list[int] = []

    def look(self, pid: int, thread: int, comm: str, whole: bool) -> Process | None:
        self.looks.append(pid)
        return self.processes.get(pid)


def seen(watch: TitleWatch, *threads: tuple[int, int, bytes]) -> TitlesNote | None:
    """Has the watch see records of threads (process, thread, name); returns the note."""
    tasks = [record(Kind.TASK, START, tid=t, tgid=p, comm=c) for p, t, c in threads]
    data = log_samples.ring(tasks, 0) if tasks else b""
    return watch.changes(deque([name_records([Segment(0, 0, 0, data)]).tasks]))


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look is at known processes, too, and takes as long as it takes."""
    monkeypatch.setattr(titles, "AGAIN_NS", 0)
    monkeypatch.setattr(titles, "_LOOK_NS", 1 << 60)


CHECKPOINTER = Process("postgres", "postgres: checkpointer")


def test_a_process_is_noted_once_and_forgotten_when_it_is_gone() -> None:
    # GIVEN a process with a title, and one without
    machine = Machine(p7=CHECKPOINTER, p9=Process("cat", ""))
    watch = TitleWatch(False, machine.look)
    # WHEN threads of both are named / THEN the one with a title is noted, and not again
    note = seen(watch, (7, 7, b"postgres"), (7, 8, b"io worker"), (9, 9, b"cat"))
    assert note == {"7": {"comm": "postgres", "title": "postgres: checkpointer"}}
    assert seen(watch, (7, 7, b"postgres"), (9, 9, b"cat")) is None
    assert seen(watch) is None
    # GIVEN a process with a title / WHEN it is gone / THEN it is not looked at for ever
    machine = Machine(p7=CHECKPOINTER)
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"postgres"))
    machine.processes.clear()
    assert [seen(watch) for _ in range(5)] == [None] * 5
    assert len(machine.looks) < 5


def test_a_title_that_is_set_later_or_of_another_process_is_noted() -> None:
    # GIVEN a process that has no title at its first I/O
    machine = Machine(p7=Process("gunicorn", "python3 gunicorn"))
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"gunicorn"))
    # WHEN it sets one / THEN that is noted without another record
    machine.processes[7] = Process("gunicorn", "gunicorn: master [shop]")
    assert seen(watch) == {"7": {"comm": "gunicorn", "title": "gunicorn: master [shop]"}}
    # GIVEN a process with a title, and later another one of its number, without
    machine = Machine(p7=CHECKPOINTER)
    watch = TitleWatch(False, machine.look)
    seen(watch, (7, 7, b"postgres"))
    machine.processes[7] = Process("dd", "")
    # WHEN that is named / THEN it is noted that it has none
    assert seen(watch, (7, 7, b"dd")) == {"7": {"comm": "dd", "title": ""}}


def test_titles_that_always_change_are_noted_a_few_times() -> None:
    # GIVEN a process whose title says what it does at the moment
    machine = Machine(p7=Process("x", "x: 0"))
    watch = TitleWatch(False, machine.look)
    notes = [seen(watch, (7, 7, b"x"))]
    # WHEN it changes a hundred times THEN eight are noted, and it is not looked at any more
    for number in range(1, 100):
        machine.processes[7] = Process("x", f"x: {number}")
        notes.append(seen(watch))
    assert [note for note in notes if note] == notes[:8]
    assert len(machine.looks) < 20
