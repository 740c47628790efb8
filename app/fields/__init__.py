"""What a page asks with: widgets, the fields of a question, uploads, and the words that explain them."""
