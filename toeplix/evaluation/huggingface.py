"""Causal language models of Hugging Face, by the harness's own class, with truncations counted.

The harness's class alone truncates prompts without a note, and rejects requests for more new tokens than
the context has.
"""

from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from toeplix.devices import choose_device
from toeplix.evaluation.model import NEW
from toeplix.evaluation.truncation import Truncations, room


class HuggingFaceModel(HFLM):  # type: ignore[misc]
    """A model by its name at the hub or by its directory."""

    def __init__(
        self,
        pretrained: str,
        *,
        batch_size: int | str,
        device: torch.device | None,
        dtype: torch.dtype | None = None,
    ) -> None:
        where = str(device or choose_device())
        # the search for the largest batch needs out-of-memory errors, which only GPUs raise reliably
        size = 8 if batch_size == "auto" and where == "cpu" else batch_size
        try:
            super().__init__(
                pretrained=pretrained,
                trust_remote_code=False,
                batch_size=size,
                device=where,
                dtype=dtype or "auto",
            )
        except Exception as problem:  # from the hub, the network or the files, of any class
            reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
            raise ValueError(f"{pretrained} cannot be loaded: {reason}") from problem
        self.truncations = Truncations()

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> Any:
        for request in requests:
            length = len(self.tok_encode("".join(request.args))) - 1
            self.truncations.note(request.task_name, "contexts truncated", length > self.max_length)
        return super().loglikelihood(requests, disable_tqdm)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> Any:
        for request in requests:
            several = len(self.tok_encode(request.args[0])) > self.max_length
            self.truncations.note(request.task_name, "texts read in several windows", several)
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        fitting = []
        for request in requests:
            context, wanted = request.args
            new = int(wanted.get("max_gen_toks") or NEW)
            length = len(self.tok_encode(context))
            kept, _ = room(self.max_length, length, new)
            # all requests of a batch share this number, so it must not depend on the prompt
            allowed = min(new, max(1, self.max_length // 2))
            self.truncations.note(request.task_name, "prompts truncated", kept < length)
            self.truncations.note(
                request.task_name, "completions limited to half of the context", allowed < new
            )
            fitting.append(_with(request, {**wanted, "max_gen_toks": allowed}))
        return super().generate_until(fitting, disable_tqdm)


def _with(request: Instance, wanted: dict[str, Any]) -> Instance:
    return Instance(
        request_type=request.request_type,
        doc=request.doc,
        arguments=(request.args[0], wanted),
        idx=request.idx,
        metadata=request.metadata,
    )
