"""Architectures that are Hugging Face's own, behind the methods of `toeplix.model`."""
