# SPDX-License-Identifier: Apache-2.0
"""What `biotrail record` prints."""
