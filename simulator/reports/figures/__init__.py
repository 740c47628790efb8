"""Charts: described once in `chart`, built from records, drawn by plotly or as static SVG."""
