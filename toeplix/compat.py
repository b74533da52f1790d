"""Records of version 0.1.0 in the present names: models, runs, metrics and token stores.

A record that has an old name is an old one and is renamed; any other passes through as it is. Old
records of models hold every field, so those that the architecture does not read are dropped.
"""

import math
from collections.abc import Mapping
from typing import Any

MODEL = {
    "expansion": "mlp_ratio",
    "tied": "tie_embeddings",
    "first": "block_order",
    "filters": "filter_init",
    "order": "filter_hidden",
    "features": "filter_features",
    "frequency": "filter_frequency",
    "feature": "feature_map",
    "state": "state_size",
}
RUN = {
    "accumulate": "grad_accum_steps",
    "clip": "max_grad_norm",
    "checkpointing": "gradient_checkpointing",
    "keep": "keep_checkpoints",
    "eval_rows": "eval_sequences",
}
METRICS = {"held_loss": "val_loss", "held_bits_per_byte": "val_bits_per_byte"}
VALUES = {
    ("first", "mixer"): "mixer_first",
    ("first", "channel"): "mlp_first",
    ("protocol", "rows"): "padded",
}
# fields by which a record that toeplix wrote, with every field, is known from one that a user wrote
WRITTEN = {"vocab", "context", "dim", "depth", "norm", "init", "gate", "dropout"}
NORMED = {"toeplitz", "lookup"}  # mixers of models whose embeddings have a norm
BEFORE_FILTERS = {"filter": "free", "groups": 1}
STORE_VERSION = 1  # of manifests whose validation split is called "held"


def model_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Model`. JSON knows no tuples; versions before 0.3 had free filters only."""
    if isinstance(record.get("blocks"), list):
        record = {**record, "blocks": tuple(record["blocks"])}
    if "gate" in record and "filter" not in record:  # all fields were written, and this one was not
        arch = record.get("arch", "toeplitz")
        record = {**record, "arch": arch} | (BEFORE_FILTERS if arch == "toeplitz" else {})
    whole = set(record) >= WRITTEN
    if whole and record["gate"] and "gate_bias" not in record:  # gates started at 0
        gated = "toeplitz" in (record.get("arch"), *record.get("blocks", ()))
        record = {**record} | ({"gate_bias": 0.0} if gated else {})
    if (
        whole
        and "embedding_norm" not in record
        and NORMED & {record.get("arch", "toeplitz"), *record.get("blocks", ())}
    ):
        record = {**record, "embedding_norm": 0.0}  # embeddings had no norm
    if not set(record) & set(MODEL):
        return dict(record)
    from toeplix.architectures import ARCHITECTURES  # late: it imports PyTorch

    found = _renamed(record, MODEL)
    architecture = ARCHITECTURES.get(str(found.get("arch", "toeplitz")))
    if architecture is None:  # which `Model` says better
        return found
    return {name: value for name, value in found.items() if name in architecture.fields}


def run_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a `Run`, those of its model included."""
    found = _renamed(record, RUN)
    if isinstance(found.get("model"), Mapping):
        found["model"] = model_record(found["model"])
    return found


def metrics_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a line of metrics.jsonl, with the perplexity that old ones lack."""
    found = _renamed(row, METRICS)
    loss = found.get("val_loss")
    if isinstance(loss, float) and "val_perplexity" not in found:
        found["val_perplexity"] = math.exp(min(loss, 700.0))  # exp of more is no float
    return found


def manifest(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest of a token store; the files keep their names (`held.bin`, ...)."""
    found = _renamed(record, {"held_share": "val_share"})
    found["version"] = STORE_VERSION + 1
    if isinstance(found.get("splits"), Mapping):
        found["splits"] = _renamed(found["splits"], {"held": "val"})
    if isinstance(found.get("recipe"), Mapping):
        found["recipe"] = _renamed(found["recipe"], {"held_out": "val_fraction"})
    return found


def _renamed(record: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    both = [old for old, new in names.items() if old in record and new in record]
    if both:
        raise ValueError(f"{both[0]!r} is the old name of {names[both[0]]!r}, and both are given")
    return {
        names.get(name, name): VALUES.get((name, value), value) if isinstance(value, str) else value
        for name, value in record.items()
    }
