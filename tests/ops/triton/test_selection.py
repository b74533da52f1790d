"""Where the path "triton" is taken, where it is passed over, and what it says where it cannot run."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.ops.oracle import random_pair
from toeplix import toeplitz, toeplitz_packed
from toeplix.ops import dispatch, lookup, triton
from toeplix.ops.dispatch import AUTO, AUTO_EXACT, TRITON_LENGTHS, choose, kind_of
from toeplix.ops.paths import PATHS, runnable
from toeplix.ops.triton import product


@pytest.fixture(autouse=True)
def _compiled(monkeypatch):
    """As without TRITON_INTERPRET, whatever the process was started with."""
    monkeypatch.setattr(triton, "interpreted", lambda: False)


def without_triton(path: str) -> bool:
    return path != "triton"


@pytest.mark.parametrize("mode", [AUTO, AUTO_EXACT])
@pytest.mark.parametrize("kind", TRITON_LENGTHS)
def test_the_rule_takes_the_kernels_up_to_a_length(kind, mode):
    longest = TRITON_LENGTHS[kind][mode]
    for columns in (1, 4096):
        assert choose(mode, kind, longest, columns, columns, rule=dispatch.RULE) == "triton"
        assert choose(mode, kind, longest + 1, columns, columns, rule=dispatch.RULE) != "triton"
        for time in (1, longest, 10**6):
            other = choose(
                mode, kind, time, columns, columns, rule=dispatch.RULE, usable=without_triton
            )
            assert other != "triton"
            assert PATHS[other].exact or mode == AUTO


def test_where_nothing_of_a_rule_runs_there_is_a_fallback():
    bands = [{"columns": None, "paths": [(None, "triton")]}]
    rule = dispatch.RULE | {"cuda": {AUTO: bands, AUTO_EXACT: bands}}
    dispatch.check(rule)
    found = choose(AUTO_EXACT, "cuda", 10**5, 4, 4, rule=rule, usable=without_triton)
    assert PATHS[found].exact


def test_half_precision_has_a_rule_of_its_own_on_cuda_only():
    assert kind_of("cuda", 2) == "cuda-half"
    assert kind_of("cuda", 4) == kind_of("cuda", 8) == "cuda"
    assert kind_of("cpu", 2) == "cpu"
    assert dispatch.kinds_on("cuda") == ["cuda", "cuda-half"]
    assert dispatch.kinds_on("cpu") == ["cpu"]


@pytest.mark.parametrize("time", [1, 40, 512, 2000])
def test_lookup_takes_chunks_where_its_kernels_run_and_else_by_length(time, monkeypatch):
    """On a CPU the limit is that of `dispatch.LOOKUP_CHUNKS`; with kernels there is none."""
    taken = []
    q, v = torch.zeros(1, time, 1, 2), torch.zeros(1, time, 1, 3)

    def whole(*_, path):
        taken.append(path)
        return v

    def chunked(*_):
        taken.append("chunks")
        return v, None

    monkeypatch.setattr(lookup, "toeplitz_lookup", whole)
    monkeypatch.setattr(lookup, "toeplitz_lookup_recurrent", chunked)
    filters = torch.ones(1, 1), torch.ones(1)
    lookup.lookup_recurrent_whole(q, q, v, *filters)
    monkeypatch.setattr(triton, "supports", lambda x: True)
    lookup.lookup_recurrent_whole(q, q, v, *filters)
    limit = dispatch.LOOKUP_CHUNKS["cpu"]
    assert taken == ["chunks" if time > limit else "tiles", "chunks"]


def test_on_a_cpu_it_is_not_selected_and_says_why():
    x, kernel = random_pair(1, 9, 1, 2, dtype=torch.float32)
    assert "triton" not in runnable(x)
    for call in (
        lambda: toeplitz(x, kernel, path="triton"),
        lambda: toeplitz_packed(x, kernel, [0, 4, 9], path="triton"),
    ):
        with pytest.raises(ValueError, match=r"needs a cuda device and x is on cpu: .*INTERPRET=1"):
            call()


def test_without_triton_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(triton, "installed", lambda: False)
    x, kernel = random_pair(1, 9, 1, 2, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"not installed: pip install 'toeplix\[gpu\]'"):
        toeplitz(x, kernel, path="triton")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_shapes_without_values(dtype):
    """Meta and fake tensors need no device, because nothing is launched."""
    x = torch.empty(2, 9, 2, 3, dtype=dtype, device="meta", requires_grad=True)
    kernel = torch.empty(2, 12, device="meta", requires_grad=True)
    y = toeplitz(x, kernel, path="triton")
    assert (y.shape, y.dtype, y.device.type) == (x.shape, dtype, "meta")
    dx, dkernel = torch.autograd.grad(y.sum(), (x, kernel))
    assert (dx.shape, dkernel.shape) == (x.shape, kernel.shape)
    with FakeTensorMode():
        x = torch.empty(2, 9, 2, 3, dtype=dtype)
        kernel = torch.empty(2, 12)
        assert toeplitz(x, kernel, path="triton").shape == x.shape


def test_tf32_is_pytorchs_own_setting():
    single, half = torch.ones(1), torch.ones(1, dtype=torch.bfloat16)
    assert product.precision(single) == "ieee"
    torch.set_float32_matmul_precision("high")
    try:
        assert product.precision(single) == ("ieee" if torch.version.hip else "tf32")
        assert product.precision(half) == "ieee"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert product.precision(single) == "ieee"
