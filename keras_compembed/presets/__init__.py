"""Folders that hold a trained model with all that belongs to it, and a card."""

from keras_compembed.presets.get_folder import get_folder
from keras_compembed.presets.model_card import ModelCard

__all__ = ["ModelCard", "get_folder"]
