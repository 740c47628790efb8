"""Prices and costs of owning: dated, sourced, open to replacement."""
