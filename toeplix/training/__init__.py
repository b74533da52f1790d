"""Training: `loop.fit(run, directory)` from a record to a trained model, with exact resume."""
