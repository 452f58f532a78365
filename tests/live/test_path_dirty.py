# SPDX-License-Identifier: Apache-2.0
"""Who dirtied, read or swapped a bio's page, and what each bio is for, on three file systems."""

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from biotrail.converters.events.path_column import NO_CALL
from biotrail.converters.events.tables import NEVER, PageKind
from biotrail.converters.lifecycles.purposes import Purpose, purposes
from biotrail.recorder.host import cgroups
from biotrail.recorder.schema.syscalls import PAGE_FAULT
from tests.support import devices
from tests.support.devices import MakeLoop
from tests.support.path_disks import SYSTEMS, Disk, mounted
from tests.support.path_tables import RecordedPath, number_of, operations, recorded_path
from tests.support.record_command import biotrail, remove_cgroup

pytestmark = pytest.mark.usefixtures("needs_bpf")

MIB = 1 << 20
SIZE = 320 * MIB
"""Of a device that XFS accepts."""
READ, WRITE = 0, 1
V1_LIMIT = "memory.limit_in_bytes"


@pytest.fixture
def make_disk(make_loop: MakeLoop, tmp_path: Path) -> Iterator[Callable[[str], Disk]]:
    with ExitStack() as stack:
        yield lambda system: stack.enter_context(
            mounted(make_loop(size=SIZE), system, tmp_path / f"disk-{system}")
        )


def files_of(found: RecordedPath) -> np.ndarray:
    """Per bio, the name of the file whose pages it carries; empty: none."""
    files = found.trace.context.files
    names = [
        "" if f < 0 or files[f].device else Path(files[f].path).name
        for f in found.bios.file.tolist()
    ]
    return np.array(names, dtype=object)


def purposes_of(found: RecordedPath) -> np.ndarray:
    return purposes(found.bios, found.trace.tasks.table(), found.trace.context)


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_bio_has_its_writer_and_its_purpose(
    tmp_path: Path, make_disk: Callable[[str], Disk], system: str
) -> None:
    # GIVEN two programs that write a file each through the page cache, and a third that has all
    # written back, by kernel threads, makes files, syncs, and reads a large one from its beginning
    disk, log = make_disk(system), tmp_path / "log"
    disk.prepare("large", 8 * MIB)
    program = disk.program("""
def write(text):
    if os.fork() == 0:
        name(text)
        fd = os.open(f"{here}/{text}", os.O_RDWR | os.O_CREAT)
        for at in range(0, 4 << 20, 65536):
            os.pwrite(fd, os.urandom(65536), at)
        os._exit(0)

for _ in range(3):
    write("writer-a")
    write("writer-b")
    assert os.wait()[1] == os.wait()[1] == 0
    subprocess.run(["sync", "-f", here], check=True)
name("the-load")
for number in range(64):
    fd = os.open(f"{here}/small-{number}", os.O_RDWR | os.O_CREAT)
    os.write(fd, os.urandom(8192))
    os.fsync(fd)
fd = os.open(f"{here}/large", os.O_RDONLY)
while os.read(fd, 65536):
    pass
subprocess.run(["sync", "-f", here], check=True)
""")
    disk.record(log, program, "--path=all", "--files")
    # WHEN the files' bios are read
    found = recorded_path(log)
    kinds, names, op = purposes_of(found), files_of(found), operations(found.bios)
    writes = op == WRITE
    total = charged = 0
    for name in ("writer-a", "writer-b"):
        chosen = writes & (names == name)
        bios, paths = found.with_paths(chosen)
        known = paths.dirtied != NEVER
        # THEN none is charged to another program
        assert set(paths.dirty_comm[known].tolist()) == {name.encode()}
        assert (paths.dirtied <= bios.queue)[known].all()
        total += int(chosen.sum())
        charged += int(known.sum())
        # AND all are said to be data of the page cache
        assert set(kinds[chosen].tolist()) == {Purpose.DATA}
        assert (found.bios.page[chosen] == PageKind.FILE).all()
    # AND most are charged, though others' threads queued them; the rest is not known
    written = int(found.bios.bytes[writes & np.isin(names, ["writer-a", "writer-b"])].sum())
    assert written >= 3 * 2 * 4 * MIB
    assert charged >= 0.99 * total
    # AND reads of the file are readahead, but for the first at most, by the reader in its call
    large = (names == "large") & (op == READ)
    assert int(found.bios.bytes[large].sum()) == 8 * MIB
    assert set(kinds[large].tolist()) <= {Purpose.DATA, Purpose.READAHEAD}
    assert (kinds[large] == Purpose.READAHEAD).sum() >= 1
    assert set(found.bio_comms[large].tolist()) == {"the-load"}
    _, paths = found.with_paths(large & (kinds == Purpose.READAHEAD))
    assert set(paths.call.tolist()) == {number_of("read")}
    # AND what was written to the files is data
    small = np.array([name.startswith("small-") for name in names.tolist()]) & (op == WRITE)
    assert int(found.bios.bytes[small].sum()) >= 64 * 8192
    assert set(kinds[small].tolist()) == {Purpose.DATA}
    # AND the rest that was written is metadata, and the journal where the file system has one
    rest = (op == WRITE) & (names == "") & (found.bios.bytes > 0)
    expected = {"ext4": {Purpose.JOURNAL}, "xfs": {Purpose.JOURNAL}, "btrfs": {Purpose.METADATA}}
    seen = set(kinds[rest].tolist())
    assert expected[system] <= seen <= {Purpose.JOURNAL, Purpose.METADATA}
    journal = rest & (kinds == Purpose.JOURNAL)
    assert (int(journal.sum()) >= 64) == (system != "btrfs")
    assert not (kinds == Purpose.SWAP).any()


