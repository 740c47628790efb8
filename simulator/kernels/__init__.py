"""How fast: Work -> Timing."""
