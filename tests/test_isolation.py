"""The contract: whatever one row holds, no bit of another row changes, during and after its stay.

A token whose embedding is 1e20, inf or NaN stands for a row gone wrong. Every test runs twice, with an
ordinary and with the poisoned token in one row or document, or at padding; all else is equal.
"""

import contextlib

import pytest
import torch
from transformers import DynamicCache, StaticCache

from tests.hub_pairs import one_thread
from tests.models import FREE, OURS, small, stepped
from tests.test_architectures import CASES, SMALL
from toeplix import Model, build
from toeplix.hub import NearLinearCache, from_core
from toeplix.inference.generation import stream
from toeplix.inference.ragged import ragged_batch
from toeplix.inference.sampling import BadLogits

pytestmark = pytest.mark.slow

__all__ = ["one_thread"]  # a fixture

LONG = SMALL | {"context": 200}  # filters so long that decoders are near-linear
ALL = CASES | {
    "toeplitz-odd": Model(**FREE, heads=4, **(LONG | {"dim": 12})),
    "toeplitz-odd-kernels": Model(**FREE, heads=4, kernels=2, **(LONG | {"dim": 12})),
    "toeplitz-long": Model(**FREE, heads=2, **LONG),
    "hyena-long": Model(arch="hyena", **LONG),
}
POISON = {"1e20": 1e20, "inf": float("inf"), "nan": float("nan")}
ORDINARY, WRONG = 5, 0  # 0: a token that fills padding if any does


def poisoned(config, value):
    """A model whose embedding of one token is a vector of that value, in half of its channels."""
    torch.manual_seed(0)
    model = build(config).eval()
    table = model.input_embedding()
    with torch.no_grad():
        table.weight[WRONG, ::2] = value
    return model


@pytest.fixture(scope="module", params=POISON)
def value(request):
    return POISON[request.param]


# behind a norm all values come out alike, 1e20 too: every case with NaN, few with all
@pytest.fixture(
    scope="module",
    params=[(case, "nan") for case in ALL]
    + [(case, value) for case in ("toeplitz-odd", "masked", "llama") for value in ("1e20", "inf")],
    ids="-".join,
)
def model(request):
    case, value = request.param
    return poisoned(ALL[case], POISON[value])


def prompts(rows, time, seed=1):
    return torch.randint(1, 37, (rows, time), generator=torch.Generator().manual_seed(seed))


def assert_same_bits(found):
    """Of an ordinary and a poisoned run, of which the first is finite."""
    one, other = found
    assert one[..., WRONG + 1 :].isfinite().all()  # a tied output has the token's own column
    assert torch.equal(one.view(torch.int32), other.view(torch.int32))


@torch.no_grad()
def test_rows_of_a_batch(model):
    time = min(2 * model.config.context, 300)
    tokens, found = prompts(4, time), []
    for token in (ORDINARY, WRONG):
        tokens[1, 3:20:2] = token
        found.append(model(tokens)[[0, 2, 3]])
    assert_same_bits(found)


@torch.no_grad()
def test_padded_rows_and_what_stands_at_padding(model):
    tokens, mask = prompts(4, 24), torch.ones(4, 24, dtype=torch.long)
    mask[0, :7], mask[2, 20:], mask[3, :2], mask[3, 21:] = 0, 0, 0, 0
    found = []
    for token in (ORDINARY, WRONG):
        tokens[mask == 0] = token
        tokens[1, 3:20:2] = token
        found.append(model(tokens, mask=mask)[[0, 2, 3]])
    assert_same_bits(found)


@torch.no_grad()
def test_packed_documents(model):
    """Of similar lengths, which share a batch inside, and of others."""
    tokens, found = prompts(1, 300), []
    for token in (ORDINARY, WRONG):
        tokens[0, 25:48] = token
        tokens[0, 100:230:3] = token
        logits = model(tokens, offsets=[0, 24, 48, 71, 100, 230, 300])[0]
        found.append(torch.cat([logits[:24], logits[48:100], logits[230:]]))
    assert_same_bits(found)


@torch.no_grad()
def test_rows_of_a_state(model):
    """Read in chunks, then position by position, beyond the context."""
    time = min(model.config.context + 30, 230)
    tokens, found = prompts(4, time), []
    for token in (ORDINARY, WRONG):
        tokens[1, [2, 12, 13, 20, 25, 40]] = token
        logits = stepped(model, tokens, [10, 5, *[1] * (time - 15)], prefill=2)
        found.append(logits[[0, 2, 3]])
    assert_same_bits(found)


