"""Codes as bits, and tables held as codes."""
