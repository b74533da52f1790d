"""Benchmarks of the unmodified lm-evaluation-harness.

import toeplix.evaluation.model      # registers the model type `toeplix` with the harness
python -m toeplix.evaluation ...      # the harness's command line with `--model toeplix`
"""
