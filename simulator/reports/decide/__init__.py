"""The pages that a plan is decided and signed by: the decision, its evidence, what is assumed, and the summary."""
