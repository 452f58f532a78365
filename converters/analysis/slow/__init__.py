# SPDX-License-Identifier: Apache-2.0
"""The slowest I/Os, and what surrounded them."""
