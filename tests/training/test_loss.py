"""The chunked loss equals the plain one, and never holds all logits."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils._python_dispatch import TorchDispatchMode

from toeplix.training import loss
from toeplix.training.loss import vocabulary_loss


def plain(features, head, labels):
    return cross_entropy(head(features).flatten(0, -2), labels.flatten(), reduction="sum")


def gradients(value, *inputs):
    return torch.autograd.grad(value, [x for x in inputs if x is not None])


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 40])
def test_equals_the_plain_loss(bias, rows, monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", 8 * 37)
    head = nn.Linear(5, 37, bias=bias).double()
    features = torch.randn(2, rows, 5, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(37, (2, rows))
    labels[1, rows // 2 :] = -100
    expected = plain(features, head, labels)
    found, number = vocabulary_loss(features, head, labels)
    assert number == int((labels >= 0).sum())
    torch.testing.assert_close(found, expected)
    inputs = (features, head.weight, head.bias)
    torch.testing.assert_close(
        gradients(3 * found, *inputs), gradients(3 * expected, *inputs), rtol=1e-10, atol=1e-10
    )


def test_large_logits_do_not_overflow():
    head = nn.Linear(4, 11, bias=False)
    features = (1e4 * torch.randn(6, 4)).requires_grad_()
    labels = torch.randint(11, (6,))
    found, _ = vocabulary_loss(features, head, labels)
    torch.testing.assert_close(found, plain(features, head, labels))
    assert all(g.isfinite().all() for g in gradients(found, features, head.weight))


def test_tied_weights_get_both_gradients():
    embedding = nn.Embedding(11, 4)
    head = nn.Linear(4, 11, bias=False)
    head.weight = embedding.weight
    labels = torch.randint(11, (6,))
    results = []
    for function in (lambda *given: vocabulary_loss(*given)[0], plain):
        value = function(embedding(labels), head, labels.roll(1))
        results.append(gradients(value, embedding.weight))
    torch.testing.assert_close(*results)


def test_nothing_to_score():
    features = torch.randn(3, 4, requires_grad=True)
    value, number = vocabulary_loss(features, nn.Linear(4, 11), torch.full((3,), -100))
    assert number == 0
    assert value.item() == 0
    assert torch.equal(*gradients(value, features), torch.zeros(3, 4))


@pytest.mark.parametrize("autocast", [False, True])
def test_half_precision(autocast):
    torch.manual_seed(0)
    head = nn.Linear(16, 50)
    features = torch.randn(30, 16, requires_grad=True)
    labels = torch.randint(50, (30,))
    inputs = (features, head.weight, head.bias)
    expected = [plain(features, head, labels), *gradients(plain(features, head, labels), *inputs)]
    if autocast:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            value, _ = vocabulary_loss(features, head, labels)
        found = [value, *gradients(value, *inputs)]
    else:
        halved = nn.Linear(16, 50).bfloat16()
        halved.load_state_dict(head.state_dict())
        given = features.detach().bfloat16().requires_grad_()
        value, _ = vocabulary_loss(given, halved, labels)
        found = [value, *gradients(value, given, halved.weight, halved.bias)]
    assert found[0].dtype == torch.float32
    for ours, exact in zip(found, expected, strict=True):
        assert (ours - exact).abs().max() < 0.03 * exact.abs().max()


def test_a_label_outside_the_vocabulary_is_named():
    with pytest.raises(ValueError, match=r"labels 3 .. 11 do not fit a vocabulary of 11"):
        vocabulary_loss(torch.randn(2, 4), nn.Linear(4, 11), torch.tensor([3, 11]))


class Largest(TorchDispatchMode):
    """Remembers the size of the largest tensor that any operation gave."""

    size = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.size = max(self.size, result.numel())
        return result


def test_logits_exist_for_one_chunk_only(monkeypatch):
    monkeypatch.setattr(loss, "CHUNK_LOGITS", 10 * 100)
    head = nn.Linear(4, 100, bias=False)
    features, labels = torch.randn(300, 4, requires_grad=True), torch.randint(100, (300,))
    with Largest() as seen:
        value, _ = vocabulary_loss(features, head, labels)
        gradients(value, features, head.weight)
    assert seen.size <= 300 * 4  # the features; all logits would be 300 * 100
