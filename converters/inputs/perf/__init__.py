# SPDX-License-Identifier: Apache-2.0
"""Files and streams of `perf record`: perf.data."""
