"""Results as tables and lines of text for terminals and pages."""
