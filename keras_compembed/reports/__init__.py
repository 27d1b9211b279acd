"""Sizes, fidelity, statistics of codes, pictures, pages."""

from keras_compembed.reports.code_statistics import code_balance
from keras_compembed.reports.code_statistics import code_usage
from keras_compembed.reports.code_statistics import codes_of_words
from keras_compembed.reports.code_statistics import format_codes
from keras_compembed.reports.code_statistics import words_sharing_codes
from keras_compembed.reports.embedding_summaries import EmbeddingSummaries
from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.html_report import html_report
from keras_compembed.reports.plots import plot_accuracy_against_size
from keras_compembed.reports.plots import plot_code_balance
from keras_compembed.reports.plots import plot_frontier
from keras_compembed.reports.size_report import size_report
from keras_compembed.reports.text_page import text_page
from keras_compembed.reports.word_analogies import WordAnalogies
from keras_compembed.reports.word_pairs import WordPairs

__all__ = [
    "EmbeddingSummaries",
    "WordAnalogies",
    "WordPairs",
    "code_balance",
    "code_usage",
    "codes_of_words",
    "fidelity",
    "format_codes",
    "html_report",
    "plot_accuracy_against_size",
    "plot_code_balance",
    "plot_frontier",
    "size_report",
    "text_page",
    "words_sharing_codes",
]