@torch.no_grad()
def test_rows_of_a_ragged_batch(model):
    """Row 1 goes wrong in its prompt and later, leaves, and another comes to its place."""
    time = min(model.config.context + 10, 170)
    tokens, found = prompts(5, 9 + time), []
    for token in (ORDINARY, WRONG):
        tokens[1, [2, 10, 15, 16, 17]] = token
        rows, here, parts = ragged_batch(model, 200), [0, 1, 2, 3], []
        for row in here:
            rows.add(model.advance(tokens[row : row + 1, :9], model.start())[1], 1)
        for step in range(time):
            if step == 20:
                rows.keep([0, 3, 2])
                rows.add(model.advance(tokens[4:, :9], model.start())[1], 1)
                here = [0, 3, 2, 4]
            logits = rows.step(tokens[here, 9 + step].tolist())
            parts.append(logits[[0, 2, 3]])
        found.append(torch.stack(parts))
    assert_same_bits(found)


@torch.no_grad()
def test_generated_rows(model):
    tokens, found = prompts(4, 12), []
    for token in (ORDINARY, WRONG):
        tokens[1, 3:9:2] = token
        rows = [[] for _ in tokens]
        with contextlib.suppress(BadLogits):  # of the poisoned row, once the others are done
            for row, sampled in stream(model, tokens.tolist(), max_new_tokens=30):
                rows[row].append(sampled)
        # where the output layer is the embedding, its NaN is in the logits of every row
        assert model.config.tie_embeddings or all(rows[row] for row in (0, 2, 3))
        found.append([rows[row] for row in (0, 2, 3)])
    assert found[0] == found[1]


@pytest.mark.parametrize("case", [name for name, config in ALL.items() if config.arch in OURS])
@torch.no_grad()
def test_rows_of_a_mixer(case, value):
    """Without the norm before it, which turns 1e20 into something ordinary."""
    torch.manual_seed(0)
    config = ALL[case]
    model, time = build(config).eval(), min(config.context + 30, 230)
    mixer, x, found = next(iter(model.blocks)).token_mixer, torch.randn(4, time, config.dim), []
    for wrong in (0.5, value):
        x[1, 2:20:3] = wrong
        state = model.start()
        parts = [mixer(x)]
        for number, part in enumerate(x.split([10, 5, *[1] * (time - 15)], 1)):
            states = state.bank._states  # of all blocks, of which one is used
            del states[len(state.parts[0]) if isinstance(state.parts[0], list) else 1 :]
            if number == 2:
                state.begin_decoding()
            parts.append(mixer.extend(part, state.parts[0]))
            state.bank.close()
        found.append(torch.cat(parts, 1)[[0, 2, 3]])
    assert_same_bits(found)


CACHES = {
    "near-linear": lambda model: NearLinearCache(),
    "dynamic": lambda model: DynamicCache(config=model.config),
    "static": lambda model: StaticCache(config=model.config, max_cache_len=230),
    "none": lambda model: None,
}


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("case", [name for name, config in ALL.items() if config.arch in OURS])
@torch.no_grad()
def test_rows_and_padding_of_the_hub(case, cache):
    config = ALL[case]
    model = from_core(poisoned(config, POISON["nan"]))
    time = min(config.context + 20, 220)
    tokens, mask = prompts(4, time), torch.ones(4, time, dtype=torch.long)
    mask[0, :7], mask[2, :1] = 0, 0
    if cache == "none":
        mask[3, time - 3 :] = 0
    real, found = mask[[0, 2, 3]].bool(), []
    for token in (ORDINARY, WRONG):
        tokens[mask == 0] = token
        tokens[1, [0, 3, 11, 24, 30]] = token
        if cache == "none":
            logits = model(tokens, attention_mask=mask).logits
        else:
            past, parts, first = CACHES[cache](model), [], 0
            for part in tokens.split([10, 18, *[1] * (time - 28)], 1):
                first += part.shape[1]
                out = model(part, attention_mask=mask[:, :first], past_key_values=past)
                parts.append(out.logits)
            logits = torch.cat(parts, 1)
        found.append(logits[[0, 2, 3]][real])
    assert_same_bits(found)


@pytest.mark.parametrize("cache", [None, "dynamic", "static"])
@pytest.mark.parametrize("arch", OURS)
def test_generated_rows_of_the_hub(arch, cache):
    settings = vars(ALL["toeplitz-odd"]) | {"dim": 16}
    del settings["arch"], settings["blocks"]
    config = small(arch, **settings)
    model = from_core(poisoned(config, POISON["nan"]))
    tokens, mask = prompts(4, 12), torch.ones(4, 12, dtype=torch.long)
    mask[0, :7] = 0
    found = []
    for token in (ORDINARY, WRONG):
        tokens[mask == 0] = token
        tokens[1, 3:9:2] = token
        rows = model.generate(
            input_ids=tokens,
            attention_mask=mask,
            do_sample=False,
            max_new_tokens=20,
            pad_token_id=WRONG,
            cache_implementation=cache,
        )
        found.append(rows[[0, 2, 3], 12:].tolist())
    assert found[0] == found[1]
