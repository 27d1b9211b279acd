"""When layers behind look-ups shall become part of codebooks."""

from keras_compembed.export.row_costs import NUMBER_BYTES

# Part of what layers take in a file that may be added to make them faster.
_SMALL_PART = 0.02


class FoldRule:
    """Tells whether folding makes a file faster, or smaller."""

    def __init__(self, options):
        self._options = options

    def pays(self, vectors, width, kept=0, kernels=0):
        """Whether kernels shall become part of a table."""
        products, quantize = vectors.products, self._options.quantize
        if not products.can_fold:
            return False
        number = NUMBER_BYTES[quantize]
        # Of layers, unlike of codebooks.
        of_kernel = 4 if quantize == "int8_codebooks" else number
        before = number * products.num_numbers
        before += of_kernel * products.width * width
        after = number * (products.columns * width + kept)
        after += of_kernel * kernels
        goal = self._options.optimize_for
        if goal in ("size", "memory"):
            return after < before
        if not products.folds_faster(
            width, vectors.features is not None, vectors.length
        ):
            return False
        small = _SMALL_PART * (products.num_bytes + before)
        return goal == "latency" or after - before <= small
