"""`generate()` for twins of core models: one result, whatever the cache and the road taken."""

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import DynamicCache, PreTrainedTokenizerFast, StaticCache, pipeline
from transformers.generation.streamers import BaseStreamer

from tests.hub_pairs import ARCHS, CASES, PROMPTS, one_thread, padded, pair, twins
from tests.models import FREE
from tests.test_architectures import CLOSE, SMALL
from toeplix import Model
from toeplix.hub import NearLinearCache
from toeplix.inference.generation import generate

pytestmark = pytest.mark.slow

__all__ = ["one_thread", "twins"]  # fixtures

LONG_HYENA = Model(**(SMALL | {"context": 200}), arch="hyena")
LONG = Model(**FREE, **(SMALL | {"context": 200}), heads=2)  # the decoder is an online one
CACHES = {
    "near-linear": lambda model: {},
    "none": lambda model: {"use_cache": False},
    "dynamic": lambda model: {"past_key_values": DynamicCache()},
    "counted": lambda model: {"past_key_values": DynamicCache(config=model.config)},
    "static": lambda model: {"cache_implementation": "static"},
    "own": lambda model: {"past_key_values": NearLinearCache()},
}


def decode(model, prompts=PROMPTS, new=12, **how):
    inputs = padded(prompts, left=True)
    how = {"do_sample": False, "max_new_tokens": new, "pad_token_id": 0} | how
    return model.generate(**inputs, **how)[:, inputs["input_ids"].shape[1] :].tolist()


@pytest.mark.parametrize("cache", CACHES)
def test_greedy_is_the_cores(twins, cache):
    """Left-padded prompts of different lengths, and on beyond the context."""
    core, model = twins
    assert decode(model, **CACHES[cache](model)) == generate(core, PROMPTS, max_new_tokens=12)


@pytest.mark.parametrize("cache", ["near-linear", "dynamic"])
def test_greedy_far_beyond_the_context_and_through_the_online_decoder(cache):
    for config in (LONG, LONG_HYENA, CASES["masked"]):
        core, model = pair(config)
        prompts = [[1, 2, 3], list(range(30)) * 4]
        how = CACHES[cache](model)
        assert decode(model, prompts, new=100, **how) == generate(core, prompts, max_new_tokens=100)


@pytest.mark.parametrize("name", ARCHS)
def test_beams_and_samples_do_not_depend_on_the_cache(name):
    _, model = pair(CASES[name])
    for how in (
        {"num_beams": 3, "num_return_sequences": 2},
        {"num_beams": 2, "do_sample": True},
        {"do_sample": True, "top_k": 5, "num_return_sequences": 2},
    ):
        results = []
        for cache in CACHES.values():
            torch.manual_seed(1)
            results.append(decode(model, **how, **cache(model)))
        assert all(result == results[0] for result in results), how


@pytest.mark.parametrize("config", [LONG, LONG_HYENA], ids=["toeplitz", "hyena"])
def test_beams_through_the_online_decoder(config):
    _, model = pair(config, sharp=False)
    prompts = [[1, 2, 3], [4, 5, 6, 7]]
    ours, stock = (
        decode(model, prompts, 80, num_beams=3, **CACHES[c](model)) for c in ("own", "none")
    )
    assert ours == stock


class Kept(BaseStreamer):
    def __init__(self):
        self.tokens = []

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.tokens.append("end")


@pytest.mark.parametrize("name", ARCHS)
def test_roads_that_lead_to_greedy(name):
    """Streaming, drafts by lookup and by a model, chunks of the prompt, embeddings for tokens."""
    core, model = pair(CASES[name])
    prompt = [3, 4, 5, 3, 4, 5, 3, 4]
    expected = generate(core, [prompt], max_new_tokens=10)
    kept = Kept()
    assert decode(model, [prompt], 10, streamer=kept) == expected
    assert kept.tokens == [*prompt, *expected[0], "end"]
    assert decode(model, [prompt], 10, prompt_lookup_num_tokens=3) == expected
    _, draft = pair(Model(**SMALL, heads=2))
    for assistant in (draft, model):
        assert decode(model, [prompt], 10, assistant_model=assistant) == expected
    for cache in ("near-linear", "dynamic", "static"):
        how = CACHES[cache](model)
        assert decode(model, [prompt], 10, prefill_chunk_size=3, **how) == expected
    embedded = model.embedding(torch.tensor([prompt]))
    how = {"do_sample": False, "max_new_tokens": 10, "pad_token_id": 0}
    assert model.generate(inputs_embeds=embedded, **how).tolist() == expected
    shown = model.generate(torch.tensor([prompt]), return_dict_in_generate=True, **how)
    assert isinstance(shown.past_key_values, NearLinearCache)
    assert shown.past_key_values.get_seq_length() == len(prompt) + 9


@pytest.mark.parametrize("name", ARCHS)
@pytest.mark.parametrize("kind", ["dynamic", "static", "near-linear"])
def test_a_conversation_goes_on_from_its_cache(name, kind):
    core, model = pair(CASES[name])
    made = {
        "dynamic": DynamicCache,
        "static": lambda: StaticCache(config=model.config, max_cache_len=60),
        "near-linear": NearLinearCache,
    }
    cache, said = made[kind](), []
    for turn in ([1, 2, 3], [4, 5, 6, 7], [8]):
        said += turn
        expected = generate(core, [said], max_new_tokens=6)[0]
        assert decode(model, [said], 6, past_key_values=cache) == [expected]
        said += expected


