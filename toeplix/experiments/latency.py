"""Latency and memory of a decode step against the context: the default model beside Llama and Mamba 2.

Models of equal width and depth, random weights, batch 1, float32, timings interleaved. The hybrid reads a
prompt of that length in chunks. Llama is Hugging Face's, with its default KV cache, which grows by
concatenation, and with its static one, which is allocated once; both are filled with random numbers.
Mamba 2 is Hugging Face's in plain PyTorch; its state has one size, so that it reads one token. The
decoding state is counted in the tensors that a state holds.
"""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from toeplix.experiments.decoding import held_bytes
from toeplix.experiments.engine import style
from toeplix.experiments.engine.claims import Verdict
from toeplix.experiments.engine.models import MODELS, model
from toeplix.experiments.engine.rows import Found, Row, Table
from toeplix.experiments.engine.scale import Scale
from toeplix.experiments.engine.style import Figure

CLAIMS: tuple[str, ...] = ()
MEASURES_TIME = True
COST = "2 minutes on two idle cores"
CONTEXTS = (1024, 4096, 16384, 65536)
SIZES = {"paper": (512, 16), "desk": (512, 16)}  # width and depth
COMPARED = {
    "hybrid": "toeplix, default model",
    "mamba2": "Mamba 2",
    "llama": "Llama, growing KV cache",
    "llama static": "Llama, static KV cache",
}
LOOKS = {"hybrid": "toeplitz", "llama static": "window"}  # colours of other figures
ROOM = 256  # tokens that a static cache has room for beyond the context; fewer are timed
MAX_TIMINGS = 60  # rounds, each with up to four decode steps
CHUNK = 4096  # tokens of a prompt that are read at once


@dataclass(frozen=True, kw_only=True)
class Case:
    """All models after one number of tokens."""

    context: int
    dim: int
    depth: int
    vocab: int
    timing: float  # seconds per model


class LatencyRow(TypedDict):
    """A case, and by model the median latency, its quartiles, and the bytes of the decoding state."""

    context: int
    dim: int
    depth: int
    vocab: int
    timing: float
    median_ms: dict[str, float]
    quartiles_ms: dict[str, list[float]]
    state_bytes: dict[str, int]


def cases(scale: Scale, rows: list[LatencyRow]) -> list[Case]:
    small = scale.name == "smoke"
    dim, depth = (scale.dim, scale.depth) if small else SIZES.get(scale.name, (256, 4))
    sizes: dict[str, Any] = {"dim": dim, "depth": depth, "timing": scale.timing}
    vocab = scale.vocab if small else 8000
    contexts = scale.contexts if small else CONTEXTS
    return [Case(context=context, vocab=vocab, **sizes) for context in contexts]


def measure(case: Case, work: Path) -> Found:
    import torch

    from toeplix.profiling import timing
    from toeplix.training.allocator import keep_freed_memory

    keep_freed_memory()  # as `toeplix generate` and `toeplix serve` do
    with torch.no_grad():
        prepared = {name: _prepared(name, case) for name in COMPARED}
        steps = {name: _step(*each) for name, each in prepared.items()}
        times = timing.interleaved(steps, seconds=case.timing, least=5, most=MAX_TIMINGS)
    return {
        "median_ms": {name: statistics.median(each) * 1e3 for name, each in times.items()},
        "quartiles_ms": {
            name: [cut * 1e3 for cut in statistics.quantiles(each, n=4)[::2]]
            for name, each in times.items()
        },
        "state_bytes": {name: held_bytes(state, each) for name, (each, state) in prepared.items()},
    }


def _prepared(name: str, case: Case) -> tuple[Any, Any]:
    """Return a model and its decoding state after `case.context` tokens."""
    import torch

    from toeplix.architectures import build
    from toeplix.inference.weight_layout import for_decoding

    torch.manual_seed(0)
    sizes = {"dim": case.dim, "depth": case.depth, "vocab": case.vocab, "context": case.context}
    built = build(model(MODELS[name.split()[0]], **sizes)).eval()
    for_decoding(built)
    if name.startswith("llama"):
        return built, _llama_state(built, case.context, static=name.endswith("static"))
    length = 1 if name == "mamba2" else case.context
    tokens, state = torch.randint(case.vocab, (1, length)), built.start()
    for part in tokens.split(CHUNK, 1):
        _, state = built.advance(part, state)
    state.begin_decoding()
    return built, state


def _llama_state(built: Any, context: int, *, static: bool) -> Any:
    """Return a state whose cache holds random keys and values of `context` tokens."""
    import torch
    from transformers import DynamicCache, StaticCache

    config, state = built.config, built.start()
    kinds = built.backbone.config
    room = context + ROOM
    state.cache = StaticCache(kinds, max_cache_len=room) if static else DynamicCache(config=kinds)
    shape = (1, config.attention_heads, context, config.dim // config.attention_heads)
    for layer in range(config.depth):
        state.cache.update(torch.randn(shape), torch.randn(shape), layer)
    return state


def _step(built: Any, state: Any) -> Callable[[], object]:
    import torch

    token = torch.zeros(1, 1, dtype=torch.long)
    return lambda: built.step(token, state)[0]


def figure(rows: list[LatencyRow], published: list[Row]) -> Figure:
    drawing = style.canvas(2)
    axes = drawing.subplots(1, 2)
    here = sorted(rows, key=lambda row: row["context"])
    contexts = [row["context"] for row in here]
    for name, label in COMPARED.items():
        line = style.look(LOOKS.get(name, name), label=label)
        axes[0].plot(contexts, [row["median_ms"][name] for row in here], **line)
        sizes = [row["state_bytes"][name] / 2**20 for row in here]
        axes[1].plot(contexts, sizes, **line)
    for place in axes:
        place.set_xscale("log", base=2)
        style.log_ticks(place, y=True)
        place.set_xticks(contexts, [_short(context) for context in contexts])
    sizes_drawn = {(row["depth"], row["dim"]) for row in here}
    title = ", ".join(f"{depth} layers of width {dim}" for depth, dim in sorted(sizes_drawn))
    style.finish(axes[0], x="context, tokens", y="ms per token", title=f"decoding, {title}")
    style.finish(axes[1], x="context, tokens", y="MiB", title="decoding state, batch 1")
    caption = (
        "Median time of a decode step and size of the decoding state after a prompt of that length, "
        "batch 1, float32. Both axes are logarithmic."
    )
    return style.compose(drawing, caption)


def _short(context: int) -> str:
    return f"{context // 1024}k" if context % 1024 == 0 else str(context)


def table(rows: list[LatencyRow]) -> Table:
    return [
        {"context": row["context"]}
        | {
            label: f"{row['median_ms'][name]:.1f} ms, {row['state_bytes'][name] / 2**20:.2f} MiB"
            for name, label in COMPARED.items()
        }
        for row in sorted(rows, key=lambda row: row["context"])
    ]


def holds(rows: list[LatencyRow]) -> dict[str, Verdict]:
    """The paper makes no claim about this model."""
    return {}
