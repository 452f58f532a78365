# SPDX-License-Identifier: Apache-2.0
"""Choosing I/Os by device, operation, file, submitter, time and outcome."""
