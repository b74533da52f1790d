"""Tokenizers: byte-level BPE trained here, or any fast tokenizer of Hugging Face; saved in its format.

    Tokenizer.train(texts, vocab)   all 256 bytes in the alphabet, no normaliser: decoding is lossless
    Tokenizer.load(directory)       tokenizer.json and tokenizer_config.json, with `tokenizers` alone
    fetch(name, directory)          by name from the hub or from a directory, through AutoTokenizer

A document is `start`, its text, `end`. Control tokens that occur in a text are encoded as text: the
string "<|eos|>" becomes several tokens and cannot end a document.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toeplix.files import field, parse_json, printable, read_json, reading, replace_file, sha256
from toeplix.pretrained_files import REMEDY, TOKENS, control_tokens, start_processor
from toeplix.pretrained_files import TOKENIZER_CONFIG as CONFIG

START, END, PAD = "<|bos|>", "<|eos|>", "<|pad|>"
MIN_VOCAB = 260  # 256 bytes, three control tokens and a merge
MAX_VOCAB = 2**22  # four times the largest in use: what a mistake looks like, or an attack
MAX_BYTES = 2**28  # of a tokenizer.json


class Tokenizer:
    """Encodes text to tokens and decodes tokens to text. `backend` is a `tokenizers.Tokenizer`."""

    def __init__(self, backend: Any, *, start: str, end: str, pad: str) -> None:
        backend.encode_special_tokens = True  # control tokens in a text are encoded as text
        backend.no_truncation()
        backend.no_padding()
        self.backend = backend
        self.control = {"start": start, "end": end, "pad": pad}
        self.start, self.end, self.pad = (backend.token_to_id(name) for name in (start, end, pad))
        for name, token in zip((start, end, pad), (self.start, self.end, self.pad), strict=True):
            if token is None:
                raise ValueError(f"control token {name!r} is not in the tokenizer's vocabulary")

    @classmethod
    def train(cls, texts: Iterable[str], vocab: int) -> "Tokenizer":
        """Train byte-level BPE with at most `vocab` tokens; fewer if there are no more pairs to merge."""
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers, trainers

        check_vocab(vocab)
        backend = Backend(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=[START, END, PAD],
            show_progress=False,
        )
        backend.train_from_iterator(texts, trainer)
        return cls(backend, start=START, end=END, pad=PAD)

    @classmethod
    def load(cls, directory: str | Path) -> "Tokenizer":
        folder = Path(directory)
        for name in (TOKENS, CONFIG):
            if not (folder / name).is_file():
                raise FileNotFoundError(
                    f"{printable(folder)} holds no tokenizer: there is no {name} in it"
                )
        backend = _backend(folder)
        config = read_json(folder / CONFIG, REMEDY)
        with reading(folder / CONFIG, REMEDY):
            control = control_tokens(config)
            return cls(backend, start=control["bos"], end=control["eos"], pad=control["pad"])

    def save(self, directory: str | Path) -> None:
        """Write the files that `Tokenizer.load` and `AutoTokenizer.from_pretrained` read.

        `AutoTokenizer` puts the start token before a text, by a post-processor; `encode` does not.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        config = {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": self.control["start"],
            "eos_token": self.control["end"],
            "pad_token": self.control["pad"],
            "padding_side": "left",  # a prompt ends where its completion begins
            "clean_up_tokenization_spaces": False,
            "split_special_tokens": True,
        }
        tokens = json.loads(self.backend.to_str())
        tokens["post_processor"] = start_processor(self.control["start"], self.start)
        described = json.dumps(tokens, indent=2, ensure_ascii=False)
        replace_file(folder / TOKENS, lambda aside: aside.write_text(described, encoding="utf-8"))
        text = json.dumps(config, indent=2) + "\n"
        replace_file(folder / CONFIG, lambda aside: aside.write_text(text, encoding="utf-8"))

    @functools.cached_property
    def vocab(self) -> int:
        """The largest token plus one: the number of rows of an embedding."""
        return max(self.backend.get_vocab(with_added_tokens=True).values()) + 1

    @functools.cached_property
    def dtype(self) -> np.dtype[Any]:
        """The smallest dtype that holds every token; tokens have it on disk."""
        return np.dtype("<u2" if self.vocab <= 2**16 else "<u4")

    def encode(self, text: str) -> list[int]:
        """The tokens of a text alone, without `start` and `end`."""
        with encoding():
            return self.backend.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int] | NDArray[Any], *, control: bool = False) -> str:
        """Return the text of tokens; control tokens are left out unless `control` is true."""
        return self.backend.decode(
            [int(token) for token in tokens], skip_special_tokens=not control
        )

    def token_bytes(self) -> NDArray[np.int64]:
        """Return the number of bytes of text of each token (0 for control tokens), for bits per byte."""
        if not self.byte_level:
            raise ValueError("the tokens of a tokenizer that is not byte-level have no fixed bytes")
        lengths = np.zeros(self.vocab, dtype=np.int64)
        for token, number in self.backend.get_vocab(with_added_tokens=False).items():
            lengths[number] = len(token)  # in this alphabet a character is a byte
        for number, added in self.backend.get_added_tokens_decoder().items():
            lengths[number] = 0 if added.special else len(added.content.encode())
        return lengths

    @functools.cached_property
    def byte_level(self) -> bool:
        """Whether this is byte-level BPE with GPT-2's pre-tokenizer, which encoding.py speeds up."""
        described = json.loads(self.backend.to_str())
        cutting, model = described["pre_tokenizer"] or {}, described["model"]
        return (
            cutting.get("type") == "ByteLevel"
            and cutting.get("use_regex", True)
            and not cutting["add_prefix_space"]
            and described["normalizer"] is None
            and model["type"] == "BPE"
            and not model["dropout"]
            and not model["continuing_subword_prefix"]
            and not model["end_of_word_suffix"]
            and all(token["special"] for token in described["added_tokens"])
        )


