"""Runs files in MediaPipe Tasks, the same C++ as in phones and browsers."""

import numpy as np

from keras_compembed.utils.extras import require


class MediaPipeClassifier:
    """A file as MediaPipe's `TextClassifier` runs it.

    Args:
        path: String, the file.
    """

    def __init__(self, path):
        self._path = path

    def __call__(self, text):
        """Scores of the classes of each output, for one text.

        Returns:
            List of float32 arrays `(num_classes,)`, in the order of classes.
        """
        tasks = require("mediapipe.tasks.python", "mediapipe")
        text_tasks = require("mediapipe.tasks.python.text", "mediapipe")
        options = text_tasks.TextClassifierOptions(
            base_options=tasks.BaseOptions(model_asset_path=self._path)
        )
        create = text_tasks.TextClassifier.create_from_options
        with create(options) as classifier:
            answer = classifier.classify(text)
        scores = []
        for head in answer.classifications:
            ordered = sorted(head.categories, key=lambda each: each.index)
            scores.append(np.array([each.score for each in ordered], "float32"))
        return scores
