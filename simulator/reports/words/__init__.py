"""Sentences about typed records: assumptions, warnings, limits; the only place that words them."""
