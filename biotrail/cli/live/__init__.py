# SPDX-License-Identifier: Apache-2.0
"""Display of I/O while a recorder process runs, for `biotrail top` and `record --print`."""
