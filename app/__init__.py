"""The what-if dashboard: widgets, one call of the library, figures. No arithmetic."""
