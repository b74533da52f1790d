"""Arguments of the product's kernels as Triton's launcher specialises them, for every tile."""

from typing import NamedTuple

from toeplix.ops.triton.inspection import Facts, inspect
from toeplix.ops.triton.product import CORRELATION_TILES, PRODUCT_TILES
from toeplix.ops.triton.product_kernels import (
    correlation_kernel,
    diagonals_kernel,
    product_kernel,
)

BYTES = {"bf16": 2, "fp16": 2, "fp32": 4}
STRIDES = ("b", "t", "h", "c")


class Case(NamedTuple):
    """A kernel with a tile; `layout` is "rows" (channels of a row), "flat" or "packed"."""

    kernel: str
    dtype: str
    precision: str = "ieee"
    tile: int = 0  # of a product: 0 for many columns, 1 for few
    layout: str = "rows"
    aligned: bool = True  # channels follow each other, and strides are multiples of 16

    def facts(self, target: str) -> Facts:
        return FACTS[self.kernel](self, target)


def product_facts(case: Case, target: str) -> Facts:
    tile = PRODUCT_TILES[BYTES[case.dtype]][case.tile]
    types, values = _shared(case, ["x"])
    whole = "i32:16" if case.aligned else "i32"
    types |= dict.fromkeys(("filters", "y"), f"*{case.dtype}:16")
    types |= {"direction": "i32", "heads": "i32", "taps": whole, "filter_stride": whole}
    _tables(case, ("starts", "lengths", "block_document", "block_place"), types, values)
    values |= {"BLOCK_T": tile.block_t, "BLOCK_S": tile.block_s, "BLOCK_N": tile.block_n}
    return inspect(
        product_kernel, types, values, target, num_warps=tile.num_warps, num_stages=tile.num_stages
    )


def correlation_facts(case: Case, target: str) -> Facts:
    tile = CORRELATION_TILES[BYTES[case.dtype]]
    types, values = _shared(case, ["g", "x"])
    types |= {"sums": "*fp32:16", "documents": "i32", "share": "i32"}
    _tables(case, ("starts", "lengths"), types, values)
    values |= {"BLOCK_L": tile.block_l, "BLOCK_N": tile.block_n}
    return inspect(
        correlation_kernel,
        types,
        values,
        target,
        num_warps=tile.num_warps,
        num_stages=tile.num_stages,
    )


def diagonals_facts(case: Case, target: str) -> Facts:
    """Sums and gradient are float32 whatever the dtype; the block is that of the correlation."""
    types = {
        "sums": "*fp32:16",
        "gradient": "*fp32:16",
        "taps": "i32:16" if case.aligned else "i32",
    }
    types |= dict.fromkeys(("splits", "heads", "diagonals"), "i32")
    values = {"BLOCK_L": CORRELATION_TILES[BYTES[case.dtype]].block_l}
    return inspect(diagonals_kernel, types, values, target, num_warps=2)


FACTS = {
    "product": product_facts,
    "correlation": correlation_facts,
    "diagonals": diagonals_facts,
}


def _shared(case: Case, sequences: list[str]) -> tuple[dict, dict]:
    whole = "i32:16" if case.aligned else "i32"
    types = dict.fromkeys(sequences, f"*{case.dtype}:16")
    types |= {"batch": "i32", "time": whole, "channels": whole}
    types |= {f"{name}_{axis}": whole for name in sequences for axis in STRIDES}
    values = {"FLAT": case.layout == "flat", "PACKED": case.layout == "packed"}
    values["PRECISION"] = case.precision
    if case.aligned:
        for name in sequences:
            del types[f"{name}_c"]
            values[f"{name}_c"] = 1
    return types, values


def _tables(case: Case, names: tuple[str, ...], types: dict, values: dict) -> None:
    if case.layout == "packed":
        types |= dict.fromkeys(names, "*i64:16")
    else:
        values |= dict.fromkeys(names)
