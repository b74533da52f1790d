"""The adapter from a checkpoint to lm-evaluation-harness, where it is registered as `toeplix`.

    lm_eval.simple_evaluate(model=Checkpoint("runs/mine/model"), tasks=["arc_easy"])
    lm_eval.simple_evaluate(model="toeplix", model_args="pretrained=runs/mine/model", tasks=[...])

Texts begin with the tokenizer's start token, as in training. What does not fit into the context is
truncated on the left, as in the harness, and counted by task in `truncations`.
"""

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.models.utils import postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from toeplix.devices import AUTO, choose_device, choose_dtype
from toeplix.evaluation.scoring import score
from toeplix.evaluation.truncation import Truncations, room
from toeplix.inference.generation import MAX_BATCH, complete
from toeplix.inference.loading import load_pretrained
from toeplix.inference.sampling import GREEDY, Sampling
from toeplix.inference.scheduler import Job
from toeplix.model import LanguageModel

NEW = 256  # new tokens if the task does not set their number


@register_model("toeplix")
class Checkpoint(TemplateLM):  # type: ignore[misc]
    """A model that toeplix trained, with its tokenizer."""

    def __init__(
        self,
        pretrained: str | Path,
        *,
        batch_size: int | str | None = "auto",
        max_batch_size: int | None = None,
        device: str | torch.device | None = None,
        dtype: torch.dtype | str | None = None,
        max_length: int | None = None,
    ) -> None:
        super().__init__()
        # by itself, the harness asks for cuda:0 also where there is none
        asked = AUTO if device is None or str(device) == "cuda:0" else str(device)
        self._device = choose_device(asked)
        kind = choose_dtype(dtype, self._device) if isinstance(dtype, str) else dtype
        model, tokenizer, self.source = load_pretrained(pretrained, device=self._device, dtype=kind)
        self.model: LanguageModel = model
        self.tokens = tokenizer
        self.batch = rows_of(batch_size)
        self.max_length = max_length or model.config.context
        if self.max_length < 2:
            raise ValueError(f"max_length={self.max_length} must be at least 2")
        self.truncations = Truncations()

    @property
    def eot_token_id(self) -> int:
        return self.tokens.end

    @property
    def prefix_token_id(self) -> int:
        return self.tokens.start

    @property
    def tokenizer_name(self) -> str:
        return str(self.source)

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Return the tokens of a text, after the start token unless `add_special_tokens` is False."""
        start = [] if add_special_tokens is False else [self.tokens.start]
        return start + self.tokens.encode(string)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        known: dict[str, list[int]] = {}  # choices of a question share their context

        def encoded(text: str) -> list[int]:
            if text not in known:
                known[text] = self.tok_encode(text)
            return known[text]

        pairs = []
        for request in requests:
            context, continuation = request.args
            if not continuation:
                raise ValueError(
                    f"a request of {request.task_name or 'a task'} has no continuation"
                )
            # spaces between the two belong to the word that follows
            bare = context.rstrip()
            pairs.append(_split(encoded(bare), self.tok_encode(context + continuation)))
        return self._score(pairs, _names(requests), "scored texts", disable_tqdm)

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        pairs = [(context, continuation) for _, context, continuation in requests]
        return self._score(pairs, ["tokens"] * len(pairs), "scored texts", True)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        pairs: list[tuple[list[int], list[int]]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            windows = get_rolling_token_windows(
                token_list=self.tokens.encode(request.args[0]),
                prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length,
                context_len=1,
            )
            pairs += map(make_disjoint_window, windows)
            owners += [number] * (len(pairs) - len(owners))
        names = _names(requests)
        for number, count in Counter(owners).items():
            self.truncations.note(names[number], "texts read in several windows", count > 1)
        sums = [0.0] * len(requests)
        results = self._score(pairs, None, "windows", disable_tqdm)
        for number, (value, _) in zip(owners, results, strict=True):
            sums[number] += value
        return sums

    def _score(
        self,
        pairs: Sequence[tuple[list[int], list[int]]],
        names: list[str] | None,
        what: str,
        quiet: bool,
    ) -> list[tuple[float, bool]]:
        fitting = []
        for number, (context, continuation) in enumerate(pairs):
            over = len(context) + len(continuation) - 1 - self.max_length
            if names is not None:
                self.truncations.note(names[number], "contexts truncated", 0 < over < len(context))
                self.truncations.note(
                    names[number], "continuations truncated", over >= len(context)
                )
            if over > 0:
                whole = (context + continuation)[over:]
                context, continuation = whole[: -len(continuation)], whole[-len(continuation) :]
                # a continuation that fills the context alone is scored from its second token on
                context, continuation = context or whole[:1], continuation if context else whole[1:]
            fitting.append((context, continuation))
        with tqdm(total=len(pairs), desc=what, disable=True if quiet else None) as bar:
            return score(self.model, fitting, batch=self.batch, done=bar.update)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        names, jobs, ends = _names(requests), [], []
        for request, name, turn in zip(requests, names, _turns(requests), strict=True):
            context, wanted = request.args
            stops, new, sampling = settings(wanted)
            prompt = self.tok_encode(context)
            kept, allowed = room(self.max_length, len(prompt), new)
            self.truncations.note(name, "prompts truncated", kept < len(prompt))
            seed = hashlib.sha256(f"{turn} {context}".encode()).digest()
            jobs.append(
                Job(
                    prompt=prompt[-kept:],
                    max_new_tokens=allowed,
                    stop_tokens=frozenset([self.tokens.end]),
                    stop_strings=stops,
                    decode=self.tokens.decode,
                    sampling=sampling,
                    seeds=(int.from_bytes(seed[:6], "big"),),
                )
            )
            ends.append((stops, allowed < new))
        with tqdm(total=len(jobs), desc="texts", disable=True if disable_tqdm else None) as bar:
            rows: list[list[int]] = [[] for _ in jobs]
            for number, event in complete(self.model, jobs, max_batch=self.batch or MAX_BATCH):
                if event.token != self.tokens.end:
                    rows[number].append(event.token)
                bar.update(event.finish_reason is not None)
        texts = []
        for name, row, job, (stops, shortened) in zip(names, rows, jobs, ends, strict=True):
            full = shortened and len(row) == job.max_new_tokens
            self.truncations.note(name, "completions truncated", full)
            texts.append(postprocess_generated_text(self.tokens.decode(row), list(stops), None))
        return texts


def settings(wanted: dict[str, Any]) -> tuple[tuple[str, ...], int, Sampling]:
    """Return stop sequences, the number of new tokens and the sampling of a generation request."""
    until = wanted.get("until") or []
    stops = (until,) if isinstance(until, str) else tuple(stop for stop in until if stop)
    new = int(wanted.get("max_gen_toks") or wanted.get("max_new_tokens") or NEW)
    if not wanted.get("do_sample"):
        return stops, new, GREEDY
    sampling = Sampling(
        temperature=float(wanted.get("temperature", 1.0)),
        top_k=int(wanted.get("top_k") or 0),
        top_p=float(wanted.get("top_p") or 1.0),
    )
    return stops, new, sampling


def _split(start: list[int], whole: list[int]) -> tuple[list[int], list[int]]:
    """Return the tokens of a text in two parts, of which the second is scored.

    They part after the context's tokens, as in the harness, or earlier where the tokenizer merges the
    end of the context with the continuation: at the first token that differs, at the latest the last.
    """
    shared = itertools.takewhile(lambda pair: pair[0] == pair[1], zip(start, whole, strict=False))
    first = min(sum(1 for _ in shared), len(whole) - 1)
    return whole[:first], whole[first:]


def _names(requests: Iterable[Instance]) -> list[str]:
    return [request.task_name or "a task" for request in requests]


def _turns(requests: Iterable[Instance]) -> list[int]:
    """Return how often each request has occurred before it, so that repeated requests sample anew."""
    count: Counter[tuple[str, str, Any]] = Counter()
    turns = []
    for request in requests:
        key = (request.task_name or "", str(request.args), request.doc_id)
        turns.append(count[key])
        count[key] += 1
    return turns


def rows_of(size: int | str | None) -> int | None:
    """Return the number of rows of a batch; None if it depends on their length (`auto`)."""
    if size is None or (isinstance(size, str) and size.startswith("auto")):
        return None
    try:
        rows = int(size)
    except ValueError:
        rows = 0
    if not 1 <= rows < 2**31:
        raise ValueError(f"batch size {size!r:.60} must be a number of at least 1, or 'auto'")
    return rows
