"""Number formats of tensors: what they store, how they multiply, and published schemes of them."""
