"""What-if changes to a deployment: to the model, to its number formats, to the rows of its operator list."""
