"""The options of commands, by what they are about."""
