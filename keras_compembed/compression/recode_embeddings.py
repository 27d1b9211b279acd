"""A callback that updates codes during training."""

import keras

from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.validation import check_positive_int


class RecodeEmbeddings(keras.callbacks.Callback):
    """Updates the codes of ids at intervals while a model is trained.

    It serves `CodeEmbedding` layers with `codes="follow"`. `compress_model`
    makes them with `keras_compembed.methods.Codes(recode_every=...)`. Training
    steps update the codebooks and a latent vector for each id.
    `CodeEmbedding.recode` then gives each id the code nearest its latent
    vector. Layers with `trainable=False` keep their codes. Call `kc.strip`
    after training.

    Example:

    >>> layer = kc.CodeEmbedding.from_table(
    ...     np.random.default_rng(0).normal(size=(100, 8)),
    ...     num_codebooks=4, codes="follow", verbose=0,
    ... )
    >>> model = keras.Sequential([keras.Input((3,), dtype="int32"), layer])
    >>> model.compile("sgd", "mse")
    >>> history = model.fit(
    ...     np.zeros((64, 3)), np.zeros((64, 3, 8)), verbose=0,
    ...     callbacks=[RecodeEmbeddings(every=2)],
    ... )
    >>> small = kc.strip(model)

    Args:
        every: Optional integer. Training steps between updates. With
            `steps_per_execution`, updates wait for the end of an execution.
            Defaults to `None`: the `recode_every` of each layer's
            `FollowingCodes`.
        verbose: `0` or `1`, to print how many ids changed. Defaults to `0`.

    Raises:
        ValueError: If an argument is out of range, the model has no such layer,
            or a layer has no interval.
    """

    def __init__(self, every: int | None = None, verbose: int = 0):
        super().__init__()
        self.every = check_positive_int("every", every, optional=True)
        self.verbose = verbose

    def on_train_begin(self, logs=None):
        self._layers = [
            layer
            for layer in all_layers(self.model)
            if getattr(getattr(layer, "store", None), "follows", False)
        ]
        if not self._layers:
            raise ValueError(
                "The model must have a `CodeEmbedding` with codes='follow'. "
                f"Received: model={self.model.name!r}, without one."
            )
        for layer in self._layers:
            codes = layer.store.learn_codes
            if self.every is None and codes.recode_every is None:
                raise ValueError(
                    "`every` must be set for layers without `recode_every`. "
                    f"Received: every=None, layer={layer.name!r}."
                )
            codes.is_recoded = True
        self._step = None

    def on_epoch_begin(self, epoch, logs=None):
        # Not in `on_train_begin`: other callbacks may load weights there.
        if self._step is None:
            self._step = self._count_steps()

    def on_train_batch_end(self, batch, logs=None):
        # `steps_per_execution` takes several steps at once.
        before, self._step = self._step, self._count_steps()
        for layer in self._layers:
            every = self.every or layer.store.learn_codes.recode_every
            due = self._step // every > before // every
            if not (due and layer.trainable):
                continue
            changed = layer.store.learn_codes.recode()
            if self.verbose:
                print(
                    f"\nStep {self._step}: {changed} of {layer.input_dim} ids "
                    f"of {layer.name} changed their codes."
                )

    def _count_steps(self):
        # Under a strategy, each device has a value.
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
