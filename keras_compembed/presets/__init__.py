"""Folders that hold a trained model with all that belongs to it, and a card."""
