# SPDX-License-Identifier: Apache-2.0
"""The slow I/Os of each device and operation, and what was in flight beside them."""
