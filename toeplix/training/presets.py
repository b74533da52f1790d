"""Runs by name, for `toeplix train NAME`.

    run = preset("laptop", data="runs/python/store", steps=500)

The paper's recipe: AdamW (0.9, 0.999) without weight decay, 200,000 steps of 128 sequences of 512 tokens
(64 of 1024), linear decay after 500 warmup steps, gradient norm clipped at 1. The batch size is that of
all processes together: with several processes, divide `batch` by their number.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from toeplix.config import Model
from toeplix.training.run import Run

# the paper's learning rates: mixers, and attention or state spaces
MIXER_LR, ATTENTION_LR = 5e-4, 2e-4


def laptop(data: str) -> Run:
    """A small model for a CPU."""
    model = Model(vocab=2000, context=256, dim=256, depth=4)
    return Run(model=model, data=data, steps=2000, batch=16, lr=2e-3, warmup=100)


def demo(data: str) -> Run:
    """A very small model and a short run that uses every feature."""
    model = Model(vocab=2000, context=128, dim=128, depth=2)
    return Run(
        model=model,
        data=data,
        steps=200,
        batch=8,
        lr=3e-3,
        warmup=20,
        eval_every=50,
        eval_sequences=64,
        save_every=50,
        sample_every=100,
    )


def paper(data: str, *, lr: float = MIXER_LR, context: int = 512, **model: Any) -> Run:
    """The paper's recipe."""
    return Run(
        model=Model.paper(context=context, **model),
        data=data,
        protocol="padded",
        steps=200_000,
        batch=128 * 512 // context,
        lr=lr,
        warmup=500,
        seed=42,
        eval_every=4000,
        save_every=8000,
        log_every=500,
        sample_every=8000,
    )


PRESETS: dict[str, Callable[[str], Run]] = {
    "demo": demo,
    "laptop": laptop,
    "paper-tmm-512": partial(paper, heads=0),
    "paper-tmm-512-h4": partial(paper, heads=4),
    "paper-tmm-1024": partial(paper, heads=0, dim=1024),
    "paper-tmm-1024-h4": partial(paper, heads=4, dim=1024),
    "paper-masked-512": partial(paper, arch="masked"),
    "paper-hyena-512": partial(paper, arch="hyena"),
    "paper-llama-512": partial(paper, arch="llama", lr=ATTENTION_LR),
    "paper-window-512": partial(paper, arch="window", lr=ATTENTION_LR),
    "paper-mamba2-512": partial(paper, arch="mamba2", lr=ATTENTION_LR),
}


def preset(name: str, data: str, **changes: Any) -> Run:
    """Return a run by name; `changes` are fields of Run or of Model."""
    if name not in PRESETS:
        raise ValueError(f"there is no preset {name!r}, only {', '.join(PRESETS)}")
    return changed(PRESETS[name](data), changes)


def changed(
    run: Run, changes: dict[str, Any], say: Callable[[str], None] = lambda line: None
) -> Run:
    """Return the run with other settings, those of the model among them.

    A warmup that is not among the changes, but longer than the steps that are, is shortened, and `say` is
    called with a notice.
    """
    inside = {name: value for name, value in changes.items() if name in vars(run.model)}
    outside = {name: value for name, value in changes.items() if name not in inside}
    if unknown := sorted(set(outside) - set(vars(run))):
        raise ValueError(f"there is no setting {', '.join(unknown)}")
    steps = outside.get("steps")
    if isinstance(steps, int) and "warmup" not in outside and run.warmup > steps >= 1:
        outside["warmup"] = shorter = max(1, steps // 10)
        say(
            f"warmup={run.warmup} is longer than steps={steps}: shortened to {shorter}, a tenth of "
            "the steps but at least 1 (--warmup sets it)"
        )
    return replace(run, model=_changed_model(run.model, inside), **outside)


def _changed_model(model: Model, changes: dict[str, Any]) -> Model:
    """Return a model with other settings; other mixers keep only those settings that they read."""
    if not changes.keys() & {"arch", "blocks"}:
        return replace(model, **changes)
    from toeplix.architectures import ARCHITECTURES  # late: it imports PyTorch

    named = {name: changes[name] for name in ("arch", "blocks") if name in changes}
    kind = Model(**named)
    read = ARCHITECTURES[kind.arch].fields_read(kind) - {"arch", "blocks"}
    kept = {name: value for name, value in vars(model).items() if name in read}
    return Model(**(kept | changes))
