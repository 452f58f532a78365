# SPDX-License-Identifier: Apache-2.0
"""Conversion of logs to traces: outputs of `biotrail convert`, also for `view` and `demo`."""
