"""Probes: autoencoders that measure how much of a text one hidden state retains.

    tokens -> encoder -> e = features at one position -> unroll -> decoder -> logits of the same tokens

    x[i] = W (e[i], e[i+1], ..., e[i + d/2 - 1]),  indices modulo d

With a frozen encoder the loss measures what a model retains of its input; if the encoder is trained too,
it measures what the architecture can retain. The encoder is any model with features, the decoder any
architecture of toeplix without its embedding. Filters keep their names (`encoder.blocks.0...`,
`decoder.blocks.0...`), so that `toeplix.reports.filters` reads an autoencoder like any other checkpoint.
"""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from toeplix.architectures import build, stored_numbers
from toeplix.checkpoint import CONFIG, WEIGHTS, bounded, configured, contents, fill, own
from toeplix.config import Model
from toeplix.files import ensure_directory, parse_json, reading, replace_file
from toeplix.files.tensors import save_file
from toeplix.model import LanguageModel

# the decoder's input: the hidden state, or a control
SIGNALS: dict[str, Callable[[Tensor], Tensor]] = {
    "state": lambda e: e,
    "none": torch.zeros_like,  # the decoder without information
    "shuffled": lambda e: e.roll(1, 0),  # the hidden state of another text
}


def unroll(e: Float[Tensor, "b d"], length: int) -> Float[Tensor, "b t c"]:
    """Return circular windows of d/2 channels, one per position: 1 2 3 4 gives 1 2, 2 3, 3 4, 4 1, ..."""
    dim = e.shape[1]
    place = torch.arange(length, device=e.device)[:, None]
    return e[:, (place + torch.arange(dim // 2, device=e.device)) % dim]


class Autoencoder(nn.Module):
    """An encoder of tokens into one vector, and a decoder of the vector into features of the tokens.

    Args:
        encoder: the model that is probed; `encode(tokens)` returns (b, t, d).
        decoder: a new model of the encoder's width. Its embedding and the norm after it are removed.
        token: the position of the hidden state, counted from the end: -1 is the last.
        norm: whether the state is normalised to mean 0 and variance 1, so that encoders are comparable.
        signal: one of SIGNALS: `state`, or a control.
        embedding: "own", or "new": initialised again, and trained even if the encoder is frozen.
        frozen: whether the encoder is not trained.
    """

    def __init__(
        self,
        encoder: LanguageModel,
        decoder: LanguageModel,
        *,
        token: int = -1,
        norm: bool = True,
        signal: str = "state",
        embedding: str = "own",
        frozen: bool = False,
    ) -> None:
        super().__init__()
        wide, dim = encoder.config.dim, decoder.config.dim
        if wide % 2:
            raise ValueError(f"windows are half as wide as the hidden state: dim={wide} is odd")
        if signal not in SIGNALS:
            raise ValueError(f"signal={signal!r} is none of {', '.join(SIGNALS)}")
        if embedding not in ("own", "new"):
            raise ValueError(f"embedding={embedding!r} is neither own nor new")
        if token >= 0:
            raise ValueError(f"token={token} is counted from the end: -1 is the last")
        self.settings = {
            "token": token,
            "norm": norm,
            "signal": signal,
            "embedding": embedding,
            "frozen": frozen,
        }
        self.encoder, self.decoder = encoder, decoder
        self.token, self.signal = token, SIGNALS[signal]
        self.norm = nn.LayerNorm(wide, elementwise_affine=False) if norm else nn.Identity()
        self.project = nn.Linear(wide // 2, dim)
        decoder.remove_embedding()
        encoder.head = nn.Identity()  # type: ignore[assignment]
        if frozen:
            encoder.requires_grad_(False)
            encoder.eval()
        if embedding == "new":
            table = encoder.input_embedding()
            nn.init.normal_(table.weight, std=float(table.weight.detach().std()))
            table.requires_grad_(True)
        self.still = frozen and embedding == "own"  # nothing inside the encoder is trained

    @property
    def head(self) -> nn.Linear:
        return self.decoder.head

    def encode(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t d"]:
        """Return the features of the decoder at each position of the input."""
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.still):
            e = self.encoder.encode(tokens)[:, self.token]
        return self.decode(e.to(self.project.weight.dtype), tokens.shape[1])

    def decode(self, e: Float[Tensor, "b d"], length: int) -> Float[Tensor, "b t d"]:
        """Return the features of the decoder for given hidden states, such as cached ones."""
        e = self.signal(self.norm(e))
        return self.decoder.layers(self.project(unroll(e, length)))

    def forward(self, tokens: Int[Tensor, "b t"]) -> Float[Tensor, "b t v"]:
        return self.head(self.encode(tokens))

    def train(self, mode: bool = True) -> "Autoencoder":
        super().train(mode)
        if self.settings["frozen"]:
            self.encoder.eval()  # without dropout, which would add noise to the measurement
        return self


def autoencoder(encoder: Model, decoder: Model | None = None, **settings: Any) -> Autoencoder:
    """Return a new autoencoder; the decoder has the settings of the encoder unless given."""
    return Autoencoder(build(encoder), build(decoder or encoder), **settings)


def save(model: Autoencoder, directory: str | Path) -> Path:
    """Write weights and both configurations atomically."""
    from toeplix import __version__

    folder = Path(directory)
    record = {
        "encoder": dataclasses.asdict(model.encoder.config),
        "decoder": dataclasses.asdict(model.decoder.config),
        "settings": model.settings,
    }
    weights = own(model)
    metadata = {"toeplix": __version__, "autoencoder": json.dumps(record), "format": "pt"}
    # readers of filters take the configuration of the encoder
    described: dict[str, Any] = {
        "model_type": "toeplix-autoencoder",
        "toeplix_version": __version__,
    }
    described |= {"model": record["encoder"], **record}
    text = json.dumps(described, indent=2) + "\n"
    with ensure_directory(folder):
        replace_file(folder / WEIGHTS, lambda aside: save_file(weights, aside, metadata=metadata))
        replace_file(folder / CONFIG, lambda aside: aside.write_text(text))
    return folder


def load(directory: str | Path) -> Autoencoder:
    """Return the autoencoder that `save` wrote, in evaluation mode."""
    file = Path(directory) / WEIGHTS
    if not file.exists():
        raise FileNotFoundError(f"{directory} is no autoencoder: there is no {WEIGHTS} in it")
    weights, metadata = contents(file)
    if "autoencoder" not in metadata:
        raise ValueError(f"{file} holds no autoencoder")
    with reading(file):
        record = parse_json(metadata["autoencoder"])
        sides = [configured(json.dumps(record[side]), file) for side in ("encoder", "decoder")]
        bounded(sum(map(stored_numbers, sides)), weights, file)
        model = autoencoder(*sides, **record["settings"])
    fill(model, weights, file)
    return model.eval()
