"""The commands: what a person types and a program reads."""
