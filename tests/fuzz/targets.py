"""What is read by which command: every format, the files of that kind, and what must hold afterwards.

A target names the fixtures that a command needs, the files among them that are changed, how, and the
commands that read them. `sound` says which expectations hold while no checksum was made to agree.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from shlex import split

from tests.fuzz import formats, mutators

Mutator = Callable[[Random, bytes], bytes]
GENERATE = ["one two", "--max-new-tokens", "4", "--temperature", "0"]
BUILD = ["--out", "new", "--vocab", "300", "--processes", "1", "--val-fraction", "0.1"]
SHORT = split("--steps 2 --warmup 0 --eval-every 0 --sample-every 0")
LASTING = 1.2  # seconds after which a server is told to end


@dataclass(frozen=True, kw_only=True)
class Reader:
    """A command over a target."""

    argv: list[str]
    writes: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    expect: str = ""  # while checksums are as they were: "stdout", "weights" or "rejected"
    weights: str = ""  # the file for "weights"
    lasting: bool = False  # it serves until it is told to end
    share: float = 1.0  # how often, among the commands of a target


@dataclass(frozen=True, kw_only=True)
class Target:
    name: str
    fixtures: list[str]
    files: list[str]  # patterns
    mutators: tuple[Mutator, ...]
    readers: list[Reader]
    share: float = 1.0
    archive: str = ""  # gz, xz or zst: the documents are compared with an independent reading
    lines: bool = False  # an object a line: none may be passed over


def generate(model: str, **rest: object) -> Reader:
    return Reader(argv=["generate", model, *GENERATE], **rest)  # type: ignore[arg-type]


JSON = (mutators.json_text, mutators.json_text, mutators.json_text, mutators.any_bytes)
LINES = (mutators.json_lines, mutators.json_lines, mutators.any_bytes)
TENSORS = (formats.safetensors, formats.safetensors, formats.safetensors, mutators.any_bytes)
BYTES = (mutators.any_bytes,)


def _serves(model: str) -> list[Reader]:
    return [
        Reader(argv=["@serve", model]),
        Reader(argv=["serve", model, "--port", "0"], lasting=True, share=0.1),
    ]


def _model(name: str, share: float = 1.0) -> Target:
    readers = [
        generate(name, expect="stdout"),
        Reader(argv=["spectrum", name, "--no-figures"], share=0.15),
        Reader(argv=["@serve", name], share=0.2),
    ]
    return Target(
        name=f"weights of {name}",
        fixtures=[name],
        files=[f"{name}/model.safetensors"],
        mutators=TENSORS,
        readers=readers,
        share=share,
    )


RESUME = ["train", "--config", "config.json", "--out"]
PROBE = split("--data store --steps 1 --batch 2 --context 4 --results results --work new")

TARGETS: list[Target] = [
    _model("run/model", 3.0),
    *(_model(name, 0.5) for name in ("hyena", "masked", "linear", "llama", "half")),
    Target(
        name="config of a checkpoint",
        fixtures=["run/model", "store", "results"],
        files=["run/model/config.json"],
        mutators=JSON,
        readers=[
            generate("run/model", expect="stdout"),
            Reader(argv=["probe", "run/model", *PROBE], writes=["new"], share=0.3),
        ],
    ),
    Target(
        name="tokenizer of a checkpoint",
        fixtures=["chat"],
        files=["chat/tokenizer.json", "chat/tokenizer_config.json", "chat/generation_config.json"],
        mutators=JSON,
        readers=[generate("chat"), *_serves("chat")],
        share=3.0,
    ),
    Target(
        name="checkpoint of a run",
        fixtures=["stopped", "store", "config.json"],
        files=["stopped/checkpoints/*/*"],
        mutators=(*TENSORS, mutators.any_bytes),
        readers=[
            Reader(
                argv=[*RESUME, "stopped"],
                writes=["stopped"],
                expect="weights",
                weights="stopped/model/model.safetensors",
            )
        ],
        share=1.5,
    ),
    Target(
        name="records of a run",
        fixtures=["run", "store", "config.json"],
        files=["run/run.json", "run/metrics.jsonl", "run/samples.txt", "run/summary.md"],
        mutators=(mutators.any_bytes,),
        readers=[
            Reader(argv=["page", "run", "page.html"], writes=["page.html"], share=0.4),
            Reader(argv=["page", "run", "--text"], share=0.2),
            Reader(argv=["plan", "run", "--hardware", "h100"]),
            Reader(argv=[*RESUME, "run"], writes=["run"], share=0.3),
            Reader(argv=["@explore", "."], share=0.5),
            Reader(argv=["explore", ".", "--port", "0"], lasting=True, share=0.1),
        ],
        share=2.0,
    ),
    Target(
        name="settings of a run",
        fixtures=["run", "store", "config.json"],
        files=["run/run.json"],
        mutators=JSON,
        readers=[
            Reader(argv=["page", "run", "page.html"], writes=["page.html"], share=0.4),
            Reader(argv=["plan", "run", "--hardware", "h100"]),
            Reader(argv=[*RESUME, "run"], writes=["run"], share=0.3),
            Reader(argv=["@explore", "."], share=0.5),
        ],
        share=2.0,
    ),
    Target(
        name="metrics of a run",
        fixtures=["run", "store", "config.json"],
        files=["run/metrics.jsonl"],
        mutators=LINES,
        readers=[
            Reader(argv=["page", "run", "page.html"], writes=["page.html"], share=0.4),
            Reader(argv=[*RESUME, "run"], writes=["run"], share=0.3),
            Reader(argv=["@explore", "."], share=0.5),
        ],
        share=1.5,
    ),
    Target(
        name="settings from a file",
        fixtures=["store", "config.json"],
        files=["config.json"],
        mutators=JSON,
        readers=[
            Reader(argv=[*RESUME, "new", *SHORT, "--depth", "1"], writes=["new"]),
            Reader(argv=["plan", "config.json", "--hardware", "a100", "--json"]),
        ],
        share=2.0,
    ),
    Target(
        name="data of a store",
        fixtures=["store", "config.json"],
        files=["store/*.bin", "store/*.idx", "store/*.size"],
        mutators=BYTES,
        readers=[
            Reader(argv=["data", "check", "store"], expect="rejected"),
            Reader(argv=["data", "show", "store"]),
            Reader(
                argv=[*RESUME, "new", *SHORT],
                writes=["new"],
                expect="weights",
                weights="new/model/model.safetensors",
                share=0.5,
            ),
        ],
        share=2.0,
    ),
    Target(
        name="manifest of a store",
        fixtures=["store", "config.json"],
        files=["store/manifest.json"],
        mutators=JSON,
        readers=[
            Reader(argv=["data", "check", "store"]),
            Reader(argv=["data", "show", "store"]),
            Reader(argv=[*RESUME, "new", *SHORT], writes=["new"], share=0.5),
        ],
        share=2.0,
    ),
    Target(
        name="tokenizer of a store",
        fixtures=["store", "config.json"],
        files=["store/tokenizer/*"],
        mutators=JSON,
        readers=[
            Reader(argv=["data", "check", "store"], expect="rejected"),
            Reader(argv=["data", "show", "store"]),
            Reader(argv=[*RESUME, "new", *SHORT], writes=["new"], share=0.3),
            Reader(
                argv=["data", "build", "texts/toy.jsonl", *BUILD, "--tokenizer", "store/tokenizer"],
                writes=["new"],
                share=0.3,
            ),
        ],
    ),
    Target(
        name="progress of a build",
        fixtures=["unfinished", "texts"],
        files=["unfinished/progress.json"],
        mutators=JSON,
        readers=[
            Reader(
                argv=["data", "build", "texts/toy.jsonl", *BUILD, "--out", "unfinished"],
                writes=["unfinished"],
            ),
            Reader(argv=["data", "show", "unfinished"], share=0.1),
        ],
        share=1.5,
    ),
    *(
        Target(
            name=f"archive {ending}",
            fixtures=["texts"],
            files=[f"texts/toy.jsonl.{ending}"],
            mutators=(
                mutators.any_bytes,
                mutators.flip,
                mutators.flip,
                lambda rng, data, kind=ending: formats.repacked(rng, data, kind),  # type: ignore[misc]
            ),
            readers=[
                Reader(argv=["data", "build", f"texts/toy.jsonl.{ending}", *BUILD], writes=["new"])
            ],
            archive=ending,
            share=1.5,
        )
        for ending in ("gz", "xz", "zst")
    ),
    Target(
        name="parquet",
        fixtures=["texts"],
        files=["texts/toy.parquet"],
        mutators=BYTES,
        readers=[Reader(argv=["data", "build", "texts/toy.parquet", *BUILD], writes=["new"])],
    ),
    Target(
        name="JSON lines of text",
        fixtures=["texts"],
        files=["texts/toy.jsonl"],
        mutators=LINES,
        readers=[Reader(argv=["data", "build", "texts/toy.jsonl", *BUILD], writes=["new"])],
        lines=True,
    ),
    Target(
        name="text",
        fixtures=["texts"],
        files=["texts/toy.txt", "texts/notes.md"],
        mutators=BYTES,
        readers=[
            Reader(
                argv=["data", "build", "texts/toy.txt", "texts/notes.md", *BUILD], writes=["new"]
            )
        ],
        share=0.5,
    ),
    *(
        Target(
            name=f"rows of results, {name}",
            fixtures=["results"],
            files=[f"results/{name}/laptop.jsonl"],
            mutators=LINES,
            readers=[Reader(argv=["experiment", "plot", name, "--out", "new"], writes=["new"])],
            share=0.25,
        )
        for name in ("complexity", "decoding", "throughput")
    ),
    *(
        Target(
            name=f"checkpoint of the research code, {name}",
            fixtures=["upstream"],
            files=[f"upstream/{name}.safetensors"],
            mutators=TENSORS,
            readers=[
                Reader(argv=["import", f"upstream/{name}.safetensors", "new"], writes=["new"])
            ],
        )
        for name in ("toeplitz", "hyena")
    ),
    Target(
        name="rule of the operator",
        fixtures=["rule.json", "run/model"],
        files=["rule.json"],
        mutators=JSON,
        readers=[generate("run/model", env={"TOEPLIX_RULE": "rule.json"})],
    ),
    Target(
        name="key of a server",
        fixtures=["key.txt", "hyena"],
        files=["key.txt"],
        mutators=BYTES,
        readers=[
            Reader(argv=["serve", "hyena", "--port", "0", "--key-file", "key.txt"], lasting=True)
        ],
        share=0.1,
    ),
]
