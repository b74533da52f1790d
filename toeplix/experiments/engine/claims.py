"""The paper's claims, C1 to C20, each tied to the experiments that decide it."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One statement of the paper."""

    text: str
    where: str
    experiments: tuple[str, ...]
    value: str = "figure only"  # what the paper gives


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What rows say about a claim."""

    holds: bool | None  # None: they do not decide it
    ours: str  # the numbers behind it, with their intervals

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
        text="It is not lower than that of quadratic models (Transformer, Masked Mixer).",
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
        text="Heads and kernels help up to four and then hurt; heads win late in training.",
        where="Fig. S1",
        experiments=("variants",),
    ),
    "C6": Claim(
        text="Frozen filters train worse; head projections soften it.",
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
        text="Causal training raises retention; TMM keeps more than Hyena and Mamba 2.",
        where="Fig. 4c",
        experiments=("retention",),
    ),
    "C10": Claim(
        text="Capacity of TMM is above that of Hyena and Mamba 2 at equal width, at 1/2 to 1/8 of the "
        "compute.",
        where="Fig. 4d",
        experiments=("capacity",),
    ),
    "C11": Claim(
        text="Trainable filters are necessary for capacity; heads help the frozen ones.",
        where="Fig. S2",
        experiments=("capacity",),
    ),
    "C12": Claim(
        text="Copying: TMM near or above the Transformer, Hyena slower, Mamba 2 slowest; TMM at 1/32 of "
        "Hyena's width equals it.",
        where="Fig. 5",
        experiments=("copying",),
    ),
    "C13": Claim(
        text="Trainable filters are necessary for copying; the flat trainable TMM is the fastest of all.",
        where="Fig. 5",
        experiments=("copying",),
    ),
    "C14": Claim(
        text="Retrieval and in-context benchmarks are above Hyena's, others on par.",
        where="Fig. 1",
        experiments=("benchmarks",),
        value="table of 14 scores",
    ),
    "C15": Claim(
        text="Trained causal filters have an index near 0 or -1, autoencoders and copy models large "
        "ones.",
        where="Table 1",
        experiments=("index",),
        value="table of 16 layers",
    ),
    "C16": Claim(
        text="Perfect retention does not need invertible filters; depth adds shifts.",
        where="Table 1",
        experiments=("index",),
        value="no number",
    ),
    "C17": Claim(
        text="Causal filters show a recency bias, those of autoencoders none.",
        where="Fig. S5",
        experiments=("filters",),
    ),
    "C18": Claim(
        text="Throughput and memory: TMM is ahead of Hyena and Mamba 2.",
        where="Tables S1-S4",
        experiments=("throughput",),
        value="d = 1024: 5.25 (flat), 4.85 (h4), 2.47 (Hyena), 1.90 (Mamba 2) it/s; "
        "22.7, 28.3, 42.8, 63.3 GB",
    ),
    "C19": Claim(
        text="O(d n log n) time and O(d n) space; dense products are a little faster for n <= 1024, FFT "
        "beyond.",
        where="sections 4, 5",
        experiments=("complexity",),
        value="no number",
    ),
    "C20": Claim(
        text="Prefill of long prompts is faster and leaner than a Transformer's; generation costs the "
        "same.",
        where="sections 4, 6",
        experiments=("complexity", "decoding"),
        value="no number",
    ),
}