@torch.no_grad()
@pytest.mark.parametrize("kind", [DynamicCache, NearLinearCache])
def test_in_pieces_as_whole(twins, kind):
    """Chunks and single steps, rows padded on the left, the mask growing with them."""
    _, model = twins
    inputs = padded([list(range(1, 30)), list(range(5, 20))], left=True)
    whole, cache, first, parts = model(**inputs).logits, kind(), 0, []
    for size in (4, 1, 1, 17, 1, 5):
        last = first + size
        tokens, mask = inputs["input_ids"][:, first:last], inputs["attention_mask"][:, :last]
        parts.append(model(tokens, attention_mask=mask, past_key_values=cache).logits)
        first = last
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(torch.cat(parts, 1)[real], whole[real], **CLOSE)


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHS)
def test_rows_of_a_cache_are_selected_and_repeated(name):
    _, model = pair(CASES[name])
    tokens = torch.randint(37, (3, 9))
    for steps in (0, 2):  # a history, then a decoder
        cache = NearLinearCache()
        for part in tokens.split([9 - steps, *[1] * steps], 1):
            model(part, past_key_values=cache)
        cache.batch_select_indices(torch.tensor([2, 0]))
        cache.batch_repeat_interleave(2)
        cache.reorder_cache(torch.tensor([0, 3, 1, 2]))
        rows = tokens[[2, 0, 2, 0]]
        following = model(torch.full((4, 1), 5), past_key_values=cache).logits
        whole = model(torch.cat([rows, torch.full((4, 1), 5)], 1)).logits
        torch.testing.assert_close(following, whole[:, -1:], **CLOSE)
        cache.reset()
        torch.testing.assert_close(
            model(rows, past_key_values=cache).logits, whole[:, :-1], **CLOSE
        )


@torch.no_grad()
@pytest.mark.parametrize("name", ARCHS)
def test_rows_that_a_cache_does_not_have_are_rejected(name):
    _, model = pair(CASES[name])
    for steps in (0, 2):
        cache = NearLinearCache()
        for part in torch.randint(37, (3, 9)).split([9 - steps, *[1] * steps], 1):
            model(part, past_key_values=cache)
        for rows, kind in (([-1], IndexError), ([3], IndexError), ([True, False, True], TypeError)):
            with pytest.raises(kind, match="row"):
                cache.reorder_cache(torch.tensor(rows))
        cache.batch_select_indices(torch.tensor([True, False, True]))  # masks, as the stock caches
        assert model(torch.tensor([[1], [2]]), past_key_values=cache).logits.shape[0] == 2


def test_a_near_linear_cache_does_not_go_back():
    _, model = pair(CASES["toeplitz"])
    cache = NearLinearCache()
    decode(model, [[1, 2]], 3, past_key_values=cache)
    with pytest.raises(ValueError, match="cannot take tokens back"):
        cache.crop(-1)


def test_a_pipeline_generates_text():
    words = {"[PAD]": 0} | {f"w{i}": i for i in range(1, 37)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", padding_side="left"
    )
    core, model = pair(CASES["toeplitz"])
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    texts = ["w5 w6 w7", "w8"]
    written = write(texts, batch_size=2, max_new_tokens=6, do_sample=False, return_full_text=False)
    expected = [
        [token for token in row if token]
        for row in generate(core, [[5, 6, 7], [8]], max_new_tokens=6)
    ]
    assert [tokenizer.encode(one[0]["generated_text"]) for one in written] == expected


@pytest.mark.parametrize("name", ["toeplitz", "hyena", "lookup-free", "hybrid", "linear"])
def test_gradients_pass_through_a_near_linear_cache(name):
    """Single positions with gradients are prefilled like others: the gradients are those of the whole."""
    _, model = pair(CASES[name])
    tokens, found = torch.randint(37, (2, 9)), []
    for sizes in ([9], [5, 1, 1, 2]):
        model.zero_grad()
        cache = NearLinearCache()
        parts = [model(part, past_key_values=cache).logits for part in tokens.split(sizes, 1)]
        torch.cat(parts, 1).square().mean().backward()
        found.append(
            {key: p.grad.clone() for key, p in model.named_parameters() if p.requires_grad}
        )
    model.zero_grad()
    for key, expected in found[0].items():
        atol = 1e-4 * expected.abs().max().item() + 1e-7
        torch.testing.assert_close(found[1][key], expected, rtol=1e-4, atol=atol, msg=key)


def test_a_cache_with_decoders_gives_no_gradients():
    _, model = pair(CASES["toeplitz"])
    cache, token = NearLinearCache(), torch.tensor([[1]])
    with torch.no_grad():
        for _ in range(3):
            model(token, past_key_values=cache)
    with pytest.raises(
        ValueError, match=r"torch\.no_grad\(\), or pass past_key_values=DynamicCache"
    ):
        model(token, past_key_values=cache)
