"""Layers, which users put in models. Their names are in `keras_compembed`."""
