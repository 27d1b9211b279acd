"""Copies of models with replaced layers."""
