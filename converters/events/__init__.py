# SPDX-License-Identifier: Apache-2.0
"""Events as time-sorted columns, and the log's header, stacks, files, names and losses."""
