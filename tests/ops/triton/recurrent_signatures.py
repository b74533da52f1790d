"""Kernels of recurrent filters and lookup, with the arguments that Triton makes of aligned tensors."""

from typing import NamedTuple

from toeplix.ops.triton import chunk_scan, lookup, lookup_kernels, recurrent, recurrent_kernels
from toeplix.ops.triton import recurrent_step as step
from toeplix.ops.triton.inspection import Facts, inspect
from toeplix.ops.triton.recurrent_step_kernel import recurrent_step_kernel

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
SEQUENCES = frozenset("qkvgxyz")
STRIDES = {f"{name}_{axis}" for name in SEQUENCES for axis in "bthc"}
WHOLE = STRIDES | {"channels", "keys", "values", "width", "state_h", "state_k"}
WHOLE |= {"state_e", "state_c"}
POINTERS = {"table", "taps", "free", "states", "state", "before", "after", "partial"}
POINTERS |= {"decays", "last_decays", "coefficients"}
FORWARD, REVERSE = {"REVERSE": False}, {"REVERSE": True}

# by size of a case: the recurrent filters of the default model (16 free taps, 8 decays), as many as the
# kernels support, and filters that read nothing before a chunk
RECURRENT_SIZES = {
    "usual": {"RANK": 16, "PAST": 16},
    "largest": {"RANK": 32, "PAST": 64},
    "one tap": {"RANK": 16, "PAST": 0},
}
# channels of keys and of values, and positions of a chunk
LOOKUP_SIZES = {
    "usual": (64, 64, lookup.MAX_CHUNK),
    "largest": (lookup.MAX_CHANNELS, lookup.MAX_CHANNELS, lookup.MAX_CHUNK),
    "default model": (8, 128, lookup.chunk_length(8, 8)),
}
RECURRENT = {
    "chunk_sums": (recurrent_kernels.chunk_sums_kernel, FORWARD),
    "chunk_sums, reverse": (recurrent_kernels.chunk_sums_kernel, REVERSE),
    "outputs": (recurrent_kernels.outputs_kernel, FORWARD),
    "outputs, reverse": (recurrent_kernels.outputs_kernel, REVERSE),
    "tap_correlation": (recurrent_kernels.tap_correlation_kernel, {}),
    "state_correlation": (recurrent_kernels.state_correlation_kernel, {}),
}
LOOKUP = {
    "lookup_sums": (lookup_kernels.lookup_sums_kernel, FORWARD),
    "lookup_sums, reverse": (lookup_kernels.lookup_sums_kernel, REVERSE),
    "lookup_outputs": (lookup_kernels.lookup_outputs_kernel, FORWARD),
    "lookup_outputs, reverse": (lookup_kernels.lookup_outputs_kernel, REVERSE),
    "lookup_taps": (lookup_kernels.lookup_taps_kernel, {}),
    "lookup_powers": (lookup_kernels.lookup_powers_kernel, {}),
}
# gradients of queries and keys: values take the place of keys, and states are transposed
TRANSPOSED = {
    "lookup_outputs (dq)": (lookup_kernels.lookup_outputs_kernel, FORWARD),
    "lookup_outputs, reverse (dk)": (lookup_kernels.lookup_outputs_kernel, REVERSE),
}
SCALAR = {
    "chunk_scan": (chunk_scan.chunk_scan_kernel, {"BLOCK": chunk_scan.BLOCK, **FORWARD}),
    "chunk_scan, reverse": (chunk_scan.chunk_scan_kernel, {"BLOCK": chunk_scan.BLOCK, **REVERSE}),
    "recurrent_step": (recurrent_step_kernel, {"ROWS": 32, "COLUMNS": step.columns_of(32)}),
    "recurrent_step, most": (
        recurrent_step_kernel,
        {"ROWS": step.MAX_ROWS, "COLUMNS": step.columns_of(step.MAX_ROWS)},
    ),
}
KERNELS = RECURRENT | LOOKUP | TRANSPOSED | SCALAR


