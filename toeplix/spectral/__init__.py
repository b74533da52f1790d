"""Spectral analysis of causal filters as Toeplitz operators.

symbols             the symbol, a closed curve in the complex plane
indices             the certified index (arcs: the proof; high_precision: beyond double precision)
null_distribution   the distribution of the index of an untrained filter
singular            singular values, numerical rank, condition number
lags                energy by lag, and the number of states of a recurrent form
rational            recurrent filters, defined at every lag, with a rational symbol
rational_indices    their certified index (rational_arcs: the proof), and the maximum of the symbol
rational_lags       their energy by lag, stable rank and states, in closed form (rational_sums)
"""

from toeplix.spectral.indices import Index, index, indices
from toeplix.spectral.rational import RationalFilter
from toeplix.spectral.rational_indices import rational_index
from toeplix.spectral.rational_lags import rational_lags
from toeplix.spectral.symbols import symbol

__all__ = [
    "Index",
    "RationalFilter",
    "index",
    "indices",
    "rational_index",
    "rational_lags",
    "symbol",
]
