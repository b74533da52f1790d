"""Any causal language model of Hugging Face beside ours: the harness's own class, which counts its cuts.

Left alone it cuts prompts silently and refuses answers that are longer than the context.
"""

from typing import Any

import torch
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM

from toeplix.evaluation.model import NEW
from toeplix.evaluation.truncation import Cuts, room


class Borrowed(HFLM):  # type: ignore[misc]
    """A model by its name at the hub, or its directory."""

    def __init__(self, pretrained: str, *, batch_size: int | str, device: str | None) -> None:
        where = device or ("cuda" if torch.cuda.is_available() else "cpu")
        # finding the largest batch by trying needs memory that reports its end, as GPUs have it
        size = 8 if batch_size == "auto" and where == "cpu" else batch_size
        try:
            super().__init__(
                pretrained=pretrained, trust_remote_code=False, batch_size=size, device=where
            )
        except Exception as problem:  # of the hub, the network or the files: any class
            reason = str(problem).strip().partition("\n")[0] or type(problem).__name__
            raise ValueError(f"{pretrained} cannot be loaded: {reason}") from problem
        self.cuts = Cuts()

    def loglikelihood(self, requests: list[Instance], disable_tqdm: bool = False) -> Any:
        for request in requests:
            length = len(self.tok_encode("".join(request.args))) - 1
            self.cuts.note(request.task_name, "contexts cut", length > self.max_length)
        return super().loglikelihood(requests, disable_tqdm)

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> Any:
        for request in requests:
            several = len(self.tok_encode(request.args[0])) > self.max_length
            self.cuts.note(request.task_name, "texts read in several windows", several)
        return super().loglikelihood_rolling(requests, disable_tqdm)

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        fitting = []
        for request in requests:
            context, wanted = request.args
            new = int(wanted.get("max_gen_toks") or NEW)
            length = len(self.tok_encode(context))
            kept, _ = room(self.max_length, length, new)
            # a batch shares its number of new tokens, so this does not look at the prompt
            allowed = min(new, max(1, self.max_length // 2))
            self.cuts.note(request.task_name, "prompts cut", kept < length)
            self.cuts.note(request.task_name, "answers held shorter than asked for", allowed < new)
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
