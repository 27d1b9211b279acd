"""Reports on the size and accuracy of compressed models."""

from keras_compembed.reports.fidelity import fidelity
from keras_compembed.reports.html_report import html_report

__all__ = ["fidelity", "html_report"]
