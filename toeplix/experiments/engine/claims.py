"""The paper's claims, C1 to C20, in parts that are decided one by one, and verdicts on them."""

from dataclasses import dataclass
from typing import Literal, get_args

MAX_WORDS = 12  # of the text of a part
Kind = Literal["holds", "fails", "undecided", "control not trained", "not testable here"]
KINDS: tuple[Kind, ...] = get_args(Kind)
ONE_SEED = "one seed only"  # how the reason of an undecided part ends that more seeds may decide


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of an experiment's rows on one part of a claim."""

    kind: Kind
    number: str  # the number that decides, with its interval
    reason: str
    ours: str  # all measured numbers, with their intervals

    @property
    def tests(self) -> bool:
        """Whether the rows could decide the part: they are about it, and of more than one seed."""
        return self.kind != "not testable here" and not self.reason.endswith(ONE_SEED)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One statement that is decided by itself, in at most MAX_WORDS words."""

    text: str
    experiment: str  # whose rows decide it


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper: where it is made, the numbers that the paper gives, and its parts."""

    where: str
    parts: dict[str, Part]
    value: str = "figure only"

    @property
    def experiments(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(part.experiment for part in self.parts.values()))


def _claim(
    name: str, where: str, *said: tuple[str, str], value: str = "figure only"
) -> tuple[str, Claim]:
    """Return a claim whose parts are (experiment, text); several of them get letters."""
    letters = "abcdefgh" if len(said) > 1 else [""]
    parts = {
        f"{name}{letter}": Part(text=text, experiment=experiment)
        for letter, (experiment, text) in zip(letters, said, strict=False)
    }
    return name, Claim(where=where, parts=parts, value=value)


