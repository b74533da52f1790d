"""Command lines that work, one for every subcommand, and values that do not belong into any of them."""

import signal
from dataclasses import dataclass, field
from shlex import split
from typing import Any

from tests.fuzz.targets import BUILD, LASTING, SHORT


@dataclass(frozen=True, kw_only=True)
class Base:
    """A command line that works over tiny fixtures."""

    positional: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)  # as on a command line
    fixtures: list[str] = field(default_factory=list)
    statuses: tuple[int, ...] = (0, 2)
    patience: float = 4.0  # seconds until it is told to end
    ending: int = signal.SIGINT
    share: float = 1.0


_TINY = split("--dim 8 --depth 1 --threads 1")
_SERVER: dict[str, Any] = {"ending": signal.SIGTERM, "patience": LASTING, "share": 0.2}
BASES: dict[str, Base] = {
    "": Base(share=0.2),
    "train": Base(
        options=["--data", "store", "--config", "config.json", "--out", "new", *SHORT],
        fixtures=["store", "config.json", "texts"],
        share=4,
    ),
    "generate": Base(
        positional=["run/model", "one two"],
        options=["--max-new-tokens", "3"],
        fixtures=["run/model"],
        share=4,
    ),
    "data build": Base(
        positional=["texts/toy.jsonl"],
        options=BUILD,
        fixtures=["texts", "store/tokenizer"],
        share=3,
    ),
    "data show": Base(positional=["store"], options=["--rows", "1"], fixtures=["store"]),
    "data check": Base(positional=["store"], fixtures=["store"], share=0.5),
    "plan": Base(
        positional=["config.json"],
        options=["--hardware", "h100"],
        fixtures=["config.json", "run"],
        share=2,
    ),
    "import": Base(positional=["upstream/toeplitz.safetensors", "new"], fixtures=["upstream"]),
    "spectrum": Base(
        positional=["run/model"], options=["--no-figures"], fixtures=["run/model"], share=0.6
    ),
    "page": Base(positional=["run", "page2.html"], fixtures=["run"], share=0.5),
    "experiment list": Base(share=0.05),
    "experiment report": Base(
        options=split("--out new/claims.md --html new/claims.html --figures new"),
        fixtures=["results/complexity"],
        share=0.3,
    ),
    "experiment plot": Base(
        positional=["complexity"],
        options=["--out", "new"],
        fixtures=["results/complexity"],
        share=0.6,
    ),
    "experiment run": Base(
        positional=["complexity"],
        options=split("--scale smoke --data texts/toy.jsonl --work new --results rows"),
        fixtures=["texts"],
        statuses=(0, 1, 2),  # 1: cases failed, and are recorded
        patience=2,
        share=0.1,
    ),
    "probe": Base(
        positional=["run/model"],
        options=split(
            "--data store --steps 1 --batch 2 --context 4 --results rows --work new --seed 1"
        ),
        fixtures=["run/model", "store"],
        share=0.3,
    ),
    "eval": Base(
        positional=["hyena"],
        options=split("--tasks lambada_openai --data-root benchmarks --limit 1 --batch 1"),
        fixtures=["hyena", "benchmarks"],
        share=0.2,
    ),
    "serve": Base(
        positional=["run/model"], options=["--port", "0"], fixtures=["run/model"], **_SERVER
    ),
    "explore": Base(positional=["."], options=["--port", "0"], fixtures=["run"], **_SERVER),
    "demo": Base(options=["--out", "new", "--steps", "2"], patience=2, share=0.03),
    "bench ops": Base(options=split("--quick --seconds 0.01 --threads 1"), patience=2, share=0.03),
    "bench recurrent": Base(options=split("--seconds 0.01 --threads 1"), patience=2, share=0.03),
    "bench prefill": Base(positional=["16"], options=_TINY, share=0.1),
    "bench decode": Base(positional=["16"], options=_TINY, share=0.1),
    "bench training": Base(
        options=[*_TINY, *split("--batch 2 --context 8 --seconds 0.1")], patience=2, share=0.03
    ),
    "bench family": Base(
        positional=["16"],
        options=[
            "--dim",
            "16",
            "--depth",
            "1",
            *split("--threads 1 --batch 2 --context 8 --seconds 0.1"),
        ],
        patience=2,
        share=0.03,
    ),
    "bench long": Base(
        positional=["16"], options=split("--dim 8 --depth 1 --context 8"), patience=2, share=0.03
    ),
    "bench quantize": Base(
        positional=["1"], options=split("--dim 16 --depth 1"), patience=2, share=0.03
    ),
    "doctor": Base(
        options=split("--device cpu --quick --no-tune --out new.json"), patience=2, share=0.03
    ),
    "quantize": Base(
        positional=["run/model", "new"], options=["--to", "int8"], fixtures=["run/model"], share=0.5
    ),
    "bench data": Base(
        positional=["texts/toy.jsonl"],
        options=split("--megabytes 0.1 --vocab 300 --rounds 1 --processes 1"),
        fixtures=["texts"],
        share=0.1,
    ),
    "bench spectrum": Base(options=["--seconds", "0.01"], patience=2, share=0.03),
    "bench eval": Base(
        options=[*_TINY, *split("--questions 2 --vocab 300 --rounds 1")], patience=2, share=0.03
    ),
    "bench serve": Base(
        positional=["1"],
        options=[
            *_TINY,
            *split("--streams 1 --seconds 0.1 --new 2 --rounds 1 --context 8 --vocab 300"),
        ],
        patience=2,
        share=0.03,
    ),
}

INTEGERS = [
    *split("-1 0 1 2 3 17 1000000000 2147483648 9223372036854775808 18446744073709551616"),
    *split("-9223372036854775809 1.5 0x10 1_0 nan \uff11"),
    *("", " 1", "9" * 5000),
]
FLOATS = [*split("nan inf -inf -1 0 1e-300 1e300 1e999 0.5 -0.0 1 2 1e-46 x 0,5"), ""]
TEXTS = [
    *(
        "",
        " ",
        "-",
        "--",
        "-1",
        "a" * 100_000,
        "\udcff\udcfe",
        "x\udc80",
        "\n",
        "%s{}",
        "\U0001f600",
    ),
    *(
        "..",
        "python ",
        "hf:",
        "hf:x:y:z:w",
        "hf:no/such",
        "cuda:99",
        "auto",
        "all",
        "\u202e",
        "[b]",
    ),
]
PATHS = [
    *split(". .. user user/notes.md user/notes.md/x user/dir user/empty user/link user/loop"),
    *split("user/dangling user/fifo user/socket user/device user/secret user/script.py"),
    *split("/dev/null /dev/full /nonexistent/x docs/experiments.md nowhere nowhere/deeper"),
    *split("run/model store texts config.json user/dir/new home page.html"),
    *("", " ", "\udcff\udcfe", "user/\udcff", "n" * 300, "a/" * 3000, "~", "~/x", "user/\n", "*"),
]
