"""Serving engines and how a model is spread over devices."""
