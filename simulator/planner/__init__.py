"""How many accelerators, which, at what price: from a demand to a fleet that explains itself."""
