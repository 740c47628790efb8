"""What a checkpoint says about how its weights are stored."""
