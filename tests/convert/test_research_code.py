"""Research checkpoints: converted models equal a plain retelling of the original computation."""

import resource
import subprocess
import sys

import pytest
import torch
from safetensors.torch import save_file
from torch.nn.functional import conv1d, gelu, layer_norm, linear, silu

from tests.cli.test_main import toeplix
from toeplix import load
from toeplix.convert.research_code import convert

VOCAB, DIM, CONTEXT, DEPTH = 13, 8, 10, 2


def random_weights(shapes):
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(*shape, generator=generator) / 3 for name, shape in shapes.items()}


def toeplitz_shapes(heads=0, kernels=1, two_layers=False):
    shapes = {"input_layer.weight": (VOCAB, DIM), "output_layer.weight": (VOCAB, DIM)}
    parts = [".0", ".3"] if two_layers else [""]
    for i in range(DEPTH):
        block = f"mixer_blocks.{i}."
        for norm in ("channel_norm", "token_norm"):
            shapes |= {f"{block}{norm}.weight": (DIM,), f"{block}{norm}.bias": (DIM,)}
        mlp = f"{block}channel_mixing_layer."
        shapes |= {f"{mlp}0.weight": (4 * DIM, DIM), f"{mlp}0.bias": (4 * DIM,)}
        shapes |= {f"{mlp}3.weight": (DIM, 4 * DIM), f"{mlp}3.bias": (DIM,)}
        mixer = f"{block}token_mixing_layer"
        places = [f"{mixer}.mixer_heads.{j}" for j in range(heads)] or [mixer]
        for place in places:
            for part in parts:
                shapes |= {
                    f"{place}{part}.weight": (kernels, CONTEXT),
                    f"{place}{part}.bias": (CONTEXT,),
                }
        for j in range(heads):
            shapes[f"{mixer}.proj_head.{j}.weight"] = (DIM // heads, DIM)
            shapes[f"{mixer}.proj_head.{j}.bias"] = (DIM // heads,)
        if heads:
            shapes |= {f"{mixer}.out_proj.weight": (DIM, DIM), f"{mixer}.out_proj.bias": (DIM,)}
    return shapes


def filtered(w, place, x):
    """Loops over kernels, lags and channels, as the equation says."""
    weight, bias = w[f"{place}.weight"], w[f"{place}.bias"]
    y = torch.zeros_like(x) + bias[: x.shape[1], None]
    for i, taps in enumerate(weight):
        for channel in range(x.shape[2]):
            source = channel + i - (len(weight) - 1)
            if source >= 0:
                for lag in range(x.shape[1]):
                    y[:, lag:, channel] += taps[lag] * x[:, : x.shape[1] - lag, source]
    return y


def mixed(w, place, x, two_layers):
    if two_layers:
        return filtered(w, f"{place}.3", silu(filtered(w, f"{place}.0", x)))
    return filtered(w, place, x)


def toeplitz_original(w, tokens, heads, two_layers):
    x = w["input_layer.weight"][tokens]
    for i in range(DEPTH):
        block = f"mixer_blocks.{i}."
        normed = layer_norm(
            x, (DIM,), w[f"{block}channel_norm.weight"], w[f"{block}channel_norm.bias"]
        )
        mlp = f"{block}channel_mixing_layer."
        hidden = silu(linear(normed, w[f"{mlp}0.weight"], w[f"{mlp}0.bias"]))
        x = x + linear(hidden, w[f"{mlp}3.weight"], w[f"{mlp}3.bias"])
        normed = layer_norm(x, (DIM,), w[f"{block}token_norm.weight"], w[f"{block}token_norm.bias"])
        mixer = f"{block}token_mixing_layer"
        if heads:
            parts = []
            for j in range(heads):
                name = f"{mixer}.proj_head.{j}"
                part = linear(normed, w[f"{name}.weight"], w[f"{name}.bias"])
                parts.append(mixed(w, f"{mixer}.mixer_heads.{j}", part, two_layers))
            out = (w[f"{mixer}.out_proj.weight"], w[f"{mixer}.out_proj.bias"])
            x = x + linear(torch.cat(parts, -1), *out)
        else:
            x = x + mixed(w, mixer, normed, two_layers)
    return linear(x, w["output_layer.weight"])


@pytest.mark.parametrize(
    ("heads", "kernels", "two_layers"),
    [(0, 1, False), (4, 1, False), (0, 3, False), (0, 1, True), (2, 1, True)],
)
def test_toeplitz(tmp_path, heads, kernels, two_layers):
    weights = random_weights(toeplitz_shapes(heads, kernels, two_layers))
    save_file(weights, tmp_path / "original.safetensors")
    model = convert(tmp_path / "original.safetensors")
    assert (model.config.heads, model.config.kernels) == (heads, kernels)
    for length in (CONTEXT, 4):
        tokens = torch.randint(VOCAB, (2, length))
        expected = toeplitz_original(weights, tokens, heads, two_layers)
        with torch.no_grad():
            torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)


ORDER, FEATURES = 6, 3


def hyena_shapes():
    shapes = {"wte.weight": (VOCAB, DIM), "lm_head.weight": (VOCAB, DIM)}
    for i in range(DEPTH):
        block = f"mixerblocks.{i}."
        for norm in ("seq_layernorm", "patch_layernorm"):
            shapes |= {f"{block}{norm}.weight": (DIM,), f"{block}{norm}.bias": (DIM,)}
        shapes |= {
            f"{block}patch_ff.0.weight": (4 * DIM, DIM),
            f"{block}patch_ff.0.bias": (4 * DIM,),
        }
        shapes |= {f"{block}patch_ff.2.weight": (DIM, 4 * DIM), f"{block}patch_ff.2.bias": (DIM,)}
        hyena = f"{block}hyena."
        shapes |= {f"{hyena}in_proj.weight": (3 * DIM, DIM), f"{hyena}in_proj.bias": (3 * DIM,)}
        shapes |= {f"{hyena}out_proj.weight": (DIM, DIM), f"{hyena}out_proj.bias": (DIM,)}
        shapes |= {
            f"{hyena}short_filter.weight": (3 * DIM, 1, 3),
            f"{hyena}short_filter.bias": (3 * DIM,),
        }
        made = f"{hyena}filter_fn."
        shapes |= {f"{made}bias": (DIM,), f"{made}pos_emb.z": (1, CONTEXT, FEATURES)}
        shapes |= {f"{made}pos_emb.t": (1, CONTEXT, 1), f"{made}modulation.deltas": (1, 1, DIM)}
        for layer, size in (("0", FEATURES), ("2", ORDER), ("4", ORDER)):
            shapes[f"{made}implicit_filter.{layer}.weight"] = (ORDER, size)
            shapes[f"{made}implicit_filter.{layer}.bias"] = (ORDER,)
        shapes[f"{made}implicit_filter.6.weight"] = (DIM, ORDER)
        shapes[f"{made}implicit_filter.1.freq"] = (1, ORDER)
    return shapes


def hyena_original(w, tokens):
    x = w["wte.weight"][tokens]
    time = tokens.shape[1]
    for i in range(DEPTH):
        block = f"mixerblocks.{i}."
        name = f"{block}seq_layernorm."
        normed = layer_norm(x, (DIM,), w[f"{name}weight"], w[f"{name}bias"])
        hyena, made = f"{block}hyena.", f"{block}hyena.filter_fn."
        wide = linear(normed, w[f"{hyena}in_proj.weight"], w[f"{hyena}in_proj.bias"]).transpose(
            1, 2
        )
        short = (w[f"{hyena}short_filter.weight"], w[f"{hyena}short_filter.bias"])
        wide = conv1d(wide, *short, padding=2, groups=3 * DIM)[..., :time].transpose(1, 2)
        gate, other, value = wide.split(DIM, -1)
        value = value * other
        z = w[f"{made}pos_emb.z"][0, :time]
        for layer in ("0", "2", "4"):
            name = f"{made}implicit_filter.{layer}."
            z = linear(z, w[f"{name}weight"], w[f"{name}bias"])
            z = torch.sin(w[f"{made}implicit_filter.1.freq"] * z)
        z = linear(z, w[f"{made}implicit_filter.6.weight"])
        z = z * torch.exp(-w[f"{made}pos_emb.t"][0, :time] * w[f"{made}modulation.deltas"][0].abs())
        long = value * w[f"{made}bias"]
        for lag in range(time):
            long[:, lag:] += z[lag] * value[:, : time - lag]
        x = x + linear(gate * long, w[f"{hyena}out_proj.weight"], w[f"{hyena}out_proj.bias"])
        name = f"{block}patch_layernorm."
        normed = layer_norm(x, (DIM,), w[f"{name}weight"], w[f"{name}bias"])
        hidden = gelu(linear(normed, w[f"{block}patch_ff.0.weight"], w[f"{block}patch_ff.0.bias"]))
        x = x + linear(hidden, w[f"{block}patch_ff.2.weight"], w[f"{block}patch_ff.2.bias"])
    return linear(x, w["lm_head.weight"])


@pytest.mark.parametrize("all_names", [False, True])
def test_hyena(tmp_path, all_names):
    weights = random_weights(hyena_shapes())
    if all_names:  # the one frequency vector saved under its three names
        for i in range(DEPTH):
            name = f"mixerblocks.{i}.hyena.filter_fn.implicit_filter."
            for layer in ("3", "5"):
                weights[f"{name}{layer}.freq"] = weights[f"{name}1.freq"].clone()
    save_file(weights, tmp_path / "original.safetensors")
    model = convert(tmp_path / "original.safetensors")
    for length in (CONTEXT, 5):
        tokens = torch.randint(VOCAB, (2, length))
        with torch.no_grad():
            expected = hyena_original(weights, tokens)
            torch.testing.assert_close(model(tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_command(tmp_path):
    weights = random_weights(toeplitz_shapes(heads=2))
    save_file(weights, tmp_path / "original.safetensors")
    done = toeplix("import", str(tmp_path / "original.safetensors"), str(tmp_path / "ours"))
    assert done.returncode == 0, done.stderr
    assert "toeplitz, heads 2, dim 8, depth 2, context 10" in done.stdout
    tokens = torch.randint(VOCAB, (1, 6))
    with torch.no_grad():
        expected = toeplitz_original(weights, tokens, 2, False)
        torch.testing.assert_close(load(tmp_path / "ours")(tokens), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w | {"stranger": torch.zeros(1)}, "no place in a toeplitz: ['stranger']"),
        (
            lambda w: {k: v for k, v in w.items() if k != "mixer_blocks.1.token_norm.bias"},
            "has no 'mixer_blocks.1.token_norm.bias'",
        ),
        (lambda w: {"a": torch.zeros(1)}, "of no known architecture"),
    ],
)
def test_what_does_not_fit_is_named(tmp_path, change, words):
    save_file(change(random_weights(toeplitz_shapes())), tmp_path / "original.safetensors")
    done = toeplix("import", str(tmp_path / "original.safetensors"), str(tmp_path / "ours"))
    assert done.returncode == 2
    assert words in done.stderr
    assert not (tmp_path / "ours").exists()


@pytest.mark.slow
def test_no_file(tmp_path):
    done = toeplix("import", str(tmp_path / "nothing"), str(tmp_path / "ours"))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "there is no file" in done.stderr


@pytest.mark.parametrize(
    "change",
    [
        lambda w: w | {"mixer_blocks.999999999.x": torch.zeros(1)},
        lambda w: w | {f"mixer_blocks.{'9' * 5000}.x": torch.zeros(1)},
        lambda w: w | {"mixer_blocks.0.token_mixing_layer.mixer_heads.99999999.x": torch.zeros(1)},
        lambda w: w | {"input_layer.weight": torch.zeros(1, 30000)},
        lambda w: w | {"input_layer.weight": torch.zeros(0, 0)},
        lambda w: w | {"input_layer.weight": torch.zeros(5)},
        lambda w: w | {"input_layer.weight": torch.zeros(VOCAB, DIM, dtype=torch.int32)},
        lambda w: w | {"mixer_blocks.0.channel_mixing_layer.0.weight": torch.zeros(())},
        lambda w: w | {"mixer_blocks.0.token_mixing_layer.weight": torch.zeros(1, 10**6)},
        lambda w: w | {"mixer_blocks.0.token_mixing_layer.weight": torch.zeros(3)},
        lambda w: {"wte.weight": torch.zeros(3, 4)},
    ],
)
@pytest.mark.usefixtures("unchecked")
def test_sizes_in_a_file_are_bounded(tmp_path, change):
    file = tmp_path / "original.safetensors"
    save_file(change(random_weights(toeplitz_shapes())), file)
    with pytest.raises(ValueError, match=r"original\.safetensors"):
        convert(file)
    file.write_bytes(b"x" * 100)
    with pytest.raises(ValueError, match="is damaged"):
        convert(file)


@pytest.mark.slow
def test_a_full_disk_leaves_nothing(tmp_path):
    """No file may grow beyond 2000 bytes."""
    save_file(random_weights(toeplitz_shapes()), tmp_path / "original.safetensors")
    command = [sys.executable, "-m", "toeplix", "import", str(tmp_path / "original.safetensors")]
    done = subprocess.run(
        [*command, str(tmp_path / "deep/ours")],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000)),
    )
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "File too large" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["original.safetensors"]
