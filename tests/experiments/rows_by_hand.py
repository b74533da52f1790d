"""Rows of training on text and on tasks made by hand, for tests of verdicts."""

SEEDS = (0, 1, 2)


def jitter(name, seed):
    """Between -1 and 1, its own for each model."""
    return (len(name) * 7 + seed * 5) % 9 / 4 - 1


def learned(name, loss, *, part="", lr=0.01, spread=0.003, diverged=None, early=None):
    """A row a seed: its data order moves all models alike, and each a little by itself."""
    return [
        {
            "model": name,
            "part": part,
            "lr": lr,
            "seed": seed,
            "loss": None if diverged else loss + 0.3 * seed + spread * jitter(name, seed),
            "diverged": diverged,
            "curve": [[20, early or loss], [40, loss + spread * jitter(name, seed)]],
            "dim": 64,
            "vocab": 500,
            "steps": 40,
            "batch": 8,
            "context": 128,
            "parameters": 1000,
            "relative_time": 1.0,
            "flops_per_step": 1e9,
            "training_bytes": 1e6,
        }
        for seed in SEEDS
    ]


def costs(**losses):
    return [
        row
        for part in ("compute", "memory")
        for name, loss in losses.items()
        for row in learned(name.replace("_", " "), loss, part=part)
    ]


def solved(name, score, *, part, steps=None, lr=0.01, seeds=SEEDS, **other):
    """A row a seed, `area` and accuracy alike; seeds move all models together, and each a little."""
    nudge = len(name) % 5
    found = []
    for seed in seeds:
        level = score - 0.01 * seed + 0.001 * ((nudge + 2 * seed) % 3)
        found.append(
            {
                "task": "repeated",
                "options": {},
                "model": name,
                "settings": {},
                "dim": 64,
                "context": 48,
                "batch": 8,
                "steps": 300,
                "part": part,
                "lr": lr,
                "seed": seed,
                "accuracy": level,
                "area": level,
                "loss": 5 - 5 * level,
                "solved": steps,
                "curve": [[150, 1.0, level / 2], [300, 0.5, level]],
                "flops_per_step": 100 if name.startswith("paper") else 150,
            }
            | other
        )
    return found


def kinds(found):
    return {part: verdict.kind for part, verdict in found.items()}
