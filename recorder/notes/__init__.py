# SPDX-License-Identifier: Apache-2.0
"""What the log holds beside events: call stacks, files, devices that appear."""
