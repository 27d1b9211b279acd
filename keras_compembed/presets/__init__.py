"""Folders with a trained model, its files and a model card."""
