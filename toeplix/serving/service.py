"""The parts of a server: model, tokenizer, name, engine, limits and metrics."""

from dataclasses import dataclass
from pathlib import Path

import torch

from toeplix.data import Tokenizer
from toeplix.files import printable
from toeplix.inference.loading import load_pretrained
from toeplix.model import LanguageModel
from toeplix.serving.engine import Engine
from toeplix.serving.limits import Limits
from toeplix.serving.metrics import Metrics
from toeplix.serving.prompts import Conversations, conversations_of, end_tokens
from toeplix.serving.requests import Asked, Chat

MAX_NAME = 256  # characters


@dataclass(kw_only=True)
class Service:
    """The model of one server with everything that serves it; `close` ends the engine's thread."""

    name: str
    model: LanguageModel
    tokenizer: Tokenizer
    conversations: Conversations
    ends: frozenset[int]
    engine: Engine
    limits: Limits
    metrics: Metrics
    began: int = 0  # seconds since 1970

    def chats(self, asked: Asked) -> bool:
        return isinstance(asked, Chat)

    def close(self) -> None:
        self.engine.close()


def open_service(
    directory: Path,
    name: str | None = None,
    limits: Limits | None = None,
    quantize: str | None = None,
    *,
    device: torch.device | None = None,
    dtype: torch.dtype | None = None,
) -> Service:
    """Load a checkpoint with its tokenizer, quantize its weights if asked to, and start the engine."""
    limits = limits or Limits()
    model, tokenizer, directory = load_pretrained(
        directory, device=device, dtype=dtype, decoding_layout=True, quantize=quantize
    )
    conversations = conversations_of(directory, tokenizer)
    ends = end_tokens(directory, tokenizer, model.config.vocab)
    metrics = Metrics()
    engine = Engine(
        model,
        max_batch=limits.max_batch,
        queue=limits.max_waiting,
        max_new_tokens=limits.max_tokens,
    )
    metrics.follow(engine)
    return Service(
        name=name or named(directory),
        model=model,
        tokenizer=tokenizer,
        conversations=conversations,
        ends=ends,
        engine=engine,
        limits=limits,
        metrics=metrics,
        began=int((directory / "model.safetensors").stat().st_mtime),
    )


def check_name(name: str, where: str) -> None:
    """Raise ValueError if the name, which is part of every response, is not printable text."""
    if not (name.isprintable() and 0 < len(name) <= MAX_NAME):
        shown = printable(name)[:80]
        raise ValueError(f"{where} {shown!r}: 1 to {MAX_NAME} printable characters are needed")


def named(directory: Path) -> str:
    """Return the name of the directory, or of the run whose `model` it is, with other bytes escaped."""
    folder = directory.resolve()
    owned = folder.name == "model" and folder.parent.name
    return printable(folder.parent.name if owned else folder.name)
