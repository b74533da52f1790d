"""Published benchmark files, changed, and the tasks of the harness that read them."""

from tests.fuzz.targets import BYTES, JSON, LINES, Reader, Target

BENCHMARKS = {
    "arc/ARC-Easy-Test.jsonl": "arc_easy",
    "hellaswag_val.jsonl": "hellaswag",
    "lambada_test.jsonl": "lambada_openai",
    "ifeval/input_data.jsonl": "ifeval",
    "based-swde-v2.jsonl": "swde",
    "based-squad.jsonl": "squad_completion",
    "squad/dev-v2.0.json": "squadv2",
    "xwinograd/dataset.tsv": "xwinograd_en",
    "glue/CoLA/dev.tsv": "cola",
    "glue/SST-2/dev.tsv": "sst2",
    "glue/MRPC/dev.tsv": "mrpc",
    "glue/RTE/dev.tsv": "rte",
    "longbench/hotpotqa.jsonl": "longbench_hotpotqa",
    "longbench/trec.jsonl": "longbench_trec",
    "wikitext-2-raw/wiki.test.raw": "wikitext",
}
TARGETS = [
    Target(
        name=f"benchmark {task}",
        fixtures=["benchmarks", "run/model"],
        files=[f"benchmarks/{file}"],
        mutators=LINES if file.endswith("jsonl") else JSON if file.endswith("json") else BYTES,
        readers=[
            Reader(
                argv=[
                    "eval",
                    "run/model",
                    "--tasks",
                    task,
                    "--data-root",
                    "benchmarks",
                    "--limit",
                    "2",
                ]
            )
        ],
        share=0.05,
    )
    for file, task in BENCHMARKS.items()
]
