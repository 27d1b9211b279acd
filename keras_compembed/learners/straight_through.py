"""First codes by a linear encoder trained through the choice of codewords."""

import numpy as np

from keras_compembed.learners.coordinate_search import subtract_codewords
from keras_compembed.learners.coordinate_search import sums_by_subcode

_FIRST_RATE, _LAST_RATE = 1e-2, 1e-4
_DECAYS = 0.9, 0.999
_EPSILON = 1e-7


class StraightThroughEncoder:
    """A linear encoder and codebooks, trained together by Adam."""

    def __init__(self, shape, scale, rng):
        num_codebooks, codebook_size, width = shape
        size = num_codebooks * codebook_size
        self._shape = shape
        self._scale = np.float32(scale)
        self._step = 0
        # Kernel, bias and codebooks are one vector, so that Adam is one pass.
        self._weights = np.zeros(size * (2 * width + 1), "float32")
        self._gradient = np.zeros_like(self._weights)
        self._mean = np.zeros_like(self._weights)
        self._square = np.zeros_like(self._weights)
        self._kernel, self._bias, self._codebooks = self._views(self._weights)
        limit = np.sqrt(6 / (width + size))
        self._kernel[:] = rng.uniform(-limit, limit, self._kernel.shape)
        self._codebooks[:] = rng.normal(size=shape) * num_codebooks**-0.5

    def _views(self, vector):
        size = self._shape[0] * self._shape[1]
        kernel, bias, codebooks = np.split(
            vector, [size * self._shape[2], size * (self._shape[2] + 1)]
        )
        return kernel.reshape(size, -1), bias, codebooks.reshape(self._shape)

    def train_on_batch(self, rows, progress, sample_weight=None):
        """One step, at a rate that falls as `progress` goes from 0 to 1."""
        kernel, bias, codebooks = self._views(self._gradient)
        num_codebooks, codebook_size, width = self._shape
        rows = rows / self._scale
        logits = self._logits(rows)
        codes = logits.argmax(axis=2)
        residual = rows.copy()
        subtract_codewords(residual, codes, self._codebooks)
        loss = np.einsum("nd,nd->n", residual, residual)
        if sample_weight is not None:
            loss *= sample_weight
            residual *= sample_weight[:, None]
        # Softmax, then its product with the gradient of the choice.
        logits -= logits.max(axis=2, keepdims=True)
        chosen = np.exp(logits, out=logits)
        chosen /= chosen.sum(axis=2, keepdims=True)
        pull = residual @ self._codebooks.reshape(-1, width).T
        pull = pull.reshape(chosen.shape)
        pull -= np.einsum("nmk,nmk->nm", pull, chosen)[..., None]
        pull *= chosen
        pull = pull.reshape(len(rows), -1)
        np.matmul(pull.T, rows, out=kernel)
        pull.sum(axis=0, out=bias)
        codebooks[:] = 0
        sums_by_subcode(residual, codes, codebook_size, codebooks)
        self._adam(progress)
        return float(loss.mean()) * float(self._scale) ** 2

    def codes(self, rows):
        """Codes of rows, `(rows, num_codebooks)`."""
        return self._logits(rows / self._scale).argmax(axis=2)

    def _logits(self, rows):
        logits = rows @ self._kernel.T
        logits += self._bias
        return logits.reshape(len(rows), *self._shape[:2])

    def _adam(self, progress):
        """Climbs: gradients here point where the loss falls."""
        self._step += 1
        first, second = _DECAYS
        decay = 0.5 * (1 + np.cos(np.pi * progress))
        rate = _LAST_RATE + (_FIRST_RATE - _LAST_RATE) * decay
        rate *= np.sqrt(1 - second**self._step) / (1 - first**self._step)
        # In parts that stay in the cache from one operation to the next.
        for start in range(0, len(self._weights), 1 << 15):
            part = slice(start, start + (1 << 15))
            gradient, mean = self._gradient[part], self._mean[part]
            square = self._square[part]
            mean += np.float32(1 - first) * (gradient - mean)
            gradient *= gradient
            square += np.float32(1 - second) * (gradient - square)
            update = np.sqrt(square)
            update += np.float32(_EPSILON)
            np.divide(mean, update, out=update)
            update *= np.float32(rate)
            self._weights[part] += update
