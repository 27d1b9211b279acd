"""Losses of layers over many classes. Their names are in `keras_compembed`."""
