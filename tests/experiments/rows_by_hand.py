"""Rows of training on text made by hand, for tests of verdicts."""

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
