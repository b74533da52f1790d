"""What is served: a model with its tokenizer under a name, the engine that decodes, limits, metrics."""

from dataclasses import dataclass
from pathlib import Path

from toeplix.data import Tokenizer
from toeplix.files import printable
from toeplix.inference.loading import load_pretrained
from toeplix.model import LanguageModel
from toeplix.serving.engine import Engine
from toeplix.serving.limits import Limits
from toeplix.serving.metrics import Metrics
from toeplix.serving.prompts import Conversations, conversations_of, end_tokens
from toeplix.serving.requests import Asked, Chat


@dataclass(kw_only=True)
class Service:
    """One for each server; `close` ends its thread."""

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


def open_service(directory: Path, name: str | None = None, limits: Limits | None = None) -> Service:
    """Return the model of a run or model directory, ready to answer."""
    limits = limits or Limits()
    model, tokenizer, directory = load_pretrained(directory, decoding_layout=True)
    conversations = conversations_of(directory, tokenizer)
    ends = end_tokens(directory, tokenizer, model.config.vocab)
    metrics = Metrics()
    engine = Engine(model, max_batch=limits.rows, queue=limits.queue, max_new_tokens=limits.tokens)
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


def named(directory: Path) -> str:
    """The directory's name, or the run's if it is the `model` of one; bytes that are no text escaped."""
    folder = directory.resolve()
    owned = folder.name == "model" and folder.parent.name
    return printable(folder.parent.name if owned else folder.name)
