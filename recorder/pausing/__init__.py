# SPDX-License-Identifier: Apache-2.0
"""The experiment: stops a suspect again and again while recording, to see what it costs others."""
