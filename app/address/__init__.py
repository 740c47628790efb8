"""What an address of the dashboard holds: the question, the pinned baseline, names, and what of it is not answered."""
