"""Hugging Face config.json -> ModelSpec, strictly: a field that is not understood is refused."""