def check_vocab(vocab: int) -> None:
    """Reject the size of a tokenizer that cannot be trained."""
    if vocab < MIN_VOCAB:
        raise ValueError(
            f"vocab={vocab} must be at least {MIN_VOCAB}: 256 bytes, control tokens, merges"
        )
    if vocab > MAX_VOCAB:
        raise ValueError(f"vocab={vocab} must be at most {MAX_VOCAB}")


@contextmanager
def encoding() -> Iterator[None]:
    """The library raises plain Exception, for example where there is no token for what is unknown."""
    try:
        yield
    except Exception as problem:
        raise ValueError(f"the tokenizer cannot encode this text: {problem}") from problem


def _backend(folder: Path) -> Any:
    """The library's tokenizer, after every number in the file was compared with its bound."""
    from tokenizers import Tokenizer as Backend

    with reading(f"{folder} holds a damaged tokenizer: {TOKENS}", REMEDY):
        size = (folder / TOKENS).stat().st_size
        if size > MAX_BYTES:
            raise ValueError(f"it has {size:,} bytes, of which at most {MAX_BYTES:,} are read")
        text = (folder / TOKENS).read_bytes()
        _check_ids(parse_json(text))
        try:
            return Backend.from_buffer(text)
        except Exception as problem:  # the library raises plain Exception
            raise ValueError(str(problem)) from problem


def _check_ids(described: dict[str, Any]) -> None:
    tokens = field(described, "model", dict)["vocab"]
    if not isinstance(tokens, dict | list):
        raise TypeError("field 'vocab' must be an object or an array")
    numbers = list(tokens.values()) if isinstance(tokens, dict) else list(range(len(tokens)))
    numbers += [field(added, "id", int) for added in described.get("added_tokens") or []]
    if not numbers:
        raise ValueError("it has no tokens")
    for number in numbers:
        if type(number) is not int or not 0 <= number < MAX_VOCAB:
            raise ValueError(f"token id {number!r} must be an integer in [0, {MAX_VOCAB})")


def fetch(name: str, directory: str | Path) -> Tokenizer:
    """Load a tokenizer from the hub or a directory and save it in `directory`. Runs no remote code."""
    from transformers import AutoTokenizer

    try:
        if (Path(name) / TOKENS).is_file():
            _backend(Path(name))  # its bounds are checked before anybody else reads it
        found = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    except Exception as problem:  # of the hub, the network or the files: any class
        reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
        raise ValueError(f"tokenizer {name} cannot be loaded: {reason}") from problem
    if not getattr(found, "is_fast", False):
        raise ValueError(f"tokenizer {name} has no fast form (tokenizer.json): convert it first")
    found.save_pretrained(str(directory))
    return Tokenizer.load(directory)


def digest(directory: str | Path) -> str:
    """Return the sha256 of a saved tokenizer's tokenizer.json, which identifies it."""
    return sha256(Path(directory) / TOKENS)
