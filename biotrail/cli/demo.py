# SPDX-License-Identifier: Apache-2.0
"""`biotrail demo`: records real I/O, converts it and prints a short report."""

import os
import shutil
import subprocess
import tempfile
from importlib import resources
from pathlib import Path

import click

from biotrail import __version__
from biotrail.cli.children import demo_loads
from biotrail.cli.options.perfetto_ui import UI, address
from biotrail.converters.analysis.report.report import Reporter
from biotrail.converters.outputs.perfetto import convert as perfetto
from biotrail.converters.pipeline import Trace
from biotrail.recorder.host import devices
from biotrail.recorder.output import output
from biotrail.recorder.output.folders import others_may_replace
from biotrail.recorder.output.output import make_directory
from biotrail.recorder.schema.errors import ProbeError, TraceError
from biotrail.recorder.session.session import RecordOptions, Summary, record
from biotrail.text import tallies, units, values
from biotrail.text.columns import console
from biotrail.text.printing import say
from biotrail.text.report.report import operations, processes

SAMPLE = "demo.biotrail"
NEEDED_BYTES = 256 << 20
_SPACE = "Is there space? Run it from a directory on another file system"


@click.command()
@click.option(
    "--output",
    "directory",
    default="demo-output",
    show_default=True,
    metavar="DIR",
    type=values.FileName(),
    help="Directory for demo.biotrail and demo.pftrace; older ones are replaced.",
)
def command(directory: str) -> None:
    """Record real I/O, convert it to a Perfetto trace, and show where the time went.

    Five processes read and write in a temporary directory for some seconds, with and without
    the page cache, with and without fsync. Where BPF programs cannot be loaded, a sample log
    that comes with biotrail is used instead of a recording.

    \b
    sudo biotrail demo
    biotrail demo --output /tmp/demo     # without root: from the sample log
    """  # noqa: D301 - \b is click's mark for text that keeps its lines
    make_directory(directory)  # under sudo it belongs to the calling user
    place = Path(directory)
    log = place / SAMPLE
    try:
        summary = _record(log)
    except ProbeError as error:
        say(f"Nothing can be recorded here: {error}")
        say("So this is the sample log that comes with biotrail.")
        say()
        sample = resources.files("biotrail") / "data" / SAMPLE
        with output.replacing(log, force=True) as stream:
            stream.write(sample.read_bytes())
    else:
        about = "" if summary.events_exact else "about "
        say(
            f"Recorded {about}{units.plural(summary.events, 'event')} in "
            f"{units.duration(summary.seconds * 1e9)}: the log has "
            f"{units.size(summary.log_bytes)}, the recorder took {summary.cpu_seconds:.2f} s of "
            "CPU time."
        )
        say()
    trace = Trace(log)
    reporter = Reporter(trace.context)
    target = place / Path(SAMPLE).with_suffix(".pftrace")
    with output.replacing(target, force=True) as stream:
        converted = perfetto.convert(
            reporter.watch(trace.lifecycles()), trace.context, stream, stacks=trace.stacks
        )
    report, screen = reporter.finish(trace), console()
    for table in (operations(report, screen.width), processes(report, screen.width)):
        screen.print(table)
        screen.print()
    for line in [*tallies.certainty_lines(trace), *tallies.loss_lines(trace)]:
        say(line)
    say()
    say(f"Log:   {log}")
    say(f"Trace: {target} ({units.size(target.stat().st_size)}, perfetto)")
    say(f"Where the time goes: biotrail report {log}")
    say(f"See every bio: biotrail view {target}")
    say("or drop the trace here; it stays in your browser:")
    say(f"  {address(UI, view=converted.view)}")


def _record(log: Path) -> Summary:
    with tempfile.TemporaryDirectory(prefix="biotrail-demo-", dir=workplace()) as directory:
        try:
            with demo_loads.held(Path(directory)) as (release, processes):
                options = RecordOptions(
                    created_by=f"biotrail {__version__}",
                    argv=["biotrail", "demo"],
                    output=str(log),
                    force=True,
                    command=release,
                )
                summary = record(options)
                failed = 0
                if not summary.error:
                    failed = sum(one.wait(demo_loads.PATIENCE) != 0 for one in processes)
        except (OSError, subprocess.SubprocessError) as error:
            raise TraceError(
                f"the demo's own I/O failed in {directory}: {error}. {_SPACE}"
            ) from error
    if summary.error is not None:
        raise summary.error
    if failed or summary.command_status:
        what = units.plural(failed, "process", "processes")
        raise TraceError(f"the demo's own I/O failed in {directory} ({what}). {_SPACE}")
    return summary


def workplace() -> Path:
    """Return a writable directory on a block device with space for the demo's files."""
    candidates = [Path.cwd(), Path("/var/tmp"), Path(tempfile.gettempdir()), Path.home()]
    usable = [path for path in candidates if _usable(path)]
    if not usable:
        say("No block device is below the directories here: little of the I/O may be seen.")
        return Path(tempfile.gettempdir())
    if usable[0] == candidates[0]:
        return usable[0]
    return max(usable, key=lambda path: shutil.disk_usage(path).free)


def _usable(path: Path) -> bool:
    if (
        not os.access(path, os.W_OK)
        or others_may_replace(path.stat())
        or shutil.disk_usage(path).free < NEEDED_BYTES
    ):
        return False
    mount = path.resolve()
    while not mount.is_mount():
        mount = mount.parent
    try:
        devices.resolve(str(mount))
    except ProbeError:
        return False
    return True
