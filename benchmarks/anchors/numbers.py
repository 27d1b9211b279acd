"""Numbers that an embedding holds."""

import keras_compembed as kc


def count_numbers(embedding):
    """Weights; of an `ANTEmbedding`, anchors and the non-zeros of T."""
    if isinstance(embedding, kc.ANTEmbedding):
        return embedding.num_anchors * embedding.output_dim + embedding.nnz
    return embedding.count_params()
