"""Figures that papers and vendors print, as printed, each beside what this library says and how to ask it.

A figure is chosen by its configuration, not by its error. ``tolerance`` is the first of 10, 15, 20 and 25 % with 4
points to spare when the row was transcribed, or 25 % up to 3 points from it; a known miss fits none, and has the error
that was reached and the reason.
"""
