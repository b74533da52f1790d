"""What did not fit into a model's context: how much is kept, and how often something was cut."""

from collections import Counter


class Cuts:
    """Counts by task and kind of cut: requests that could be, and that were."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()
        self.counts: dict[str, Counter[str]] = {}

    def note(self, task: str, what: str, happened: bool) -> None:
        self.seen[task, what] += 1
        if happened:
            self.counts.setdefault(task, Counter())[what] += 1

    def lines(self) -> list[str]:
        """One line a task of which something was cut, for people."""
        return [
            f"{task}: {what} {count} of {self.seen[task, what]}"
            for task, counts in sorted(self.counts.items())
            for what, count in sorted(counts.items())
        ]


def room(context: int, prompt: int, new: int) -> tuple[int, int]:
    """How many tokens of a prompt are kept, and how many may follow, in `context` positions.

    Answers are promised half of the context at most; a prompt keeps the rest, and what it leaves is
    the answer's. (The last new token is never read.)
    """
    promised = min(new, max(1, context // 2))
    kept = min(prompt, context - promised + 1)
    return kept, min(new, context - kept + 1)
