"""From a planned fleet to what runs it: commands, manifests and the benchmark that would verify it."""
