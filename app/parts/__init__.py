"""What a page answers with: headline, figures, tables, charts, commands, downloads and ways out of a refusal."""
