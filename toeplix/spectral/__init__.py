"""The operator seen from above: what a causal filter does to whole sequences.

symbols     the symbol, a closed curve in the plane
indices     the certified index (arcs: the proof; precise: where double precision ends)
null        what the index of an untrained filter is
singular    singular values, rank, condition
lags        how far back the filter reads, and how many states it needs
"""

from toeplix.spectral.indices import Index, index, indices
from toeplix.spectral.symbols import symbol

__all__ = ["Index", "index", "indices", "symbol"]
