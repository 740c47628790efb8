"""Published figures with citation and tolerance: values as printed, never predictions.

``measured_runs.csv`` : runs in the columns of the end-to-end sources, chosen by configuration, not by error.
``tolerance`` is the first of 10, 15, 20 and 25 % with 4 points to spare when the row was transcribed, or 25 %
up to 3 points from it.
``known_misses.csv`` : rows of the same choice that fit no tolerance, with the error that was reached and the reason.
``identities.csv`` : worked examples of the roofline and of memory, exact but for rounding in the text.
``structure_figures.csv`` : attention algorithms, paged memory, fine-tuning and structure (``structure.py``).
"""
