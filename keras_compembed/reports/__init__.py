"""How near rows are to the original, and a page about a model."""

from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.html_report import html_report

__all__ = ["fidelity", "html_report"]
