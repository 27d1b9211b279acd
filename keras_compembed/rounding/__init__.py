"""Tables rounded to few bits: algorithms on arrays, and rows as tensors."""
