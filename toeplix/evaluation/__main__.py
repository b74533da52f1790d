"""The harness's own command line, with the model type `toeplix` and the group `toeplix-paper`.

    python -m toeplix.evaluation --model toeplix --model_args pretrained=runs/mine/model --tasks arc_easy

This is `import toeplix.evaluation.model` followed by `lm_eval.__main__.cli_evaluate()`.
"""

import sys
from pathlib import Path

from toeplix.cli import exits


def main() -> None:
    from lm_eval.__main__ import cli_evaluate

    import toeplix.evaluation.model  # noqa: F401 - registers the model type
    from toeplix.evaluation.harness import quiet_git

    if len(sys.argv) > 1 and "--include_path" not in sys.argv and sys.argv[1] != "ls":
        sys.argv += ["--include_path", str(Path(__file__).parent / "tasks")]
    with quiet_git():
        cli_evaluate()


if __name__ == "__main__":
    exits.run(main)
