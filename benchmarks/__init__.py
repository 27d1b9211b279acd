"""Benchmarks: one script a question, all run by `python -m benchmarks NAME`."""

import os

# Read when TensorFlow is imported.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
