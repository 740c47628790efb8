"""Measurements, fits and scores; imports the library, never the reverse."""
