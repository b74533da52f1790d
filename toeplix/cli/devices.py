"""The options `--device` and `--dtype` of all commands that run a model, and what they choose."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

if TYPE_CHECKING:
    import torch

DeviceOption = Annotated[
    str,
    typer.Option("--device", help="auto (cuda, else mps, else cpu), cpu, cuda, cuda:1, mps, ..."),
]
DtypeOption = Annotated[
    str,
    typer.Option(
        "--dtype", help="float32, bfloat16, float16, float64, or auto: as the weights are stored."
    ),
]


class Placement(NamedTuple):
    """A device, and a dtype of weights; None: as they are stored."""

    device: "torch.device"
    dtype: "torch.dtype | None"
    automatic: bool = False  # whether nobody named the device

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of functions that load a model."""
        return {"device": self.device, "dtype": self.dtype}

    @property
    def told(self) -> str:
        from toeplix.devices import automatic_notice

        return automatic_notice(self.device, "--device")

    def tell(self) -> None:
        """Say in one line what was chosen automatically, once nothing can be wrong with arguments."""
        if self.automatic:
            print(f"toeplix: {self.told}; see --device", file=sys.stderr)


def chosen(device: str, dtype: str = "auto") -> Placement:
    """Return what the options name, or raise ValueError."""
    from toeplix.devices import AUTO, choose_device, choose_dtype

    where = choose_device(device)
    return Placement(where, choose_dtype(dtype, where), device == AUTO)


@contextmanager
def defaults(device: str, dtype: str = "auto") -> Iterator[Placement]:
    """Let tensors be made on the device and in the dtype unless code says otherwise: for benchmarks."""
    import torch

    found = chosen(device, dtype)
    found.tell()
    before = torch.get_default_dtype()
    torch.set_default_dtype(found.dtype or before)
    try:
        if found.device.type == "cpu":  # the context takes time in every call
            yield found
        else:
            with found.device:
                yield found
    finally:
        torch.set_default_dtype(before)