CLAIMS = dict(
    [
        _claim(
            "C1",
            "Fig. 3",
            ("frontier", "At equal FLOPs, TMM's best loss is at most Hyena's."),
            ("frontier", "At equal FLOPs, TMM's best loss is at most Mamba 2's."),
            ("frontier", "At equal training time, TMM's loss is at most Hyena's."),
            ("training", "At Hyena's cost per step, TMM's loss is at most Hyena's."),
            value="logs: TMM h4 d1024 2.653, Hyena d512 2.735; at equal width 2.979 against 2.735",
        ),
        _claim(
            "C2",
            "Fig. 3",
            ("training", "At equal cost, the Transformer's loss is at most TMM's."),
            ("training", "At equal cost, the Masked Mixer's loss is at most TMM's."),
            value="logs: full attention d512 2.740, Masked Mixer d512 2.934",
        ),
        _claim(
            "C3",
            "Fig. 3, S3",
            ("window", "TMM's loss is below that of attention to 1/8 of the context."),
            ("window", "TMM's loss is below that of attention to 1/4 of the context."),
            ("window", "TMM's loss is below that of attention to 1/2 of the context."),
            value="logs: w64 2.854, w128 2.755, w256 2.740 (w256 is full attention at n = 512)",
        ),
        _claim(
            "C4",
            "Fig. S1",
            ("variants", "Two Toeplitz layers in sequence train worse than one."),
            value="logs: one 3.127, two 3.193; with 4 heads 3.073, 3.097",
        ),
        _claim(
            "C5",
            "Fig. S1",
            ("variants", "Four heads lower the loss of the flat model."),
            ("variants", "Sixteen heads raise the loss above that of four."),
            ("variants", "Four kernels lower the loss of the flat model."),
            ("variants", "Sixteen kernels raise the loss above that of four."),
            ("variants", "The advantage of heads over the flat model grows during training."),
        ),
        _claim(
            "C6",
            "Fig. S2",
            ("frozen", "Models with frozen filters reach a higher loss than trained ones."),
            ("frozen", "With frozen filters, heads reach a lower loss than flat."),
        ),
        _claim(
            "C7",
            "Fig. S0",
            ("linear", "Causal linear attention trains more slowly than full attention."),
            ("linear", "Causal linear attention with exp diverges in float32."),
            ("linear", "Causal linear attention with exp diverges in bfloat16."),
        ),
        _claim(
            "C8",
            "text",
            ("training", "The peak learning rate matters little under decay."),
            value="no number",
        ),
        _claim(
            "C9",
            "Fig. 4c",
            ("retention", "Training on language raises TMM's retention."),
            ("retention", "Training on language raises Hyena's retention."),
            ("retention", "Training on language raises Mamba 2's retention."),
            ("retention", "TMM retains more than Hyena."),
            ("retention", "TMM retains more than Mamba 2."),
        ),
        _claim(
            "C10",
            "Fig. 4d",
            ("capacity", "At equal width TMM has more capacity than Hyena."),
            ("capacity", "At equal width TMM has more capacity than Mamba 2."),
            ("capacity", "TMM needs at most half of Hyena's compute."),
            ("capacity", "TMM needs at most half of Mamba 2's compute."),
        ),
        _claim(
            "C11",
            "Fig. S2",
            ("capacity", "Without heads, trained filters have more capacity than frozen ones."),
            ("capacity", "With heads, trained filters have more capacity than frozen ones."),
            ("capacity", "With frozen filters, heads have more capacity than flat."),
        ),
        _claim(
            "C12",
            "Fig. 5",
            ("copying", "TMM learns to copy at least as fast as the Transformer."),
            ("copying", "Hyena learns to copy more slowly than TMM."),
            ("copying", "Mamba 2 learns to copy more slowly than Hyena."),
            ("copying", "TMM of 1/32 of Hyena's width learns to copy as fast."),
        ),
        _claim(
            "C13",
            "Fig. 5",
            ("copying", "The flat model with frozen filters does not learn to copy."),
            ("copying", "The flat TMM learns to copy fastest of all models."),
            ("copying", "With frozen filters and heads, copying is slower than the Transformer's."),
        ),
        _claim(
            "C14",
            "Fig. 1",
            ("benchmarks", "TMM scores above Hyena on retrieval and in-context learning."),
            ("benchmarks", "TMM scores as high as Hyena on other benchmarks."),
            value="table of 14 scores",
        ),
        _claim(
            "C15",
            "Table 1",
            ("index", "Filters trained on language have an index near 0 or -1."),
            ("index", "Filters of copy models have large negative indices."),
            ("index", "Filters of autoencoders have large negative indices."),
            value="table of 16 layers",
        ),
        _claim(
            "C16",
            "Table 1",
            ("index", "Perfect copying does not need invertible filters."),
            ("index", "The indices of stacked layers add up."),
            value="no number",
        ),
        _claim(
            "C17",
            "Fig. S5",
            ("filters", "Filters trained on language have a recency bias."),
            ("filters", "Filters of autoencoders have no recency bias."),
        ),
        _claim(
            "C18",
            "Tables S1-S4",
            ("throughput", "TMM trains faster than Hyena."),
            ("throughput", "TMM trains faster than Mamba 2."),
            ("throughput", "TMM needs less memory in training than Hyena."),
            value="d = 1024: 5.25 (flat), 4.85 (h4), 2.47 (Hyena), 1.90 (Mamba 2) it/s; "
            "22.7, 28.3, 42.8, 63.3 GB",
        ),
        _claim(
            "C19",
            "sections 4, 5",
            ("complexity", "TMM's time grows as n log n with the context."),
            ("complexity", "TMM's memory grows at most linearly with the context."),
            ("complexity", "Dense products are slightly faster than the FFT up to 1024."),
            value="no number",
        ),
        _claim(
            "C20",
            "sections 4, 6",
            ("complexity", "Prefill of long prompts takes less time than a Transformer's."),
            ("complexity", "Prefill of long prompts takes less memory than a Transformer's."),
            ("decoding", "Generation takes as much time as a Transformer's."),
            value="no number",
        ),
    ]
)


def claim_of(part: str) -> str:
    """Return the claim that a part belongs to.

    >>> claim_of("C5a"), claim_of("C1")
    ('C5', 'C1')
    """
    return part.rstrip("abcdefgh")