class Case(NamedTuple):
    """A kernel in an arithmetic, for one of RECURRENT_SIZES or LOOKUP_SIZES."""

    kernel: str
    dtype: str
    precision: str  # of float32 operands
    size: str = "usual"

    def facts(self, target: str) -> Facts:
        kernel, constants = KERNELS[self.kernel]
        values = {"PRECISION": self.precision, **constants}
        whole = WHOLE
        if self.kernel in LOOKUP | TRANSPOSED:
            values |= self._lookup(options := {})
            if self.size == "default model":  # 8 channels of keys lie between heads
                whole = WHOLE - {"keys", "values"} - {name for name in STRIDES if name[2] == "h"}
        elif self.kernel in RECURRENT:
            tile = recurrent.TILES[BYTES[self.dtype]]
            values |= {"CHUNK": tile.chunk, "COLUMNS": tile.columns}
            values |= RECURRENT_SIZES[self.size]
            stages = tile.num_stages
            if self.kernel == "tap_correlation":
                stages = recurrent.tap_stages(BYTES[self.dtype], self.precision)
            options = {"num_warps": tile.num_warps, "num_stages": stages}
        else:
            options = {"num_warps": step.WARPS}
        values = {name: value for name, value in values.items() if name in kernel.arg_names}
        ones = {name for name in STRIDES if name[2] == "c"}
        ones |= {"state_e" if self.kernel in TRANSPOSED else "state_c"}
        types = {}
        for name in kernel.arg_names:
            if name in values:
                continue
            if name in SEQUENCES:
                types[name] = f"*{self.dtype}:16"
            elif name in POINTERS or name == "clock":
                types[name] = "*i64:16" if name == "clock" else "*fp32:16"
            elif name in ones:
                values[name] = 1
            else:
                types[name] = "i32:16" if name in whole else "i32"
        return inspect(kernel, types, values, target, **options)

    def _lookup(self, options: dict) -> dict:
        keys, channels, chunk = LOOKUP_SIZES[self.size]
        half = BYTES[self.dtype] == 2 and max(keys, channels) <= 64
        tile = lookup.LARGE_TILE if half else lookup.SMALL_TILE
        if self.kernel in TRANSPOSED:
            keys, channels = channels, keys
        reads = self.kernel.startswith(("lookup_outputs", "lookup_powers"))
        options |= lookup.run_options(tile, keys if reads else 0, self.kernel in TRANSPOSED)
        wide = recurrent.padded(channels)
        width = wide if self.kernel == "lookup_taps" else min(tile.values, wide)
        sizes = {"KEYS": recurrent.padded(keys), "VALUES": width}
        return {"CHUNK": chunk, "BLOCK": tile.block, **sizes}


def arithmetic(target: str) -> list[tuple[str, str]]:
    """Return dtypes of sequences, and how float32 is multiplied (`recurrent.state_precision`)."""
    if target == "gfx942":
        return [("bf16", "ieee"), ("fp16", "ieee"), ("fp32", "ieee")]
    return [("bf16", "tf32"), ("fp16", "tf32"), ("fp32", "tf32"), ("fp32", "ieee")]


def sizes_of(kernel: str) -> tuple[str, ...]:
    """Return the sizes for which a kernel is compiled differently."""
    if kernel in RECURRENT:
        return tuple(RECURRENT_SIZES)
    return tuple(LOOKUP_SIZES) if kernel in LOOKUP | TRANSPOSED else ("usual",)


def every_case(target: str) -> list[Case]:
    """Return all kernels in all dtypes and sizes."""
    return [
        Case(kernel, dtype, precision, size)
        for kernel in KERNELS
        for dtype, precision in arithmetic(target)
        for size in sizes_of(kernel)
        if kernel.partition(",")[0] != "chunk_scan" or (dtype, precision) == ("fp32", "ieee")
    ]
