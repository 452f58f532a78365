# SPDX-License-Identifier: Apache-2.0
"""Maps that the programs and the recorder share, each with what it holds."""
