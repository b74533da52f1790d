"""Documents packed into one row by `position_ids`: each is as alone, in every model."""

import pytest
import torch
from torch.utils._device import _device_constructors
from transformers import (
    AutoModelForSequenceClassification,
    DataCollatorWithFlattening,
    DynamicCache,
)
from transformers.initialization import meta_device_safe_creation_ops

from tests.hub_pairs import CASES, one_thread, padded, pair
from tests.test_architectures import CLOSE
from toeplix import build
from toeplix.hub import NearLinearCache, modeling_toeplix

pytestmark = pytest.mark.slow

__all__ = ["one_thread"]  # a fixture

DOCUMENTS = [[1, 2, 3, 4, 5], [7], list(range(1, 31)), [3, 4]]  # the third is beyond the context
KINDS = ["toeplitz", "attention", "masked", "hyena", "linear", "lookup-free", "hybrid-recurrent"]


def packed(**options):
    return DataCollatorWithFlattening(**options)([{"input_ids": each} for each in DOCUMENTS])


def plain(model):
    """The same weights in the class that a checkpoint carries."""
    copy = modeling_toeplix.ToeplixForCausalLM(model.config).eval()
    copy.load_state_dict(model.state_dict())
    return copy


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("convert", [lambda model: model, plain], ids=["toeplix", "plain"])
def test_packed_documents_are_as_alone(name, convert):
    """The core model reads them one by one; gradients of the weights are the same too."""
    core, model = pair(CASES[name])
    model, batch = convert(model), packed()
    model.zero_grad()
    alone = torch.cat([core(torch.tensor([each]))[0] for each in DOCUMENTS])
    alone.square().mean().backward()
    together = model(**batch, output_hidden_states=True)
    together.logits.square().mean().backward()
    torch.testing.assert_close(together.logits[0], alone, **CLOSE)
    assert together.hidden_states[1].shape == (1, len(alone), 32)
    expected = {key: value.grad for key, value in core.named_parameters()}
    for key, value in model.named_parameters():
        if value.grad is not None:
            atol = 1e-4 * expected[key].abs().max().item() + 1e-6
            torch.testing.assert_close(value.grad, expected[key], rtol=1e-4, atol=atol, msg=key)


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_packed_rows_may_be_padded(name):
    core, model = pair(CASES[name])
    inputs = padded(
        [[token for each in DOCUMENTS for token in each], [5, 6, 7, 8, 9, 10, 11]], left=True
    )
    positions = torch.ones_like(inputs["input_ids"])
    positions[0] = packed()["position_ids"][0]
    positions[1, -7:] = torch.tensor([0, 1, 2, 0, 1, 2, 3])
    logits = model(**inputs, position_ids=positions).logits
    expected = [core(torch.tensor([each]))[0] for each in ([5, 6, 7], [8, 9, 10, 11])]
    torch.testing.assert_close(logits[1, -7:], torch.cat(expected), **CLOSE)
    alone = torch.cat([core(torch.tensor([each]))[0] for each in DOCUMENTS])
    torch.testing.assert_close(logits[0], alone, **CLOSE)


def test_what_would_be_ignored_is_rejected():
    _, model = pair(CASES["toeplitz"])
    with pytest.raises(ValueError, match="which a cache does not keep apart: pass use_cache=False"):
        model(**packed(), use_cache=True)
    with pytest.raises(ValueError, match="cache does not keep apart"):
        model(**packed(), past_key_values=DynamicCache())
    for option in ("return_seq_idx", "return_flash_attn_kwargs"):
        batch = packed(**{option: True})
        model(**batch)
        del batch["position_ids"]
        with pytest.raises(ValueError, match=r"(seq_idx|cu_seq_lens_q) without position_ids"):
            model(**batch)
    with pytest.raises(ValueError, match="output_attentions=True is not supported"):
        model(torch.tensor([[1]]), output_attentions=True)
    model(torch.tensor([[1]]), output_attentions=False)


@torch.no_grad()
@pytest.mark.parametrize("kind", [DynamicCache, NearLinearCache])
@pytest.mark.parametrize("time", [2, 3])
def test_a_document_that_begins_after_a_cache_is_rejected(kind, time):
    """Unless the row has only padding so far."""
    _, model = pair(CASES["toeplitz-flat"])
    tokens, position = torch.randint(37, (2, 4 + time)), torch.arange(time).expand(2, -1)
    cache, new = kind(), tokens[:, 4:]
    model(tokens[:, :4], past_key_values=cache)
    with pytest.raises(ValueError, match="cache does not keep apart"):
        model(new, position_ids=position, past_key_values=cache)
    with pytest.raises(ValueError, match="cache does not keep apart"):
        model(new, torch.ones_like(tokens), position_ids=position, past_key_values=cache)
    model(new, position_ids=position + 4, past_key_values=cache)
    cache, mask = kind(), torch.ones_like(tokens)
    mask[:, :4] = 0
    model(tokens[:, :4], mask[:, :4], past_key_values=cache)
    after = model(new, mask, position_ids=position, past_key_values=cache).logits
    torch.testing.assert_close(after, model(new).logits, **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", KINDS)
def test_a_model_on_meta_gives_shapes(name):
    with torch.device("meta"):
        model = modeling_toeplix.ToeplixForCausalLM(pair(CASES[name])[1].config)
    tokens = torch.zeros(2, 5, dtype=torch.long, device="meta")
    assert model(tokens).logits.shape == (2, 5, 37)


def test_hyena_is_built_on_meta_after_transformers_changed_linspace():
    """PyTorch remembers the functions that follow `torch.device` at the first use of one."""
    _device_constructors.cache_clear()
    try:
        with torch.device("meta"), meta_device_safe_creation_ops():
            torch.empty(1)
        with torch.device("meta"):
            assert torch.linspace(0, 1, 3).device.type == "cpu"
            model = build(CASES["hyena"])
    finally:
        _device_constructors.cache_clear()
    assert {value.device.type for value in model.state_dict().values()} == {"meta"}


def test_classification_reads_the_last_token(tmp_path):
    """Whatever the padding; the other weights are those of the language model."""
    _, model = pair(CASES["hybrid-recurrent"])
    model.save_pretrained(tmp_path)
    classifier = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=3)
    rows = [[1, 2, 3, 4, 5], [7, 8]]
    features = [model(torch.tensor([row]), output_hidden_states=True) for row in rows]
    expected = classifier.score(torch.cat([each.hidden_states[-1][:, -1] for each in features]))
    for left in (True, False):
        torch.testing.assert_close(classifier(**padded(rows, left)).logits, expected, **CLOSE)
    tokens = padded(rows, left=False)["input_ids"]  # 11 where there is nothing
    with pytest.raises(ValueError, match="where their texts end is unknown"):
        classifier(tokens)
    classifier.config.pad_token_id = 11
    out = classifier(tokens, labels=torch.tensor([2, 0]))
    torch.testing.assert_close(out.logits, expected, **CLOSE)
    loss = torch.nn.functional.cross_entropy(out.logits, torch.tensor([2, 0]))
    torch.testing.assert_close(out.loss, loss)
    out.loss.backward()
    assert classifier.embedding.weight.grad.abs().sum() > 0
