"""The table of `toeplix spectrum`: one row for each filter, the same on the terminal and on the page."""

from collections.abc import Callable, Iterable

from toeplix.reports.spectrum_rows import Row

COLUMNS: dict[str, Callable[[Row], str]] = {  # heading: the text of a row's cell
    "filter": lambda row: filter_name(row),
    "kind": lambda row: str(row["kind"]),
    "taps": lambda row: taps(row),
    "index": lambda row: "-" if row["index"] is None else str(row["index"]),
    "z, noise": lambda row: _signed(row.get("z_noise")),
    "z, start": lambda row: index_change(row),
    "margin": lambda row: _short(row.get("margin")),
    "eps-index": lambda row: _short(row.get("eps_index")),
    "rank": lambda row: _short(row.get("rank")),
    "stable rank": lambda row: _short(row.get("stable_rank")),
    "condition": lambda row: condition(row),
    "mean lag": lambda row: _short(row.get("centre")),
    "99% within": lambda row: _short(row.get("receptive_field")),
    "nearest shift": lambda row: nearest_shift(row),
    "in 16 taps": lambda row: energy_in(row, 16),
    "states": lambda row: states(row),
    "proof": lambda row: row["status"] + (f": {row['reason']}" if row.get("reason") else ""),
}

GROUPS: dict[
    str, tuple[str, ...]
] = {  # columns by subject, for tables of 100 columns; filter is first
    "index": ("taps", "index", "z, noise", "z, start", "margin", "proof"),
    "matrix": ("kind", "eps-index", "rank", "stable rank", "condition", "states"),
    "lags": ("mean lag", "99% within", "nearest shift", "in 16 taps"),
}

MEANINGS = {  # what the columns hold, for the terminal; spectrum_page.py explains them on the page
    "kind": "free or recurrent",
    "taps": "number of taps; of a recurrent filter, free taps + decays",
    "index": "minus the number of zeros of the filter inside the unit circle",
    "z, noise": "distance from the mean index of independent noise, in standard deviations",
    "z, start": "the same from the model's initialisation; at start: all initial filters have this index",
    "margin": "fraction of the sum of |taps| that may change before the index can",
    "proof": "whether the index is proved, or why there is none",
    "eps-index": "minus the number of zeros r with |r|^n < 1e-6; n: taps, or the context if recurrent",
    "rank": "singular values of the n x n matrix above 1e-6 of the largest",
    "stable rank": "squared ratio of the Frobenius norm to the spectral norm",
    "condition": "condition number of the n x n matrix",
    "states": "of a recurrence with 1% error in the symbol; after 'of': those of the recurrent filter",
    "mean lag": "weighted by energy, the square of a tap",
    "99% within": "number of newest taps with 99% of the energy (the receptive field)",
    "nearest shift": "lag of the largest tap (cosine similarity of that shift and the filter)",
    "in 16 taps": "share of the energy in the first 16 taps",
}


def legend(columns: Iterable[str]) -> str:
    """Return a line on each of the columns."""
    return "\n".join(f"{column}: {MEANINGS[column]}" for column in columns)


def cells(row: Row, columns: Iterable[str] = COLUMNS) -> list[str]:
    """Return the text of each column."""
    return [COLUMNS[column](row) for column in columns]


def filter_name(row: Row) -> str:
    """Return layer, and head and kernel where there are several."""
    name = str(row["layer"])
    name += f", head {row['head']}" if row["heads"] > 1 else ""
    return name + (f", kernel {row['kernel']}" if row["kernels"] > 1 else "")


def taps(row: Row) -> str:
    """Return the number of taps; of recurrent filters, the free taps and the decays."""
    return f"{row['taps']} + {row['decays']} decays" if "decays" in row else str(row["taps"])


def states(row: Row) -> str:
    """Return how many states approximate the filter, and how many equal it if it is recurrent."""
    return _short(row.get("states")) + (f" of {row['all_states']}" if "all_states" in row else "")


def index_change(row: Row) -> str:
    """Return how far training moved the index, in standard deviations of the initialisation."""
    if row["index"] is None or row.get("start_mean") is None:
        return "-"
    if row["start_deviation"] == 0:  # all filters start with the same index
        away = row["index"] - row["start_mean"]
        return "at start" if away == 0 else f"{away:+.0f} from start"
    return _signed(row["z_start"])


def condition(row: Row) -> str:
    """Return the condition number, or its lower bound."""
    if "largest" not in row:
        return "-"
    if row["condition"] is None:
        return "singular"
    return ("> " if row["smallest_is_bound"] else "") + _short(row["condition"])


def nearest_shift(row: Row) -> str:
    """Return the lag of the shift that the filter resembles most, and their cosine similarity."""
    return "-" if "mode" not in row else f"{row['mode']} ({row['likeness']:+.2f})"


def energy_in(row: Row, taps: int) -> str:
    """Return the fraction of the energy that is in the first taps."""
    shares = {int(key): value for key, value in row.get("recency", {}).items()}
    known = [value for key, value in shares.items() if key <= taps]
    return f"{known[-1]:.0%}" if known else "-"


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def _signed(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f}"
