"""Quantization of tables to few bits."""
