# SPDX-License-Identifier: Apache-2.0
"""The tables of lifecycles as Arrow tables."""
