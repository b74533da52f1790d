"""Checkpoints of other code bases, converted."""
