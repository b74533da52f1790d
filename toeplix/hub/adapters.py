"""Defaults for PEFT: the layers that LoRA adapts in a Toeplix model if `target_modules` is left out.

PEFT has no entry points, but a table by `model_type`. It is filled when a model is made, if PEFT has been
imported by then; PEFT is never imported here. Adapted by default are the MLPs and the gates, which every
model has or lacks as linear layers; of Mamba 2 it is the projections, as for Hugging Face's own.
`target_modules="all-linear"` adapts the projections of mixers too.
"""

import sys

TARGET_MODULES = {
    "toeplix": ["channel_mixer.0", "channel_mixer.3", "gate"],
    "toeplix_mamba2": ["in_proj", "out_proj"],
}
TABLE = "TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING"


def register_adapters() -> None:
    """Name the default layers to PEFT, if it is imported."""
    constants = sys.modules.get("peft.utils.constants")
    table = getattr(constants, TABLE, None)
    if isinstance(table, dict):
        for kind, modules in TARGET_MODULES.items():
            table.setdefault(kind, list(modules))
