"""Files beside the weights, with which Hugging Face's Auto classes read what `toeplix.save` wrote.

    config.json              the class that reads the weights, and the control tokens
    generation_config.json   the control tokens, at which `generate()` stops
    tokenizer.json           with a post-processor that puts the start token before a text
    tokenizer_config.json    with the model's context as `model_max_length`
    modeling_*.py            code for `trust_remote_code=True` where toeplix is not installed
    README.md                the model card (model_card.py)

Only JSON and text are handled here: neither transformers nor tokenizers is imported. The bytes of a file
are a function of the model and the tokenizer: there are no dates and no paths in it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from toeplix.files import field, parse_json, printable, read_json, reading, replace_file

TOKENS, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG, CHAT_TEMPLATE = "generation_config.json", "chat_template.jinja"
TOKENIZER_FILES = (  # of a tokenizer's directory, what is copied beside a model
    *(TOKENS, TOKENIZER_CONFIG, GENERATION_CONFIG, CHAT_TEMPLATE, "special_tokens_map.json"),
    *("added_tokens.json", "vocab.json", "vocab.txt", "merges.txt", "tokenizer.model"),
    "spiece.model",
)
REMEDY = "copy the tokenizer again from where it came"
HUB = Path(__file__).with_name("hub")
# by model_type: the files of toeplix/hub that read such a checkpoint, and where the Auto classes look
CODE: dict[str, tuple[str, ...]] = {
    "toeplix": ("modeling_toeplix.py",),
    "toeplix_mamba2": ("modeling_toeplix_mamba2.py",),
}
AUTO_MAPS = {
    "toeplix": {
        "AutoConfig": "modeling_toeplix.ToeplixConfig",
        "AutoModel": "modeling_toeplix.ToeplixModel",
        "AutoModelForCausalLM": "modeling_toeplix.ToeplixForCausalLM",
        "AutoModelForSequenceClassification": "modeling_toeplix.ToeplixForSequenceClassification",
    },
    "toeplix_mamba2": {
        "AutoConfig": "modeling_toeplix_mamba2.ToeplixMamba2Config",
        "AutoModel": "modeling_toeplix_mamba2.ToeplixMamba2Model",
        "AutoModelForCausalLM": "modeling_toeplix_mamba2.ToeplixMamba2ForCausalLM",
    },
}
HOW_TO_LOAD = (
    "import toeplix.hub before the Auto classes of transformers read this directory, or pass "
    "trust_remote_code=True to them to run the code in it"
)


def quantized_notice(scheme: str) -> str:
    """Return how a model with quantized weights is loaded."""
    return (
        f"these weights are {scheme}, which transformers cannot read: use toeplix.load, "
        "`toeplix generate` or `toeplix serve`"
    )


def why_missing(folder: Path, weights: str) -> str:
    """Return why a directory has no weights to load, and what to do."""
    name, run = printable(folder), folder.parent if folder.name == "model" else folder
    if (run / "run.json").is_file():
        return (
            f"{printable(run)} is an unfinished run, without a model yet: "
            "the same `toeplix train` command goes on and finishes it"
        )
    if not folder.exists():
        return f"{name} does not exist: name the directory of a run or of a model"
    return f"{name} is no checkpoint: there is no {weights} in it"


WRITTEN_BY = "written_by"  # in generation_config.json
CODE_MARK = (
    b"It lies beside the weights of"  # in the first lines of every code file, of all versions
)
CODE_MARK_WITHIN = 1024  # bytes


def control_tokens(tokenizer_config: Mapping[str, Any]) -> dict[str, str]:
    """Return the strings of `bos`, `eos` and `pad`; the end of a text stands in for the other two."""
    found = {}
    for key in ("bos", "eos", "pad"):
        value = tokenizer_config.get(f"{key}_token")
        text = field(value, "content", str) if isinstance(value, dict) else value
        if text is not None and not isinstance(text, str):
            raise TypeError(f"field '{key}_token' must be a string, not {text!r}")
        found[key] = text
    if (end := found["eos"]) is None:
        raise ValueError("it has no eos_token to end a document with")
    return {key: text or end for key, text in found.items()}


def start_processor(start: str, number: int) -> dict[str, Any]:
    """Return the post-processor of tokenizer.json that puts the token `start` before every text."""

    def piece(kind: str, name: str, place: int) -> dict[str, Any]:
        return {kind: {"id": name, "type_id": place}}

    single = [piece("SpecialToken", start, 0), piece("Sequence", "A", 0)]
    second = [piece("SpecialToken", start, 1), piece("Sequence", "B", 1)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": single + second,
        "special_tokens": {start: {"id": start, "ids": [number], "tokens": [start]}},
    }


def token_numbers(tokens: Mapping[str, Any], control: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers of control tokens in a tokenizer.json."""
    vocab = field(field(dict(tokens), "model", dict), "vocab", object)
    known = dict(vocab) if isinstance(vocab, dict) else {}
    known |= {added["content"]: added["id"] for added in tokens.get("added_tokens") or []}
    return {key: known[text] for key, text in control.items() if text in known}


