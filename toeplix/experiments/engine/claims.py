"""The paper's claims, C1 to C20, and the experiments that decide each of them."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim of the paper."""

    text: str
    where: str
    experiments: tuple[str, ...]
    value: str = "figure only"  # the numbers that the paper gives


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict of an experiment's rows on a claim."""

    holds: bool | None  # None: the rows do not decide the claim
    ours: str  # the measured numbers, with their intervals

    @property
    def word(self) -> str:
        return {True: "holds", False: "fails", None: "undecided"}[self.holds]


CLAIMS = {
    "C1": Claim(
        text="At equal compute and memory TMM reaches a loss similar to or lower than that of other "
        "sub-quadratic models (Hyena, Mamba 2).",
        where="Fig. 3",
        experiments=("training",),
        value="logs: TMM h4 d1024 2.653, Hyena d512 2.735; at equal width 2.979 against 2.735",
    ),
    "C2": Claim(
        text="At equal compute and memory TMM does not reach a lower loss than quadratic models "
        "(Transformer, Masked Mixer).",
        where="Fig. 3",
        experiments=("training",),
        value="logs: full attention d512 2.740, Masked Mixer d512 2.934",
    ),
    "C3": Claim(
        text="TMM trains more efficiently than windowed attention, even at l = n/2.",
        where="Fig. 3, S3",
        experiments=("window",),
        value="logs: w64 2.854, w128 2.755, w256 2.740 (w256 is full attention at n = 512)",
    ),
    "C4": Claim(
        text="Two sequential Toeplitz layers train worse than one.",
        where="Fig. S1",
        experiments=("variants",),
        value="logs: one 3.127, two 3.193; with 4 heads 3.073, 3.097",
    ),
    "C5": Claim(
        text="Up to four heads or kernels lower the loss, more raise it; heads win late in training.",
        where="Fig. S1",
        experiments=("variants",),
    ),
    "C6": Claim(
        text="Models with frozen filters reach a higher loss; with head projections the difference is "
        "smaller.",
        where="Fig. S2",
        experiments=("frozen",),
    ),
    "C7": Claim(
        text="Causal linear Transformers train slowly and diverge.",
        where="Fig. S0",
        experiments=("linear",),
    ),
    "C8": Claim(
        text="The peak learning rate matters little under decay.",
        where="text",
        experiments=("training",),
        value="no number",
    ),
    "C9": Claim(
        text="Causal language modelling raises retention; TMM retains more than Hyena and Mamba 2.",
        where="Fig. 4c",
        experiments=("retention",),
    ),
    "C10": Claim(
        text="TMM has more capacity than Hyena and Mamba 2 at equal width, with 1/2 to 1/8 of the "
        "compute.",
        where="Fig. 4d",
        experiments=("capacity",),
    ),
    "C11": Claim(
        text="Trainable filters are necessary for capacity; with frozen filters, heads raise capacity.",
        where="Fig. S2",
        experiments=("capacity",),
    ),
    "C12": Claim(
        text="TMM learns to copy about as fast as the Transformer or faster, Hyena is slower, Mamba 2 "
        "slowest; TMM at 1/32 of Hyena's width equals Hyena.",
        where="Fig. 5",
        experiments=("copying",),
    ),
    "C13": Claim(
        text="Trainable filters are necessary for copying; the flat TMM with trainable filters learns to "
        "copy fastest of all models.",
        where="Fig. 5",
        experiments=("copying",),
    ),
    "C14": Claim(
        text="TMM scores higher than Hyena on retrieval and in-context learning benchmarks, and equally "
        "on others.",
        where="Fig. 1",
        experiments=("benchmarks",),
        value="table of 14 scores",
    ),
    "C15": Claim(
        text="Filters trained on language have an index near 0 or -1; those of autoencoders and copy "
        "models have large negative indices.",
        where="Table 1",
        experiments=("index",),
        value="table of 16 layers",
    ),
    "C16": Claim(
        text="Perfect retention does not need invertible filters; stacked layers add shifts (indices add "
        "up).",
        where="Table 1",
        experiments=("index",),
        value="no number",
    ),
    "C17": Claim(
        text="Filters trained on language have a recency bias; those of autoencoders have none.",
        where="Fig. S5",
        experiments=("filters",),
    ),
    "C18": Claim(
        text="TMM has higher throughput and lower memory in training than Hyena and Mamba 2.",
        where="Tables S1-S4",
        experiments=("throughput",),
        value="d = 1024: 5.25 (flat), 4.85 (h4), 2.47 (Hyena), 1.90 (Mamba 2) it/s; "
        "22.7, 28.3, 42.8, 63.3 GB",
    ),
    "C19": Claim(
        text="TMM needs O(d n log n) time and O(d n) memory; dense products are slightly faster than the "
        "FFT for n <= 1024, and slower beyond.",
        where="sections 4, 5",
        experiments=("complexity",),
        value="no number",
    ),
    "C20": Claim(
        text="Prefill of long prompts takes less time and memory than a Transformer's; generation has "
        "the same cost.",
        where="sections 4, 6",
        experiments=("complexity", "decoding"),
        value="no number",
    ),
}
