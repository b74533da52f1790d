"""`toeplix bench ...`: throughput, latency and memory on this machine, as ratios to alternatives."""

from collections.abc import Callable

import typer

from toeplix.cli import bench_models, bench_operators

COMMANDS: dict[str, Callable[..., None]] = {
    "ops": bench_operators.ops,
    "recurrent": bench_operators.recurrent,
    "prefill": bench_models.prefill,
    "decode": bench_models.decode,
    "training": bench_models.training,
    "family": bench_models.family,
    "data": bench_operators.tokenizing,
    "spectrum": bench_operators.spectrum,
    "eval": bench_models.evaluating,
    "serve": bench_models.serve,
    "quantize": bench_models.quantized,
    "long": bench_models.long_prompts,
}

bench = typer.Typer(help="Measure speed and memory on this machine.", no_args_is_help=True)
for _name, _command in COMMANDS.items():
    bench.command(_name)(_command)
