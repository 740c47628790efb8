"""Measured end-to-end runs as scenarios, and the error of the predictions."""
