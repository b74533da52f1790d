"""One option per field of `Run` and `Model`, for the commands that train a run or plan one.

    app.command("train")(with_settings(train))    def train(..., **settings)
    changed(run, given_settings(settings))        in its body

An option that is left out is None: the setting is then that of a file, of the preset, or the default.
"""

import dataclasses
import inspect
from collections.abc import Callable
from typing import Annotated, Any, Optional

import typer

from toeplix.config import CHOICES as MODEL_CHOICES
from toeplix.config import Model
from toeplix.training.run import Run

# What a field of Model means, in short; `Run` has it beside its fields.
MODEL_HELP = {
    "arch": "Architecture: the mixer of all blocks, or a model of Hugging Face.",
    "blocks": "Mixers of a hybrid, repeated over the depth, separated by commas.",
    "vocab": "Vocabulary size; default: that of the data.",
    "context": "Tokens of a row, and taps of a free filter.",
    "dim": "Width.",
    "depth": "Blocks.",
    "heads": "Filters or attention heads side by side; 0: one filter for all channels.",
    "mlp_ratio": "Hidden width of the MLP, in multiples of dim.",
    "block_order": "Which sublayer comes first in a block.",
    "norm": "Kind of norm.",
    "final_norm": "A norm after the last block.",
    "activation": "Activation of the MLP.",
    "tie_embeddings": "Share one matrix between the embedding and the output layer.",
    "dropout": "Dropout probability.",
    "init": "Initialisation; fan_in: llama and window only.",
    "embedding_norm": "toeplitz, lookup: initial weight of a norm after the embedding; 0: none.",
    "filter": "toeplitz, lookup: a weight for every lag, or a few taps and decays.",
    "decays": "toeplitz, lookup: decays of a recurrent filter.",
    "free_taps": "toeplitz: first taps of a recurrent filter.",
    "groups": "toeplitz: filters of a flat mixer, each for a share of the channels.",
    "kernels": "toeplitz: filters reading as many neighbouring channels.",
    "sequential": "toeplitz: layers in one mixer.",
    "frozen": "toeplitz: filters that are not trained.",
    "filter_init": "toeplitz: initial filters.",
    "gate": "toeplitz: multiply the mixer's output by a gate.",
    "gate_bias": "toeplitz: initial bias of the gate.",
    "keys": "lookup: channels of queries and keys in each head.",
    "short_conv": "lookup: taps of the convolution before queries, keys and values.",
    "filter_hidden": "hyena: hidden width of the network that computes the filters.",
    "filter_features": "hyena: position features that this network reads.",
    "filter_frequency": "hyena: frequency of its sine activations.",
    "feature_map": "linear: feature map of queries and keys.",
    "window": "window, attention: positions that attention sees.",
    "state_size": "mamba2: state size per channel.",
}


def with_settings(command: Callable[..., None], default: str = "") -> Callable[..., None]:
    """Return a command as typer reads it, with its keyword arguments `**settings` spelled out.

    `default` says in the help what counts where an option is left out, if not the field's own default.
    """
    signature = inspect.signature(command)
    fixed = [each for each in signature.parameters.values() if each.name != "settings"]

    def spelled_out(**arguments: Any) -> None:
        command(**arguments)

    spelled_out.__name__, spelled_out.__doc__ = command.__name__.lstrip("_"), command.__doc__
    keyword = inspect.Parameter.KEYWORD_ONLY
    ordered = [each.replace(kind=keyword) for each in fixed] + _options(default)
    spelled_out.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
    spelled_out.__annotations__ = {each.name: each.annotation for each in ordered}
    return spelled_out


def given_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings whose options were given, with the values that their fields have."""
    given = {key: value for key, value in settings.items() if value is not None}
    if "blocks" in given:
        given["blocks"] = tuple(name.strip() for name in given["blocks"].split(","))
    return given


def _options(default: str) -> list[inspect.Parameter]:
    """A parameter for every setting; left out means: as in the file, the preset, or by default."""
    described = [
        (field, text, panel)
        for kind, texts, panel in (
            (Run, {}, "Training"),
            (Model, MODEL_HELP, "Model"),
        )
        for field in dataclasses.fields(kind)
        if field.name not in ("model", "data")
        for text in [field.metadata.get("help") or texts[field.name]]
    ]
    found = []
    for field, text, panel in described:
        if panel == "Model" and field.name in MODEL_CHOICES:
            text = f"{text} One of {', '.join(MODEL_CHOICES[field.name])}."
        if field.name != "vocab":
            text = f"{text} [dim]\\[default: {default or _shown(field.default)}][/dim]"
        option = typer.Option(help=text, rich_help_panel=panel, show_default=False)
        plain = str if field.name == "blocks" else field.type
        kind: Any = Optional[plain]  # noqa: UP045 - of a value, not of a type
        keyword = inspect.Parameter.KEYWORD_ONLY
        annotation = Annotated[kind, option]
        found.append(inspect.Parameter(field.name, keyword, default=None, annotation=annotation))
    return found


def _shown(default: object) -> object:
    return (",".join(default) or "none") if isinstance(default, tuple) else default
