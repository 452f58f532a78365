# SPDX-License-Identifier: Apache-2.0
"""Messages as bytes, and what packets refer to: columns, clocks, call stacks, facts."""
