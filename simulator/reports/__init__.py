"""Results as tables and documents; no physics."""
