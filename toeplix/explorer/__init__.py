"""The explorer: a local web page for runs and models (`toeplix explore`).

discovery   runs and checkpoints under a path, by name
runs        settings and metrics of runs, read while they are training
generation  generated text, token by token with probabilities
contributions   of earlier tokens to a token, along the linear path through the filters
lookups     which earlier tokens a lookup block reads
weights     shapes and histograms of the tensors of a checkpoint
differences the settings that tell similar runs apart
claims      the paper's claims and figures, from results on disk
cache       models and filters that are kept in memory
app         the routes; guard: accepted requests and security headers; page/: the files of the page
"""
