"""Every figure of the profiles: where it comes from, how old it is, and whether it contradicts another."""
