"""A pretend accelerator, registered from Python: a device of its own type in the memory of the CPU.

    register()     torch.device("pretend") exists from now on: factories, modules, autograd, autocast
    watched()      what the host waited for and which tensors it made itself, in a block of code

A tensor on it wraps a CPU tensor, and operators are computed on what is wrapped. An operator that gets
tensors of the device and of the host together raises, also where CUDA would copy an index by itself.
Registration is global, so this is used in processes of their own (test_devices.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

NAME = "pretend"
aten = torch.ops.aten
# from one device to another, as asked for
COPIES = {aten._to_copy.default, aten.copy_.default, aten._copy_from.default}
# the host waits for a value, or for the shape of a result
WAITS = {
    aten._local_scalar_dense.default,
    aten._unique2.default,
    aten.equal.default,
    aten.is_nonzero.default,
    aten.masked_select.default,
    aten.nonzero.default,
    aten.repeat_interleave.Tensor,
    aten.unique_dim.default,
}
INDEXED = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}  # by a mask: a wait
# what autocast computes in low precision, as on CUDA
LOW_PRECISION = (
    "mm",
    "bmm",
    "addmm",
    "baddbmm",
    "matmul",
    "linear",
    "conv1d",
    "conv2d",
    "einsum",
    "scaled_dot_product_attention",
)
FACTORIES = (
    "arange",
    "arange.start",
    "arange.start_step",
    "eye",
    "eye.m",
    "linspace",
)  # that resize their result
_libraries = []  # what is registered is forgotten with them


@dataclass
class Watched:
    waits: list[str] = field(default_factory=list)
    made_on_host: list[str] = field(default_factory=list)


_watching: list[Watched] = []


class OnDevice(Tensor):
    """A tensor on the pretend device."""

    host: Tensor

    @staticmethod
    def __new__(cls, host):
        made = Tensor._make_wrapper_subclass(
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device=torch.device(NAME, 0),
        )
        made.host = host
        return made

    def __repr__(self):
        return f"OnDevice({tuple(self.shape)}, {self.dtype})"

    def __tensor_flatten__(self):
        return ["host"], None

    @staticmethod
    def __tensor_unflatten__(inner, context, size, stride):
        return OnDevice(inner["host"])

    @classmethod
    def __torch_dispatch__(cls, operator, types, args=(), kwargs=None):
        return compute(operator, args, kwargs or {})


def compute(operator, args, kwargs):
    """Return what an operator gives for arguments on the device."""
    tensors = [each for each in pytree.tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    here = [each for each in tensors if isinstance(each, OnDevice)]
    # numbers of the host without an axis are passed to kernels by value
    strange = [each for each in tensors if not isinstance(each, OnDevice) and each.ndim]
    if operator not in COPIES and here and strange:
        shapes = [tuple(each.shape) for each in strange]
        raise RuntimeError(f"{operator} gets tensors of the device and of the host: {shapes}")
    target = kwargs.get("device")
    leaves = target is not None and torch.device(target).type != NAME
    leaves |= operator is aten.copy_.default and not isinstance(args[0], OnDevice)
    by_mask = operator in INDEXED and any(each.dtype == torch.bool for each in here[1:])
    if operator in WAITS or leaves or by_mask:
        for watched in _watching:
            watched.waits.append(str(operator))
    inner, options = pytree.tree_map_only(OnDevice, lambda each: each.host, (args, kwargs))
    if "device" in options:
        options["device"] = torch.device("cpu")
    options.pop("pin_memory", None)
    found = operator(*inner, **options)
    if operator is aten.copy_.default:
        return args[0]
    if leaves:
        return found
    for each in here:
        assert each.shape == each.host.shape, f"{operator} has resized its argument"
    wrapped = pytree.tree_map_only(Tensor, OnDevice, found)
    return return_and_correct_aliasing(operator, args, kwargs, wrapped) if here else wrapped


class Module(_DummyBackendModule):
    """`torch.pretend`."""

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def get_device_capability(self, device=None):
        return {}


def register() -> torch.device:
    """Register the device, once, and return it."""
    if not _libraries:
        _setup_privateuseone_for_python_backend(NAME, Module())
        every = torch.library.Library("_", "IMPL")
        every.fallback(lambda operator, *args, **how: compute(operator, args, how), "PrivateUse1")
        every.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
        own = torch.library.Library("aten", "IMPL")
        for name in FACTORIES:
            own.impl(name, _kernel(name), "PrivateUse1")
        for name in LOW_PRECISION:
            own.impl(name, _lowered(name), "AutocastPrivateUse1")
        _libraries.extend((every, own))
        torch.tensor = partial(_tensor, torch.tensor)
    return torch.device(NAME)


def _tensor(make, *args, device=None, **how):
    """`torch.tensor` in two steps: it fills memory itself, which it cannot do on this device."""
    here = device is not None and torch.device(device).type == NAME
    return make(*args, **how).to(device) if here else make(*args, device=device, **how)


def _kernel(name):
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(aten, packet), overload or "default")
    return lambda *args, **how: compute(operator, args, how)


def _lowered(name):
    """Return the kernel that casts float32 arguments to the precision of autocast."""
    operator = getattr(aten, name).default

    def cast(each):
        eligible = each.device.type == NAME and each.dtype == torch.float32
        return each.to(torch.get_autocast_dtype(NAME)) if eligible else each

    def kernel(*args, **how):
        with torch._C._ExcludeDispatchKeyGuard(
            torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)
        ):
            args, how = pytree.tree_map_only(Tensor, cast, (args, how))
            return operator(*args, **how)

    return kernel


class _Host(TorchDispatchMode):
    """Records what is computed on the host alone."""

    def __init__(self, watched):
        super().__init__()
        self.watched = watched

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        found = operator(*args, **(kwargs or {}))
        tensors = [each for each in pytree.tree_leaves(found) if isinstance(each, Tensor)]
        if any(each.device.type == "cpu" for each in tensors):
            self.watched.made_on_host.append(str(operator))
        return found


@contextmanager
def watched() -> Iterator[Watched]:
    """Record waits for the device, and tensors that are made on the host."""
    found = Watched()
    _watching.append(found)
    try:
        with _Host(found):
            yield found
    finally:
        _watching.remove(found)
