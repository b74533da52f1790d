"""Scales: an experiment states comparisons and ratios, a scale states sizes.

paper    the published sizes and recipe; needs GPUs
desk     two cores, hours per experiment: about 20 training tokens per parameter, on text of the user's
laptop   two cores, minutes per experiment: below one training token per parameter
smoke    seconds, to check that everything runs; its numbers are meaningless
"""

from dataclasses import dataclass, replace
from typing import Any

CORPUS = "corpus"  # `data` of a scale whose text the user gives


@dataclass(frozen=True, kw_only=True)
class Scale:
    """Sizes of data, models and training."""

    name: str
    data: str  # a source for `toeplix data build`, or CORPUS: the user names one (`corpora`)
    protocol: str  # batch format: "packed", or the paper's "padded"
    vocab: int
    val_fraction: float  # fraction of documents
    dim: int
    depth: int
    context: int
    batch: int
    steps: int
    warmup: int
    rates: tuple[float, ...]  # grid of learning rates; empty: use the published ones
    seeds: tuple[int, ...]
    max_seeds: int  # seeds of comparisons that `seeds` do not decide
    all_seeds: bool = False  # claims are decided with `max_seeds` seeds, without a look at fewer
    eval_sequences: int
    dims: tuple[int, ...]  # widths of experiments that compare widths
    contexts: tuple[int, ...]  # lengths of experiments that compare lengths
    timing: float  # seconds per timing
    memory: bool = True  # measure peak memory too, each in a separate process
    tuning: float = 1.0  # steps of runs that choose a learning rate, as a fraction of `steps`


SCALES = {
    "paper": Scale(
        name="paper",
        data="hf:HuggingFaceFW/fineweb-edu:sample-10BT",
        protocol="padded",
        vocab=8000,
        val_fraction=50_000 / 9_672_101,
        dim=512,
        depth=16,
        context=512,
        batch=128,
        steps=200_000,
        warmup=500,
        rates=(),
        seeds=(42,),
        max_seeds=1,
        eval_sequences=50_000,
        dims=(128, 256, 512, 1024, 2048),
        contexts=(128, 512, 2048, 8192, 32768, 65536),
        timing=20.0,
    ),
    "desk": Scale(
        name="desk",
        data=CORPUS,
        protocol="packed",
        vocab=1000,
        val_fraction=0.05,
        dim=64,
        depth=4,
        context=128,
        batch=16,
        steps=3000,  # 6.1 million tokens: 22 per parameter of the flat Toeplitz model, 16 of Llama
        warmup=600,  # attention needs it, and Toeplitz models and Hyena do not mind (`controls`)
        rates=(2e-3, 6e-3, 1.6e-2),
        seeds=(0, 1, 2),
        max_seeds=6,
        all_seeds=True,
        eval_sequences=512,
        dims=(128, 256, 512),
        contexts=(128, 512, 2048, 8192, 16384, 65536),
        timing=3.0,
        tuning=0.2,
    ),
    "laptop": Scale(
        name="laptop",
        data="python",
        protocol="packed",
        vocab=2000,
        val_fraction=0.05,
        dim=64,
        depth=4,
        context=128,
        batch=8,
        steps=300,
        warmup=30,
        rates=(6e-3, 1.6e-2, 4e-2),
        seeds=(0, 1, 2),
        max_seeds=6,
        eval_sequences=128,
        dims=(128, 256, 512),
        contexts=(128, 512, 2048, 8192, 16384, 65536),
        timing=3.0,
    ),
    "smoke": Scale(
        name="smoke",
        data="python",
        protocol="packed",
        vocab=500,
        val_fraction=0.05,
        dim=16,
        depth=1,
        context=16,
        batch=2,
        steps=4,
        warmup=1,
        rates=(6e-3,),
        seeds=(0,),
        max_seeds=1,
        eval_sequences=4,
        dims=(16,),
        contexts=(16, 32, 64),
        timing=0.0,
        memory=False,
    ),
}

# Ablations at scale desk: a third of the steps, 7 tokens per parameter of the paper's flat model, at
# which the controls of `frozen` and `variants` are better than a bigram model.
ABLATION_SIZES: dict[str, dict[str, Any]] = {"desk": {"steps": 1000, "warmup": 200, "tuning": 0.4}}


def for_ablations(scale: Scale) -> Scale:
    """Return the scale with the sizes of ablations (`frozen`, `variants` and `ablation`)."""
    return replace(scale, **ABLATION_SIZES.get(scale.name, {}))
