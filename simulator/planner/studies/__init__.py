"""Questions beside the plan, a file each: what it asks, what it records, how it is computed."""
