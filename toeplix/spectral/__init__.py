"""Spectral analysis of causal filters as Toeplitz operators.

symbols             the symbol, a closed curve in the complex plane
indices             the certified index (arcs: the proof; high_precision: beyond double precision)
null_distribution   the distribution of the index of an untrained filter
singular            singular values, numerical rank, condition number
lags                energy by lag, and the number of states of a recurrent form
"""

from toeplix.spectral.indices import Index, index, indices
from toeplix.spectral.symbols import symbol

__all__ = ["Index", "index", "indices", "symbol"]
