"""Argument checks of the operator. Errors name the argument, its value and the rule."""

import torch
from torch import Tensor

from toeplix.ops import dispatch
from toeplix.ops.paths import PATHS


def check_product(x: Tensor, kernel: Tensor, *, beyond: bool = False) -> None:
    """Raise an error unless x and kernel can be multiplied; `beyond` allows more positions than taps."""
    check_sequence("x", x)
    check_kernel(kernel)
    time, heads = x.shape[1], x.shape[2]
    if kernel.shape[0] != heads:
        raise ValueError(
            f"kernel has {kernel.shape[0]} heads and x has {heads}: kernel must be (h, n) and x "
            f"(b, t, h, c) with the same h, got {tuple(kernel.shape)} and {tuple(x.shape)}"
        )
    if kernel.shape[1] < time and not beyond:
        raise ValueError(
            f"kernel has {kernel.shape[1]} taps and x has {time} positions: a causal product needs "
            "n >= t (toeplitz_windowed takes longer sequences, reading the last n positions)"
        )
    if kernel.device != x.device:
        raise ValueError(f"kernel is on {kernel.device} and x on {x.device}: move one of them")


def check_sequence(name: str, x: Tensor) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor (b, t, h, c), got {type(x).__name__}")
    if x.ndim != 4:
        raise ValueError(f"{name} must have 4 axes (b, t, h, c), got shape {tuple(x.shape)}")
    if not x.is_floating_point():
        raise TypeError(f"{name} must be of a floating dtype, got {x.dtype}")
    if x.shape[1] == 0:
        raise ValueError(f"{name} has no positions: t must be at least 1, got {tuple(x.shape)}")


def check_kernel(kernel: Tensor) -> None:
    if not isinstance(kernel, Tensor):
        raise TypeError(f"kernel must be a tensor (h, n), got {type(kernel).__name__}")
    if kernel.ndim != 2:
        raise ValueError(f"kernel must have 2 axes (h, n), got shape {tuple(kernel.shape)}")
    if not kernel.is_floating_point():
        raise TypeError(f"kernel must be of a floating dtype, got {kernel.dtype}")
    if kernel.shape[1] == 0:
        raise ValueError(f"kernel has no taps: n must be at least 1, got {tuple(kernel.shape)}")


def check_path(path: str, exact: bool) -> str:
    """Return the name that `paths` expects: a path, or one of the two automatic modes."""
    if path == dispatch.AUTO:
        return dispatch.AUTO_EXACT if exact else dispatch.AUTO
    if path not in PATHS:
        raise ValueError(f"path={path!r} is unknown: use 'auto' or one of {', '.join(PATHS)}")
    if exact and not PATHS[path].exact:
        able = ", ".join(name for name, entry in PATHS.items() if entry.exact)
        raise ValueError(
            f"path={path!r} is causal to rounding only: exact=True needs one of {able}"
        )
    return path


def check_like(name: str, other: Tensor, x: Tensor) -> None:
    """Check a sequence that must agree with x in all axes but its length, which may be 0."""
    if isinstance(other, Tensor) and other.ndim == 4 and other.shape[1] == 0:
        other = other.new_empty(other.shape[0], 1, *other.shape[2:])
    check_sequence(name, other)
    same = (x.shape[0], *x.shape[2:])
    if (other.shape[0], *other.shape[2:]) != same:
        raise ValueError(
            f"{name} must agree with x in batch, heads and channels, got {tuple(other.shape)} "
            f"beside {tuple(x.shape)}"
        )
    if other.dtype != x.dtype or other.device != x.device:
        raise TypeError(
            f"{name} is {other.dtype} on {other.device} and x is {x.dtype} on {x.device}: "
            "both must agree"
        )


def check_offsets(offsets: object) -> Tensor:
    """Return offsets as a flat tensor of integers, from a tensor, list or tuple."""
    if isinstance(offsets, list | tuple) and all(isinstance(value, int) for value in offsets):
        offsets = torch.tensor(offsets, dtype=torch.int64)
    if not isinstance(offsets, Tensor):
        raise TypeError(f"offsets must be a list or a flat tensor of integers, got {offsets!r}")
    if offsets.ndim != 1 or offsets.is_floating_point() or offsets.dtype == torch.bool:
        raise TypeError(
            "offsets must be a list or a flat tensor of integers, "
            f"got {offsets.dtype} {tuple(offsets.shape)}"
        )
    return offsets.long()


def check_mask(mask: Tensor, x: Tensor) -> Tensor:
    """Return a boolean mask, from booleans or from zeros and ones."""
    if not isinstance(mask, Tensor) or mask.is_floating_point() or mask.is_complex():
        kind = mask.dtype if isinstance(mask, Tensor) else type(mask).__name__
        raise TypeError(f"mask must be a tensor of booleans or of zeros and ones, got {kind}")
    if mask.shape != x.shape[:2]:
        raise ValueError(
            f"mask must be (b, t) = {tuple(x.shape[:2])} as x says, got {tuple(mask.shape)}"
        )
    return mask.bool()


def check_past(kernel: Tensor, past: Tensor) -> None:
    """Check earlier inputs. They may be empty, but still give batch, channels, dtype and device."""
    if isinstance(past, Tensor) and past.ndim == 4 and past.shape[1] == 0:
        past = past.new_empty(past.shape[0], 1, *past.shape[2:])
    check_sequence("past", past)
    if past.shape[2] != kernel.shape[0]:
        raise ValueError(
            f"past has {past.shape[2]} heads and kernel {kernel.shape[0]}: they must agree"
        )
    if past.device != kernel.device:
        raise ValueError(
            f"past is on {past.device} and kernel on {kernel.device}: move one of them"
        )


def check_rows(rows: Tensor, batch: int) -> Tensor:
    """Numbers of rows, as int64: masks and negative numbers would be read as those of other rows.

    Values on an accelerator are left to its own check of indices: the host would wait for them.
    """
    if not isinstance(rows, Tensor):
        raise TypeError(f"rows must be a flat tensor of row numbers, got {type(rows).__name__}")
    if rows.ndim != 1 or rows.is_floating_point() or rows.is_complex() or rows.dtype == torch.bool:
        hint = " (mask.nonzero()[:, 0] gives those of a mask)" if rows.dtype == torch.bool else ""
        raise TypeError(
            "rows must be a flat tensor of integers, the numbers of the rows, "
            f"got {rows.dtype} {tuple(rows.shape)}{hint}"
        )
    if rows.device.type != "cpu":
        return rows.long()
    if len(rows) and (bad := rows[(rows < 0) | (rows >= batch)]).numel():
        raise IndexError(
            f"row {int(bad[0])} does not exist: a batch of {batch} has the rows 0 .. {batch - 1}"
            if batch
            else f"row {int(bad[0])} does not exist: the batch has no rows"
        )
    return rows.long()


def check_horizon(horizon: int | None, name: str = "horizon") -> None:
    if horizon is None:
        return
    if not isinstance(horizon, int) or isinstance(horizon, bool):
        raise TypeError(f"{name}={horizon!r} must be an integer, or None for no end")
    if horizon < 1:
        raise ValueError(f"{name}={horizon} must be at least 1, or None for no end")
