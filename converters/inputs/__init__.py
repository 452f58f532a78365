# SPDX-License-Identifier: Apache-2.0
"""Where events come from: logs, series of logs, growing logs, archives, blktrace's files."""
