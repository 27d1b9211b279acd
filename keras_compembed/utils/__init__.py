"""Checks of arguments, files, names and sizes, for all other folders."""
