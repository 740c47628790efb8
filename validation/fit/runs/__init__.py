"""What is fitted to whole runs: engines, routing, acceptance, power, the width of intervals."""
