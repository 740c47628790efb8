"""What a page needs of the machine: processes, whose turn it is, what is kept, and the answers around a page."""
