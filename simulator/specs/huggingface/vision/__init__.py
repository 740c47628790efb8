"""Encoders of pictures in multimodal configurations."""