def tokenizer_files(folder: Path, context: int) -> tuple[dict[str, bytes], dict[str, int]]:
    """Return the files of a tokenizer as they lie beside a model, and the numbers of control tokens.

    `AutoTokenizer` encodes with them like our tools. A file that is so already keeps its bytes.
    """
    files = {
        name: (folder / name).read_bytes()
        for name in sorted(TOKENIZER_FILES)
        if (folder / name).is_file()
    }
    described = read_json(folder / TOKENIZER_CONFIG, REMEDY)
    with reading(folder / TOKENIZER_CONFIG, REMEDY):
        control = control_tokens(described)
    with reading(folder / TOKENS, REMEDY):
        tokens = parse_json(files[TOKENS])
        numbers = token_numbers(tokens, control)
        if "bos" in numbers:
            processor = start_processor(control["bos"], numbers["bos"])
            if tokens.get("post_processor") != processor:
                files[TOKENS] = _written(tokens | {"post_processor": processor})
    # these would replace the post-processor, and other classes than the plain one may do more
    changed = {k: v for k, v in described.items() if k not in ("add_bos_token", "add_eos_token")}
    changed |= {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": context}
    if CHAT_TEMPLATE in files or changed.get("chat_template"):
        changed["split_special_tokens"] = False  # templates write control tokens as text
    if changed != described:
        files[TOKENIZER_CONFIG] = _written(changed)
    return files, numbers


def known_numbers(folder: Path) -> dict[str, int]:
    """Return the numbers of the control tokens of a tokenizer that may lie in a directory."""
    if not all((folder / name).is_file() for name in (TOKENS, TOKENIZER_CONFIG)):
        return {}
    try:
        control = control_tokens(read_json(folder / TOKENIZER_CONFIG))
        return token_numbers(read_json(folder / TOKENS), control)
    except (OSError, ValueError, LookupError, TypeError):  # `load` tells what is wrong with it
        return {}


def token_ids(numbers: Mapping[str, int], vocab: int) -> dict[str, int]:
    """Return the settings of transformers that name control tokens."""
    return {
        f"{key}_token_id": number
        for key, number in numbers.items()
        if type(number) is int and 0 <= number < vocab
    }


def check_code(folder: Path, model_type: str) -> None:
    """Reject a directory with a file of another origin where the code has to be."""
    for name in CODE.get(model_type, ()):
        file = folder / name
        if not file.exists():
            continue
        with open(file, "rb") as opened:
            if CODE_MARK not in opened.read(CODE_MARK_WITHIN):
                raise FileExistsError(
                    f"{printable(file)} was not written by toeplix: move it, or name another directory"
                )


def write_code(folder: Path, model_type: str) -> None:
    """Copy the code that reads the checkpoint, if transformers has none itself."""
    for name in CODE.get(model_type, ()):
        code = (HUB / name).read_bytes()
        replace_file(folder / name, lambda aside, code=code: aside.write_bytes(code))  # type: ignore[misc]


def write_generation_config(folder: Path, ids: Mapping[str, int], version: str) -> None:
    """Write the control tokens for `generate()`; a file of another origin is left alone."""
    file = folder / GENERATION_CONFIG
    if not ids or (file.exists() and not _is_ours(file)):
        return
    text = _written({WRITTEN_BY: f"toeplix {version}", **ids})
    replace_file(file, lambda aside: aside.write_bytes(text))


def _is_ours(file: Path) -> bool:
    """Whether a generation_config.json has nothing but what `write_generation_config` writes."""
    try:
        found = read_json(file)
    except (OSError, ValueError):
        return False
    names = {WRITTEN_BY, "bos_token_id", "eos_token_id", "pad_token_id"}
    return WRITTEN_BY in found and set(found) <= names


def _written(record: dict[str, Any]) -> bytes:
    return (json.dumps(record, indent=2, ensure_ascii=False) + "\n").encode()
