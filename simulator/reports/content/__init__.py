"""What a report is made of: blocks, typed cells, quantities as text."""
