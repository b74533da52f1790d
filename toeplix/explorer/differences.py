"""What tells runs apart that look alike in the list: the settings in which they differ.

Runs of the same architecture, width, depth and number of steps look alike. Each of them is told apart by
its values of the settings that are not the same in all of them; a run with all settings the same as those
of another one says so.
"""

from collections.abc import Mapping
from typing import Any

MAX_NAMED = 4  # settings that are named
IGNORED = ("trackers", "data")  # of no consequence for the curves, or too long to show
ALIKE = ("arch", "dim", "depth", "steps")


def told_apart(settings: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return a few words for each run that looks like another one, by its name.

    >>> runs = {"a": {"steps": 9, "seed": 0}, "b": {"steps": 9, "seed": 1}, "c": {"steps": 9, "seed": 1}}
    >>> told_apart(runs)
    {'a': 'seed 0', 'b': 'seed 1', 'c': 'seed 1, same settings as b'}
    """
    flat = {name: _flat(each) for name, each in settings.items() if each}
    groups: dict[str, list[str]] = {}
    for name, values in flat.items():
        groups.setdefault(repr([values.get(key) for key in ALIKE]), []).append(name)
    found = {}
    for names in groups.values():
        if len(names) < 2:
            continue
        keys = dict.fromkeys(key for name in names for key in flat[name])
        differing = [
            key
            for key in keys
            if key not in IGNORED and len({repr(flat[name].get(key)) for name in names}) > 1
        ]
        first: dict[str, str] = {}  # the first run with these settings
        for name in names:
            words = [f"{key} {_spelled(flat[name].get(key))}" for key in differing[:MAX_NAMED]]
            if len(differing) > MAX_NAMED:
                words.append("…")
            same = repr([flat[name].get(key) for key in differing])
            if same in first:
                words.append(f"same settings as {first[same]}")
            first.setdefault(same, name)
            if words:
                found[name] = ", ".join(words)
    return found


def _flat(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run and of its model in one dictionary."""
    model = settings.get("model", {})
    rest = {key: value for key, value in settings.items() if key != "model"}
    return {**(model if isinstance(model, dict) else {}), **rest}


def _spelled(value: Any) -> str:
    words = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return "none" if value is None else words[:40]
