"""Inference: loading a model with its tokenizer, sampling, ragged batches, detokenization."""

from toeplix.inference.generation import generate, stream
from toeplix.inference.loading import Pretrained, load_pretrained
from toeplix.inference.sampling import Sampling

__all__ = ["Pretrained", "Sampling", "generate", "load_pretrained", "stream"]
