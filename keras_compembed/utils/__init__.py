"""Helpers of all other folders: argument checks, files, names, sizes."""
