"""Sizes, fidelity, statistics of codes, pictures, pages."""

from keras_compembed.reports.code_statistics import words_sharing_codes
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.html_report import html_report
from keras_compembed.reports.plots import plot_accuracy_against_size
from keras_compembed.reports.plots import plot_code_balance
from keras_compembed.reports.plots import plot_frontier
from keras_compembed.reports.size_report import size_report

__all__ = [
    "fidelity",
    "html_report",
    "plot_accuracy_against_size",
    "plot_code_balance",
    "plot_frontier",
    "size_report",
    "words_sharing_codes",
]
