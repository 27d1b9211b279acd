"""Readers of data sets, one each, for benchmarks and examples."""
