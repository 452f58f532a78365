# SPDX-License-Identifier: Apache-2.0
"""Exit statuses of the command `biotrail`."""

ERROR_STATUS = 1
USAGE_STATUS = 2
INTERRUPTED_STATUS = 130
PIPE_STATUS = 141
"""128 + SIGINT and 128 + SIGPIPE, as a shell reports a command that these ended."""
