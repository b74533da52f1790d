"""`toeplix bench prefill` and `toeplix bench decode`: prefill and decoding of whole models, batch 1.

prefill    time until the first new token and the decoding state are computed by the default model, in
           chunks as in `toeplix generate`, compared with Hugging Face's Llama (SDPA, with KV cache) of
           the same width and depth, which reads the prompt at once; and the share of the measured
           sgemm throughput that our matrix products reach, all other work included in the time
decode     milliseconds per token after a long prompt, for four decoding states:
           near-linear (ours), a preallocated history, a history that is concatenated and contracted
           at every step, and Llama's KV cache

Weights are random, as time does not depend on them. Near-linear decoding is timed over `STEPS` tokens in
the middle of its largest tiles, when tiles of every size are in progress.
"""

import statistics
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from toeplix.architectures import build
from toeplix.backbones.huggingface import CacheState
from toeplix.config import HYBRID, Model
from toeplix.inference.generation import prefill
from toeplix.inference.weight_layout import for_decoding
from toeplix.mixers.filter import Filter
from toeplix.mixers.filter_bank import FilterBank, FilterState
from toeplix.mixers.toeplitz import ToeplitzMixer
from toeplix.model import LanguageModel, MixerLM, MixerState
from toeplix.profiling import timing
from toeplix.profiling.progress import tracked
from toeplix.training.allocator import keep_freed_memory

CHUNK = 2048  # positions of a prompt that our model reads at once, as `generate` does
STEPS = 1024  # timed tokens of near-linear decoding
SOME = 24  # timed tokens of the others, whose decode steps all have the same cost
WAYS = ("near-linear", "history", "concatenate", "llama")


def prefill_rows(console: Console, *, times: list[int], dim: int, depth: int) -> Any:
    """Measure seconds and peak memory of prefill; ratios are Llama's divided by ours."""
    limits = timing.machine_limits()
    rows: list[dict[str, Any]] = []
    for tokens in tracked(times, "prefill", console):
        calls = {arch: reader(arch, tokens, dim, depth) for arch in (HYBRID, "llama")}
        taken = timing.interleaved(calls, seconds=2.0, least=1, most=5)
        with FlopCounterMode(display=False) as counter:
            calls[HYBRID]()
        least = counter.get_total_flops() / limits.sgemm_gflops / 1e9
        peaks = {arch: timing.peak_extra_bytes(reader, arch, tokens, dim, depth) for arch in calls}
        rows.append(
            {
                "tokens": tokens,
                "seconds": {arch: round(statistics.median(s), 3) for arch, s in taken.items()},
                "ratio": round(timing.median_ratio(taken["llama"], taken[HYBRID]), 2),
                "limit": round(least / statistics.median(taken[HYBRID]), 6),
                "peak_bytes": peaks,
            }
        )
    title = f"prefill, {depth} layers of {dim}, batch 1"
    drawn = Table(title=title)
    for column in (
        "tokens", "ours, s", "Llama, s", "ratio", "ours, of sgemm", "ours, GiB", "Llama, GiB"
    ):  # fmt: skip
        drawn.add_column(column, justify="right")
    for row in rows:
        most = (row["peak_bytes"][arch] for arch in (HYBRID, "llama"))
        drawn.add_row(
            str(row["tokens"]),
            *(f"{row['seconds'][arch]:.2f}" for arch in (HYBRID, "llama")),
            f"{row['ratio']:.1f}",
            f"{row['limit']:.0%}",
            *("" if peak is None else f"{peak / 2**30:.2f}" for peak in most),
        )
    console.print(drawn)
    machine = timing.describe_machine() | limits._asdict()
    return {"benchmark": "prefill", "machine": machine, "dim": dim, "depth": depth, "rows": rows}


def reader(arch: str, length: int, dim: int, depth: int) -> Callable[[], object]:
    """Return a function that prefills a prompt and returns the state, so that its memory counts."""
    keep_freed_memory()  # as `toeplix generate` and `toeplix serve` do
    torch.manual_seed(0)
    model = build(Model(arch=arch, dim=dim, depth=depth, context=length)).eval()
    tokens = torch.randint(model.config.vocab, (1, length))

    @torch.no_grad()
    def read() -> object:
        return prefill(model, tokens, CHUNK if arch == HYBRID else length)

    return read


