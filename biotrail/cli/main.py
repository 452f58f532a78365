# SPDX-License-Identifier: Apache-2.0
"""The command `biotrail`: its subcommands, and the one place where errors are printed.

A subcommand's module is imported when it is called, so that `record` runs where only what
recording needs is installed, and no command pays for what another one imports.
"""

import gc
import importlib
import io
import os
import re
import sys
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from biotrail import __version__
from biotrail.cli.options.ending import ERROR_STATUS, INTERRUPTED_STATUS, PIPE_STATUS, USAGE_STATUS
from biotrail.recorder.schema.allocator import keep_freed_memory
from biotrail.recorder.schema.errors import (
    DeclarationError,
    ProbeError,
    ReaderGoneError,
    TraceError,
)
from biotrail.text.printing import relay, say, say_all

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"

_LESS_MEMORY = "free some, raise the limit (ulimit -v), or use a part of the log (--from, --to, -d)"

_UNMAPPED = re.compile(
    r"failed to map segment from shared object$|cannot map zero-fill|Cannot allocate memory", re.M
)
"""What the dynamic linker says without memory; where a mount forbids it, a reason follows."""

_COMMANDS = {
    "record": "Record block I/O to a log.",
    "convert": "Turn a log into a Perfetto trace or an OTF2 archive.",
    "archive": "Convert logs to Parquet: small, and readable by other tools.",
    "export": "Write bios, requests or events as a table, or for fio to replay.",
    "verify": "Check every checksum and count of logs and archives.",
    "report": "Show where I/O time goes, by device, operation and process.",
    "fleet": "Analyse the recordings of many hosts as one.",
    "diff": "Compare recordings of two sides and mark what changed.",
    "pairs": "Measure the time from one kernel event to another.",
    "top": "Watch block I/O as it happens.",
    "metrics": "Serve figures of the I/O that goes on to Prometheus.",
    "view": "Open a log or a trace in the Perfetto UI.",
    "info": "Show what a log holds, what it lacks, and how much of it is certain.",
    "blame": "Show whose I/O made whose I/O wait, and what would be without it.",
    "slow": "Show the slowest I/Os and why they were slow.",
    "hist": "Draw histograms of latency, size or queue depth.",
    "tree": "Show which functions followed objects passed, and where their time went.",
    "stacks": "Show which call stacks queued the I/O in a log.",
    "dump": "Print a log's records as text or JSON lines.",
    "follow": "Record which functions chosen kernel objects pass.",
    "doctor": "Check what this machine can record, and what is missing.",
    "demo": "Record some real I/O, convert it and show the result.",
}


class LazyGroup(click.Group):
    """A group whose subcommand NAME is `command` of the module `biotrail.cli.NAME`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        # What is imported stays: the collector need not look through it, now or ever again.
        gc.disable()
        # Without the threads of numpy's BLAS: they take memory, and keep rights we give up.
        given = os.environ.get(_BLAS_THREADS)
        os.environ[_BLAS_THREADS] = "1"
        try:
            command = importlib.import_module(f"biotrail.cli.{cmd_name}").command
        finally:
            if given:
                os.environ[_BLAS_THREADS] = given
            else:
                del os.environ[_BLAS_THREADS]
        gc.freeze()
        gc.enable()
        return command if isinstance(command, click.Command) else None

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [
            CompletionItem(name, help=text)
            for name, text in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, but an unknown name is an error with the most similar subcommand."""
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            ctx.fail(f"No such command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        keep_freed_memory()
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            _silence_stdout()
            return PIPE_STATUS
        return result

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="biotrail", message="%(prog)s %(version)s")
def cli() -> None:
    """Record what the Linux block layer does with every bio and request, and analyse it.

    \b
    sudo biotrail record -o disk.biotrail -- fio job.fio
    biotrail convert disk.biotrail     # → disk.pftrace, for https://ui.perfetto.dev
    biotrail info disk.biotrail
    """  # noqa: D301 - \b is click's mark for text that keeps its lines


def main(arguments: list[str] | None = None) -> None:
    """Run the command line (None: sys.argv) and exit the process.

    Exit status: 0 success, 1 failure, 2 wrong usage, 130 interrupted, 141 the reader of the
    output has gone; `record -- COMMAND` exits with the command's own status.
    """
    _prepare_streams()
    sys.exit(_run(arguments))


class _StandardOutput(io.FileIO):
    """Standard output, whose errors say that they are its own."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = "standard output"
            raise


def _prepare_streams() -> None:
    """Open standard streams that are closed: else a log would get number 2, and messages.

    And have errors of writing to standard output name it, unless another stream stands for it.
    """
    for number, (name, flags) in enumerate(
        (("stdin", os.O_WRONLY), ("stdout", os.O_RDONLY), ("stderr", os.O_WRONLY))
    ):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, flags)  # the lowest number that is free: this stream's
            os.set_inheritable(null, True)
            mode = "r" if number == 0 else "w"
            setattr(sys, name, os.fdopen(null, mode, encoding="utf-8", closefd=False))
    given = sys.stdout
    try:
        is_file = type(given) is io.TextIOWrapper and given.fileno() == 1
    except io.UnsupportedOperation:  # text in memory
        is_file = False
    if is_file:
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_StandardOutput(1, "w", closefd=False)),
            encoding=given.encoding,
            errors=given.errors,
            line_buffering=bool(given.line_buffering),
        )


def _run(arguments: list[str] | None) -> int:
    try:
        status = cli.main(arguments, prog_name="biotrail", standalone_mode=False)
    except click.exceptions.Abort:
        return INTERRUPTED_STATUS
    except click.ClickException as error:
        words = io.StringIO()
        error.show(words)
        relay(words.getvalue().rstrip("\n"), err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED_STATUS
    except ReaderGoneError as error:
        return _failed(str(error), status=PIPE_STATUS)
    except DeclarationError as error:
        return _failed(str(error), status=USAGE_STATUS)
    except TraceError as error:
        # A probe's error ends with the lines of the kernel's verifier or of the compiler.
        lines = str(error).split("\n") if isinstance(error, ProbeError) else [str(error)]
        return _failed(*lines)
    except (MemoryError, ImportError) as error:
        if isinstance(error, ImportError) and not _UNMAPPED.search(str(error)):
            raise
        unloaded = isinstance(error, ImportError)
        reason = "a library could not be loaded" if unloaded else str(error)
        why = f": {reason}" if reason else ""
        return _failed(f"there was not enough memory{why}; {_LESS_MEMORY}")
    except RuntimeError as error:
        if str(error) != "can't start new thread":
            raise
        return _failed(
            "no thread could be started: there is not enough memory (ulimit -v), or a limit of "
            "threads is reached (ulimit -u, a cgroup's pids.max); raise it"
        )
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _failed(f"{where}{error.strerror or error}")
    return status if isinstance(status, int) else 0


def _failed(message: str, *further: str, status: int = ERROR_STATUS) -> int:
    try:
        sys.stdout.flush()
    except OSError:
        _silence_stdout()
    say(f"biotrail: error: {message}", err=True)
    say_all(further, err=True)
    return status


def _silence_stdout() -> None:
    """Redirect stdout to /dev/null, or Python would report EPIPE when it flushes at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


if __name__ == "__main__":
    main()
