# SPDX-License-Identifier: Apache-2.0
"""The command `biotrail`, a module for each subcommand."""
