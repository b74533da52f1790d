"""The explorer: a local page on which runs and models are looked at.

places      what was asked for: runs and checkpoints by name, and nothing beside them
runs        settings and metrics of runs, followed while they grow
writing     text from a model, token by token with its chances
filters     taps, symbols and certified indices
reach       which earlier tokens reach a token: the linear path through the filters
claims      the paper's claims and figures, from results on disk
app         the routes (guard: who may ask, and what a page may do); page/ is what the browser sees
"""
