# SPDX-License-Identifier: Apache-2.0
"""Answers to questions: figures and findings made of the model's tables."""
