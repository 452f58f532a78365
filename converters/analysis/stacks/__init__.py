# SPDX-License-Identifier: Apache-2.0
"""Who queued the I/O: call stacks, and flame graphs of them."""
