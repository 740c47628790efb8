"""Models, their number formats, and where they are found."""
