"""Mamba 2 of transformers with a bias in the output layer, as toeplix trains it.

This file needs only torch and transformers. It lies beside the weights of every such checkpoint, and
`from_pretrained(..., trust_remote_code=True)` runs it where toeplix is not installed. transformers' own
`Mamba2ForCausalLM` has no such bias, and would drop it.
"""

import functools
from typing import Any

from torch import Tensor, nn
from transformers import Mamba2Config, Mamba2ForCausalLM, Mamba2Model

AUTO_MAP = {  # what `trust_remote_code=True` finds in this file
    "AutoConfig": "modeling_toeplix_mamba2.ToeplixMamba2Config",
    "AutoModel": "modeling_toeplix_mamba2.ToeplixMamba2Model",
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


# what collators of packed rows give besides position_ids
PACKING = ("cu_seq_lens_q", "cu_seq_lens_k", "seq_idx")


class ToeplixMamba2Model(Mamba2Model):
    """The backbone, from tokens to features."""

    config_class = ToeplixMamba2Config


class ToeplixMamba2ForCausalLM(Mamba2ForCausalLM):
    """Mamba 2, and an output layer with a bias."""

    config_class = ToeplixMamba2Config

    def __init__(self, config: ToeplixMamba2Config) -> None:
        super().__init__(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    @functools.wraps(Mamba2ForCausalLM.forward)  # Trainer reads the names of the arguments
    def forward(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Reject packed rows and attention weights, which Mamba 2 would ignore."""
        positions = kwargs.pop("position_ids", None)
        restarts = isinstance(positions, Tensor) and bool((positions[:, 1:] == 0).any())
        packed = restarts and kwargs.get("attention_mask") is None
        given = [name for name in PACKING if kwargs.pop(name, None) is not None]
        if packed or given:
            raise ValueError(
                f"mamba2 cannot read packed rows ({given[0] if given else 'position_ids'}): its state "
                "would pass from one document to the next; pad the rows instead"
            )
        if kwargs.pop("output_attentions", None):
            raise ValueError("output_attentions=True: mamba2 has no attention weights")
        return super().forward(*args, **kwargs)
