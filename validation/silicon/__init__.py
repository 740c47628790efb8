"""Loaders of the measured kernel tables and the fixed split into fit and score shapes."""
