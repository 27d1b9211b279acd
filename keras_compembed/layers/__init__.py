"""Layers for users' models, exported by `keras_compembed`."""
