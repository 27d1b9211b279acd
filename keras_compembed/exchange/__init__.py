"""Copies of models with other layers in them."""
