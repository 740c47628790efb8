"""The event simulation: the scheduler of an engine, step by step, in compiled code."""
