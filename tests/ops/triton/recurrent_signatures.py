"""Kernels of recurrent filters and lookup, with the arguments that Triton makes of aligned tensors."""

from typing import NamedTuple

from toeplix.ops.triton import chunk_scan, lookup, lookup_kernels, recurrent, recurrent_kernels
from toeplix.ops.triton import recurrent_step as step
from toeplix.ops.triton.inspection import Facts, inspect
from toeplix.ops.triton.recurrent_step_kernel import recurrent_step_kernel

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
SEQUENCES = frozenset("qkvgxyz")
STRIDES = {f"{name}_{axis}" for name in SEQUENCES for axis in "bthc"}
WHOLE = STRIDES | {"channels", "keys", "values", "width", "state_e", "state_h", "state_k"}
POINTERS = {"table", "taps", "free", "states", "state", "before", "after", "partial"}
POINTERS |= {"decays", "last_decays", "coefficients"}
FORWARD, REVERSE = {"REVERSE": False}, {"REVERSE": True}

# of a recurrent filter with 16 free taps and 8 decays, and with as many as the kernels support
SOME, MOST = {"RANK": 16, "PAST": 16}, {"RANK": 32, "PAST": 64}
RECURRENT = {
    "chunk_sums": (recurrent_kernels.chunk_sums_kernel, FORWARD),
    "outputs": (recurrent_kernels.outputs_kernel, FORWARD),
    "outputs, reverse": (recurrent_kernels.outputs_kernel, REVERSE),
    "tap_correlation": (recurrent_kernels.tap_correlation_kernel, {}),
    "state_correlation": (recurrent_kernels.state_correlation_kernel, {}),
}
LOOKUP = {
    "lookup_sums": (lookup_kernels.lookup_sums_kernel, FORWARD),
    "lookup_outputs": (lookup_kernels.lookup_outputs_kernel, FORWARD),
    "lookup_outputs, reverse": (lookup_kernels.lookup_outputs_kernel, REVERSE),
    "lookup_taps": (lookup_kernels.lookup_taps_kernel, {}),
    "lookup_powers": (lookup_kernels.lookup_powers_kernel, {}),
}
SCALAR = {
    "chunk_scan": (chunk_scan.chunk_scan_kernel, {"BLOCK": chunk_scan.BLOCK, **FORWARD}),
    "chunk_scan, reverse": (chunk_scan.chunk_scan_kernel, {"BLOCK": chunk_scan.BLOCK, **REVERSE}),
    "recurrent_step": (recurrent_step_kernel, {"ROWS": 32, "COLUMNS": step.COLUMNS}),
    "recurrent_step, most": (
        recurrent_step_kernel,
        {"ROWS": step.MAX_ROWS, "COLUMNS": step.COLUMNS},
    ),
}
KERNELS = RECURRENT | LOOKUP | SCALAR


class Case(NamedTuple):
    """A kernel in an arithmetic, for usual sizes or for the largest that it supports."""

    kernel: str
    dtype: str
    precision: str  # of float32 operands
    largest: bool = False

    def facts(self, target: str) -> Facts:
        kernel, constants = KERNELS[self.kernel]
        values = {"PRECISION": self.precision, **constants}
        if self.kernel in LOOKUP:
            values |= self._lookup(options := {})
        elif self.kernel in RECURRENT:
            tile = recurrent.TILES[BYTES[self.dtype]]
            values |= {"CHUNK": tile.chunk, "COLUMNS": tile.columns}
            values |= MOST if self.largest else SOME
            options = {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
        else:
            options = {"num_warps": step.WARPS}
        values = {name: value for name, value in values.items() if name in kernel.arg_names}
        types = {}
        for name in kernel.arg_names:
            if name in values:
                continue
            if name in SEQUENCES:
                types[name] = f"*{self.dtype}:16"
            elif name in POINTERS or name == "clock":
                types[name] = "*i64:16" if name == "clock" else "*fp32:16"
            elif (name in STRIDES and name.endswith("_c")) or name == "state_c":
                values[name] = 1
            else:
                types[name] = "i32:16" if name in WHOLE else "i32"
        return inspect(kernel, types, values, target, **options)

    def _lookup(self, options: dict) -> dict:
        channels = lookup.MAX_CHANNELS if self.largest else 64
        half = BYTES[self.dtype] == 2 and channels <= 64
        tile = lookup.LARGE_TILE if half else lookup.SMALL_TILE
        options |= {"num_warps": tile.num_warps, "num_stages": tile.num_stages}
        width = channels if self.kernel == "lookup_taps" else min(tile.values, channels)
        sizes = {"KEYS": channels, "VALUES": width}
        return {"CHUNK": lookup.MAX_CHUNK, "BLOCK": tile.block, **sizes}


def arithmetic(target: str) -> list[tuple[str, str]]:
    """Return dtypes of sequences, and how float32 is multiplied (`recurrent.state_precision`)."""
    if target == "gfx942":
        return [("bf16", "ieee"), ("fp16", "ieee"), ("fp32", "ieee")]
    return [("bf16", "tf32"), ("fp16", "tf32"), ("fp32", "tf32"), ("fp32", "ieee")]


def every_case(target: str) -> list[Case]:
    """Return all kernels in all dtypes, for usual sizes and for the largest."""
    return [
        Case(kernel, dtype, precision, largest)
        for kernel in KERNELS
        for dtype, precision in arithmetic(target)
        for largest in ((False,) if kernel in SCALAR else (False, True))
        if kernel.partition(",")[0] != "chunk_scan" or (dtype, precision) == ("fp32", "ieee")
    ]
