"""Token mixers, one file each; base.py defines their interface."""
