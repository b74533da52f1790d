"""Benchmarks with the stock lm-evaluation-harness.

import toeplix.evaluation.model      # registers the model type `toeplix` with the harness
python -m toeplix.evaluation ...      # the harness's own command line, which knows `--model toeplix`
"""
