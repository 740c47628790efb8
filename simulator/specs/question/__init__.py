"""What is asked: scenarios, plans, workloads, techniques."""
