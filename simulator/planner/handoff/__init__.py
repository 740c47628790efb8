"""What the engines of a planned fleet are told, and the load that would verify it."""
