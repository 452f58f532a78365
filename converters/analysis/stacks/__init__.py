# SPDX-License-Identifier: Apache-2.0
"""Call stacks that queued I/O, and flame graphs of these stacks."""
