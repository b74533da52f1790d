"""Decoding: one position at a time, with a state (base.py has the interface)."""
