"""Whole steps of real models with random weights, and a serving loop that runs them."""
