# SPDX-License-Identifier: Apache-2.0
"""Options of the commands that answer questions: which I/Os are meant."""

from collections.abc import Callable
from typing import Any

import click

from recorder.kernel_names import OPS

OPERATIONS = sorted({name.lower() for name in OPS})

device_option: Callable[[Any], Any] = click.option(
    "-d",
    "--device",
    metavar="DEV",
    help="Only this device of the log, by name or 8:0; a partition counts as one.",
)
file_option: Callable[[Any], Any] = click.option(
    "--file",
    "file",
    metavar="PATTERN",
    help="Only of files with such a path: '/srv/db/*'. The log must be made with record --files.",
)
op_option: Callable[[Any], Any] = click.option(
    "--op",
    "ops",
    multiple=True,
    type=click.Choice(OPERATIONS),
    metavar="OP",
    help="Only this operation (read, write, flush, discard, …); can be given again.",
)
