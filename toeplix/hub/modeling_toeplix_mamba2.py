"""Mamba 2 of transformers with a bias in the output layer, as toeplix trains it.

This file needs only torch and transformers. It lies beside the weights of every such checkpoint, and
`from_pretrained(..., trust_remote_code=True)` runs it where toeplix is not installed. transformers' own
`Mamba2ForCausalLM` has no such bias, and would drop it.
"""

from typing import Any

from torch import nn
from transformers import Mamba2Config, Mamba2ForCausalLM

AUTO_MAP = {  # what `trust_remote_code=True` finds in this file
    "AutoConfig": "modeling_toeplix_mamba2.ToeplixMamba2Config",
    "AutoModelForCausalLM": "modeling_toeplix_mamba2.ToeplixMamba2ForCausalLM",
}


class ToeplixMamba2Config(Mamba2Config):
    """The configuration of Mamba 2, under a name of its own."""

    model_type = "toeplix_mamba2"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)

    def save_pretrained(self, *args: Any, **kwargs: Any) -> None:
        """Write config.json, with the names of the classes that read it without toeplix."""
        self.auto_map = dict(AUTO_MAP)
        super().save_pretrained(*args, **kwargs)


class ToeplixMamba2ForCausalLM(Mamba2ForCausalLM):
    """Mamba 2, and an output layer with a bias."""

    config_class = ToeplixMamba2Config

    def __init__(self, config: ToeplixMamba2Config) -> None:
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
