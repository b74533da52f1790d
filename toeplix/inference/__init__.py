"""Generation: loading a model with its tokenizer, sampling, batching, detokenization."""
