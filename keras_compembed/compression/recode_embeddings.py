"""A callback that lets codes follow the task."""

import keras

from keras_compembed.utils.model_parts import all_layers
from keras_compembed.utils.validation import check_positive_int


class RecodeEmbeddings(keras.callbacks.Callback):
    """Gives ids new codes now and then while a model is trained.

    For `CodeEmbedding` layers with `codes="follow"`, as `compress_model` makes
    them by `keras_compembed.methods.Codes(recode_every=...)`. Task steps on the
    codebooks alternate with `CodeEmbedding.recode`: each id gets the code
    nearest its latent vector, which collects the task's gradients. Layers
    with `trainable=False` keep their codes. Call `kc.strip` when done.

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
        every: Optional integer. Training steps from one recoding to the next.
            Defaults to `None`: `recode_every` of each layer's
            `FollowingCodes`. With `steps_per_execution`, codes are
            looked for after the last step of those that Keras takes at once.
        verbose: `0` or `1`, whether to print how many ids changed. Defaults
            to `0`.

    Raises:
        ValueError: if an argument is out of range, or when training begins if
            the model has no such layer or one does not say how often.
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
                "The model must have a CodeEmbedding with codes='follow'. "
                f"Received: the model {self.model.name!r}, which has none."
            )
        for layer in self._layers:
            codes = layer.store.learn_codes
            if self.every is None and codes.recode_every is None:
                raise ValueError(
                    "`every` must be given for layers without `recode_every`. "
                    f"Received: every=None and the layer {layer.name!r}."
                )
            codes.is_recoded = True
        self._step = None

    def on_epoch_begin(self, epoch, logs=None):
        # Not when training begins: other callbacks may load weights then.
        if self._step is None:
            self._step = self._count_steps()

    def on_train_batch_end(self, batch, logs=None):
        # Several steps at once with `steps_per_execution`.
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
                    f"of {layer.name} have new codes."
                )

    def _count_steps(self):
        # Under a strategy, a value on each device.
        return int(keras.ops.convert_to_numpy(self.model.optimizer.iterations))
