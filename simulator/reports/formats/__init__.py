"""A report in each format: HTML, Markdown, PDF, XLSX, CSV, JSON."""
