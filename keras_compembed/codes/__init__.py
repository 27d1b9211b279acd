"""Packed codes, and tables stored as codes."""
