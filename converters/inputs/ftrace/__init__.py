# SPDX-License-Identifier: Apache-2.0
"""The kernel's own tracer, ftrace: trace-cmd's trace.dat, and events printed as text."""
