# SPDX-License-Identifier: Apache-2.0
"""Events as blktrace's files, and as blkparse prints them."""
