"""An HTTP server with OpenAI's endpoints: `server.py` is the whole, `engine.py` does the work."""