def test_a_writer_whose_place_was_taken_is_not_known(
    tmp_path: Path, make_disk: Callable[[str], Disk]
) -> None:
    # GIVEN one thread that writes a file under each of five names, of which the table of writers
    # has place for four (BT_WRITER_WAYS), before anything is written back
    disk, log = make_disk("ext4"), tmp_path / "log"
    program = disk.program("""
for number in range(5):
    name(f"writer-{number}")
    fd = os.open(f"{here}/writer-{number}", os.O_RDWR | os.O_CREAT)
    os.pwrite(fd, os.urandom(65536), 0)
subprocess.run(["sync", "-f", here], check=True)
""")
    disk.record(log, program, "--path=all", "--files")
    # WHEN the files' bios are read
    found = recorded_path(log)
    names, writes = files_of(found), operations(found.bios) == WRITE
    charged = []
    for number in range(5):
        chosen = writes & (names == f"writer-{number}")
        assert chosen.any()
        _, paths = found.with_paths(chosen)
        charged.append(set(paths.dirty_comm[paths.dirtied != NEVER].tolist()))
    # THEN the first one's are not charged to the last, who has its place, but to nobody
    assert charged == [set(), *({f"writer-{number}".encode()} for number in range(1, 5))]


def test_the_cgroup_is_that_of_the_writer(tmp_path: Path, make_disk: Callable[[str], Disk]) -> None:
    # GIVEN two programs, of which one writes in a cgroup of its own
    where = cgroups.hierarchy()
    if where is None:
        pytest.skip("needs cgroups: no hierarchy")
    group = Path(where.point) / f"biotrail-dirty-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"needs cgroups: {error}")
    disk, log = make_disk("ext4"), tmp_path / "log"
    program = disk.program(
        """
for text, group in (("apart", sys.argv[2]), ("common", "")):
    if os.fork() == 0:
        name(text)
        if group:
            open(f"{group}/cgroup.procs", "w").write("0")
        fd = os.open(f"{here}/{text}", os.O_RDWR | os.O_CREAT)
        os.pwrite(fd, os.urandom(1 << 20), 0)
        os._exit(0)
    assert os.wait()[1] == 0
subprocess.run(["sync", "-f", here], check=True)
""",
        group,
    )
    try:
        disk.record(log, program, "--path=all", "--files")
        number = group.stat().st_ino
    finally:
        remove_cgroup(group)
    # WHEN write-back is read
    found = recorded_path(log)
    names = files_of(found)
    # THEN it has the writer's cgroup, by its number and its path
    groups = {}
    for name in ("apart", "common"):
        _, paths = found.with_paths((names == name) & (operations(found.bios) == WRITE))
        assert (paths.dirtied != NEVER).any()
        (groups[name],) = set(paths.dirty_cgroup[paths.dirtied != NEVER].tolist())
    assert groups["apart"] == number != groups["common"] != 0
    assert found.trace.context.cgroups[number].endswith(group.name)
    # AND the report groups by it
    report = biotrail("report", "--by", "writer", "--json", log).stdout
    assert f'"{found.trace.context.cgroups[number]}"' in report


MOVES = """
name("the-load")
size = 256 << 10
fd = os.open(f"{here}/to-map", os.O_RDWR)
memory = mmap.mmap(fd, size)
assert sum(memory[at] for at in range(0, size, 4096)) == 64 * ord("x")
memory[:] = b"y" * size
memory.flush()
import socket, threading
mine, yours = socket.socketpair()
def drain(take):
    left = size
    while left:
        left -= len(take(left))
reader = threading.Thread(target=drain, args=(yours.recv,))
reader.start()
fd, sent = os.open(f"{here}/to-send", os.O_RDONLY), 0
while sent < size:
    sent += os.sendfile(mine.fileno(), fd, sent, size - sent)
reader.join()
out, into = os.pipe()
reader = threading.Thread(target=drain, args=(lambda left: os.read(out, left),))
reader.start()
fd, sent = os.open(f"{here}/to-splice", os.O_RDONLY), 0
while sent < size:
    sent += os.splice(fd, into, size - sent, offset_src=sent)
reader.join()
fd, new = os.open(f"{here}/to-copy", os.O_RDONLY), os.open(f"{here}/new", os.O_RDWR | os.O_CREAT)
sent = 0
while sent < size:
    sent += os.copy_file_range(fd, new, size - sent)
os.fsync(new)
"""


