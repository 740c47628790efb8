"""Charts: points and marks, and their renderings as SVG and Plotly."""
