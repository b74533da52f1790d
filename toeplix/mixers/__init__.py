"""Token mixers, one file each; base.py is the interface they share."""
