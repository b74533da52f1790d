"""From text to training sequences.

    from toeplix.data import Packed, Recipe, build

    store = build(Recipe(sources=("python",), vocab=2000), "runs/python")
    rows = Packed(store.train, context=512, seed=0)
    batch = Packed.collate([rows[0], rows[1]])

Reading order: sources.py (where text comes from), tokenizer.py, building.py, store.py, sequences.py.
"""

from toeplix.data.building import Progress, Recipe, build
from toeplix.data.corpus import python_corpus
from toeplix.data.sequences import Packed, Padded, Sequences
from toeplix.data.sources import Part, resolve
from toeplix.data.store import Split, Store
from toeplix.data.tokenizer import Tokenizer, fetch

__all__ = [
    "Packed",
    "Padded",
    "Part",
    "Progress",
    "Recipe",
    "Sequences",
    "Split",
    "Store",
    "Tokenizer",
    "build",
    "fetch",
    "python_corpus",
    "resolve",
]
