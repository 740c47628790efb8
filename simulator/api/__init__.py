"""The library's public functions: a question in keywords, a record or a mapping; an answer that shows itself."""
