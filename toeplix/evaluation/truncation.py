"""Truncation to a model's context: how many tokens are kept, and how many requests are truncated."""

from collections import Counter


class Truncations:
    """Counts of requests by task and kind of truncation: all (`seen`), and the truncated (`counts`)."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.counts: dict[str, Counter[str]] = {}

    def note(self, task: str, what: str, happened: bool) -> None:
        """Count a request of a task, and whether it was truncated."""
        self.seen[task, what] += 1
        if happened:
            self.counts.setdefault(task, Counter())[what] += 1

    def lines(self) -> list[str]:
        """Return a line of text for each task and kind of truncation that happened."""
        return [
            f"{task}: {what} {count} of {self.seen[task, what]}"
            for task, counts in sorted(self.counts.items())
            for what, count in sorted(counts.items())
        ]


def room(context: int, prompt: int, new: int) -> tuple[int, int]:
    """Return how many tokens of a prompt are kept, and how many new tokens may follow it.

    A completion is guaranteed `new` tokens, up to half of the context. The prompt keeps at most the rest,
    and positions that it does not need go to the completion. The last new token takes no position,
    because the model does not read it.
    """
    guaranteed = min(new, max(1, context // 2))
    kept = min(prompt, context - guaranteed + 1)
    return kept, min(new, context - kept + 1)