def decoding_rows(console: Console, *, contexts: list[int], dim: int, depth: int) -> Any:
    """Measure milliseconds per token (median, mean, maximum) after `context` positions."""
    rows = []
    for context in contexts:
        for way in tracked(WAYS, f"decoding at {context}", console):
            step = stepper(way, context, dim, depth)
            taken = [timing.seconds_of(step) for _ in range(STEPS if way == WAYS[0] else SOME)]
            taken = taken[8:]  # warmup: the spectra of filters are computed at their first use
            rows.append(
                {
                    "context": context,
                    "way": way,
                    "mean_ms": round(statistics.mean(taken) * 1e3, 3),
                    "median_ms": round(statistics.median(taken) * 1e3, 3),
                    "worst_ms": round(max(taken) * 1e3, 3),
                    "worst_over_median": round(max(taken) / statistics.median(taken), 2),
                }
            )
            del step
    drawn = Table(title=f"decoding, {depth} layers of {dim}, batch 1: milliseconds a token")
    for column in ("context", *WAYS, "worst over median"):
        drawn.add_column(column, justify="right")
    for context in contexts:
        here = {row["way"]: row for row in rows if row["context"] == context}
        drawn.add_row(
            str(context),
            *(f"{here[way]['mean_ms']:.1f}" for way in WAYS),
            f"{here[WAYS[0]]['worst_over_median']:.1f}",
        )
    console.print(drawn)
    machine = timing.describe_machine() | timing.machine_limits()._asdict()
    return {"benchmark": "decode", "machine": machine, "dim": dim, "depth": depth, "rows": rows}


def stepper(way: str, context: int, dim: int, depth: int) -> Callable[[], object]:
    """Return a function that decodes one token after `context` positions."""
    model, state = ready(way, context, dim, depth)
    token = torch.zeros(1, 1, dtype=torch.long)

    def step() -> object:
        nonlocal state
        logits, state = model.step(token, state)
        return logits

    return step


def ready(way: str, context: int, dim: int, depth: int) -> tuple[LanguageModel, Any]:
    """Return a model and its decoding state after `context` positions."""
    torch.manual_seed(0)
    arch = way if way in ("llama", "mamba2") else "toeplitz"
    config = Model(arch=arch, dim=dim, depth=depth, context=context)
    if arch == "toeplitz":
        config = replace(config, filter="free")
    if arch == "mamba2":
        config = replace(config, state_size=dim // 2)
    model = build(config).eval()
    for_decoding(model)
    if arch == "mamba2":  # the size of its state does not depend on the context
        return model, model.step(torch.zeros(1, 1, dtype=torch.long), None)[1]
    state = _llama_state(model, context) if way == "llama" else mixer_state(way, model, context)
    if way == WAYS[0]:
        for one in state.bank.decoders:
            # blocks of every size end with the next token; the values of the state do not matter here
            one.position = 2 * context - 1
    return model, state


def mixer_state(way: str, model: LanguageModel, context: int) -> MixerState:
    """Return a state like that after a prefill of `context` random positions, without computing it."""
    assert isinstance(model, MixerLM)
    bank = BANKS[way]()
    config = model.config
    shape = (1, context, config.heads or 1, config.dim // (config.heads or 1))
    parts = []
    for block in model.blocks:
        mixer = block.token_mixer
        assert isinstance(mixer, ToeplitzMixer)
        part = mixer.start(bank)
        for layer, filters in zip(mixer.filters, part, strict=True):
            assert isinstance(layer, Filter)
            filters.position = context
            filters.kernel = layer.kernel.flatten(0, 1).detach()
            filters.history = torch.randn(shape)
        parts.append(part)
    bank.begin_decoding()
    return MixerState(bank, parts)


class Concatenating(FilterBank):
    """A simple decoding state: the history grows by `cat` and is contracted as a whole at every step."""

    def join(self) -> FilterState:
        return _Concatenated()


class _Concatenated(FilterState):
    def extend(self, x: Tensor, kernel: Tensor) -> Tensor:
        assert self.history is not None
        self.history = torch.cat([self.history[:, 1:], x], 1)
        return torch.einsum("hs,bshc->bhc", kernel.flip(-1), self.history)[:, None]


BANKS: dict[str, Callable[[], FilterBank]] = {
    "near-linear": partial(FilterBank, kind="online"),
    "history": partial(FilterBank, kind="history"),
    "concatenate": Concatenating,
}


def _llama_state(model: LanguageModel, context: int) -> Any:
    from transformers import DynamicCache

    config, state = model.config, model.start()
    assert isinstance(state, CacheState)
    state.cache = cache = DynamicCache()
    heads = config.attention_heads
    shape = (1, heads, context, config.dim // heads)
    for layer in range(config.depth):
        cache.update(torch.randn(shape), torch.randn(shape), layer)
    return state
