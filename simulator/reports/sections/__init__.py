"""The thirteen sections of a report, each a function of the studies; words and layout of content, no computation."""
