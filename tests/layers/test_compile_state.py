"""A model that was saved and loaded trains on as if it had not been.

`test_every_layer.py` has each layer; here are optimizers, callbacks, losses,
metrics and settings that keep numbers of their own.
"""

import functools

import keras
import numpy as np
import pytest
from layer_cases import BATCH_SIZE
from layer_cases import COUNTS
from layer_cases import Classes
from layer_cases import LookUp
from layer_cases import anchors
from layer_cases import codes
from layer_cases import head

import keras_compembed as kc
from keras_compembed.learners.task_codes import FollowingCodes

# Within a period of what is done every so many steps.
FIRST, SECOND = 5 * BATCH_SIZE, 8 * BATCH_SIZE
TARGET = kc.anchors.L1(1e-3, target_nonzeros=60)


def adam(**kwargs):
    schedule = keras.optimizers.schedules.ExponentialDecay(0.02, 2, 0.9)
    return keras.optimizers.Adam(schedule, **kwargs)


def lazy():
    return kc.optimizers.SparseRowOptimizer(adam())


def scaled():
    return keras.optimizers.LossScaleOptimizer(
        adam(), initial_scale=2.0**10, dynamic_growth_steps=3
    )


def head_with_noise():
    make = head(
        lambda: kc.classes.FrequentClasses(COUNTS),
        shared=True,
        noise=kc.classes.LearnedNoise(refresh_every=3),
        estimate="separate",
    )
    return make()


def two_towers():
    """Two layers of one name, each in a model of its own."""
    ids = keras.Input((5,), dtype="int32")
    towers = []
    for name in ("left", "right"):
        pooling = keras.layers.GlobalAveragePooling1D()
        layer = anchors("lazy")(name="table")
        towers.append(keras.Sequential([ids, layer, pooling], name=name)(ids))
    return keras.Model(ids, keras.layers.Concatenate()(towers))


MODELS = {
    "codes that follow": (
        codes(codes=FollowingCodes(recode_every=3)),
        functools.partial(keras.optimizers.SGD, 0.1, momentum=0.9),
    ),
    "codes in half precision": (
        functools.partial(codes(codes="nearest"), dtype="mixed_float16"),
        scaled,
    ),
    "accumulated": (
        anchors("lazy", l1=TARGET),
        functools.partial(adam, gradient_accumulation_steps=3),
    ),
    "towers": (two_towers, lazy),
    "noise": (head_with_noise, lazy),
}


def build(name):
    """A compiled model, and what it is trained on."""
    make, optimizer = MODELS[name]
    made = make()
    if isinstance(made, kc.CANESoftmax):
        task = Classes()
        loss = kc.CANELoss(evaluation="sampled", ignore_class=2)
        metrics = [kc.ClassAccuracy(k=5), kc.Coverage(), kc.Perplexity()]
    else:
        task = LookUp()
        loss = task.loss(made)
        metrics = ["accuracy"]
    model = made if isinstance(made, keras.Model) else task.wrap(made)
    model.compile(optimizer(), loss, metrics=metrics, run_eagerly=True)
    return model, task.examples(SECOND)


def train(model, data, part):
    """All numbers that a model then consists of, and what it reported."""
    inputs, labels = (array[part] for array in data)
    layer = model.layers[0]
    recodes = getattr(getattr(layer, "learn_codes", None), "recode_every", None)
    history = model.fit(
        inputs,
        labels,
        batch_size=BATCH_SIZE,
        shuffle=False,
        verbose=0,
        callbacks=[kc.compression.RecodeEmbeddings()] if recodes else [],
    )
    for each in (model, *model.layers):
        for layer in getattr(each, "layers", ()):
            # What was put off is done, so that it can be compared.
            layer.save_own_variables({})
    optimizers = [model.optimizer]
    for name in ("inner_optimizer", "inner"):
        inner = getattr(optimizers[-1], name, None)
        if inner is not None:
            optimizers.append(inner)
    variables = [x for each in (model, *optimizers) for x in each.variables]
    return {
        **{str(place): x.numpy() for place, x in enumerate(variables)},
        **history.history,
    }


@pytest.mark.parametrize("name", MODELS)
def test_training_goes_on(name, tmp_path):
    model, data = build(name)
    train(model, data, slice(FIRST))
    model.save(tmp_path / "model.keras")
    expected = train(model, data, slice(FIRST, SECOND))
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    # No file has this.
    loaded.run_eagerly = True
    found = train(loaded, data, slice(FIRST, SECOND))
    assert list(found) == list(expected)
    for key, values in expected.items():
        np.testing.assert_allclose(found[key], values, err_msg=key)
