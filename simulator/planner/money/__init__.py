"""What a fleet costs: rent, owning, energy, carbon, rooms."""