def test_each_way_to_move_a_files_pages_has_its_name(
    tmp_path: Path, make_disk: Callable[[str], Disk]
) -> None:
    # GIVEN a program that moves files in every way that goes through the page cache
    disk, log = make_disk("ext4"), tmp_path / "log"
    for name in ("to-map", "to-send", "to-splice", "to-copy"):
        disk.prepare(name, 256 << 10)
    program = disk.program(MOVES)
    disk.record(log, program, "--path=all", "--files")
    # WHEN bytes are added up by file, operation and call
    found = recorded_path(log)
    names, op = files_of(found), operations(found.bios)
    bytes_of: dict[tuple[str, int, int], int] = {}
    for name in ("to-map", "to-send", "to-splice", "to-copy", "new"):
        for operation in (READ, WRITE):
            bios, paths = found.with_paths((names == name) & (op == operation))
            for call, size in zip(paths.call.tolist(), bios.bytes.tolist(), strict=True):
                if call != NO_CALL:
                    key = name, operation, call
                    bytes_of[key] = bytes_of.get(key, 0) + size
    # THEN each has the call that moved them
    whole = 256 << 10
    assert bytes_of == {
        ("to-map", READ, PAGE_FAULT): whole,
        ("to-map", WRITE, number_of("msync")): whole,
        ("to-send", READ, number_of("sendfile")): whole,
        ("to-splice", READ, number_of("splice")): whole,
        ("to-copy", READ, number_of("copy_file_range")): whole,
        ("new", WRITE, number_of("fsync")): whole,
    }


@pytest.fixture
def little_memory(needs_root: None) -> Iterator[Path]:
    """A cgroup whose processes have 32 MiB of memory."""
    found = [(Path("/sys/fs/cgroup"), "memory.max"), (Path("/sys/fs/cgroup/memory"), V1_LIMIT)]
    for parent, limit in found:
        group = parent / f"biotrail-swap-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            if (group / limit).exists():
                (group / limit).write_text(str(32 * MIB))
                yield group
                return
        finally:
            remove_cgroup(group)
    pytest.skip("needs cgroups: no memory controller")


@pytest.mark.alone
def test_swap_is_charged_to_the_thread_that_faults(
    tmp_path: Path, make_disk: Callable[[str], Disk], little_memory: Path
) -> None:
    # GIVEN a file that is swapped to, and a program that uses more memory than it has
    disk, log = make_disk("ext4"), tmp_path / "log"
    swap = disk.mount / "swap"
    with swap.open("wb") as stream:
        os.posix_fallocate(stream.fileno(), 0, 96 * MIB)
    swap.chmod(0o600)
    devices.run("mkswap", swap)
    devices.run("sync", "-f", disk.mount)
    try:
        devices.run("swapon", swap)
    except RuntimeError as error:
        pytest.skip(f"no swap here: {error}")
    program = disk.program(
        """
open(f"{sys.argv[2]}/cgroup.procs", "w").write("0")
name("the-load")
size = 48 << 20
memory = mmap.mmap(-1, size)
for at in range(0, size, 4096):
    memory[at:at + 8] = os.urandom(8)
assert sum(memory[at] for at in range(0, size, 4096)) > 0
""",
        little_memory,
    )
    try:
        disk.record(log, program, "--path=all")
    finally:
        devices.run("swapoff", swap)
    # WHEN its bios are read
    found = recorded_path(log)
    kinds, op = purposes_of(found), operations(found.bios)
    swapped = kinds == Purpose.SWAP
    # THEN pages that went out and came in again are swap
    for operation in (READ, WRITE):
        assert int(found.bios.bytes[swapped & (op == operation)].sum()) >= 8 * MIB
    # AND those that came in were read by the thread that needed them, mostly by page fault
    reads = swapped & (op == READ)
    assert (found.bio_comms[reads] == "the-load").mean() >= 0.99
    _, paths = found.with_paths(reads)
    assert (paths.call == PAGE_FAULT).mean() >= 0.9
    # AND all that moved data is swap, or of the file system
    rest = set(kinds[~swapped & (found.bios.bytes > 0)].tolist())
    assert rest <= {Purpose.JOURNAL, Purpose.METADATA}
