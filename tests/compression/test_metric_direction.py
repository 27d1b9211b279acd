"""Which values of a metric a search takes for better."""

import keras
import numpy as np
import pytest

import keras_compembed as kc
from keras_compembed.compression.metric_direction import mode_of_metric

X, Y = np.ones((4, 3), "float32"), np.ones((4, 1), "float32")


def evaluated(metrics, outputs=1, loss="mse"):
    inputs = keras.Input((3,))
    heads = [
        keras.layers.Dense(1, "sigmoid", name=f"head_{number}")(inputs)
        for number in range(outputs)
    ]
    model = keras.Model(inputs, heads if outputs > 1 else heads[0])
    model.compile("sgd", loss, metrics=metrics)
    labels = [Y] * outputs if outputs > 1 else Y
    return model, model.evaluate(X, labels, verbose=0, return_dict=True)


@pytest.mark.parametrize(
    ("metrics", "mode"),
    [
        (["binary_crossentropy", "mse", "mape", "msle", "hinge"], "min"),
        (
            [
                "poisson",
                "kl_divergence",
                keras.metrics.MeanAbsoluteError(name="far"),
            ],
            "min",
        ),
        (["accuracy", "auc", keras.metrics.Precision(name="hits")], "max"),
        ([keras.metrics.F1Score(name="loss_of_none")], "max"),
    ],
)
def test_metrics_of_keras(metrics, mode):
    model, figures = evaluated(metrics)
    assert len(figures) == len(metrics) + 1
    assert mode_of_metric(model, "loss") == "min"
    for name in set(figures) - {"loss"}:
        assert mode_of_metric(model, name) == mode, name


def test_several_outputs():
    model, figures = evaluated(
        [["mse"], ["accuracy"]], outputs=2, loss=["mse", "mae"]
    )
    modes = {name: mode_of_metric(model, name) for name in figures}
    assert modes == {
        "loss": "min",
        "head_0_loss": "min",
        "head_1_loss": "min",
        "head_0_mse": "min",
        "head_1_accuracy": "max",
    }


def test_metrics_of_classes():
    head = kc.CANESoftmax(5)
    model = keras.Sequential([keras.Input((3,)), head])
    metrics = [kc.Perplexity(), kc.ClassAccuracy(), kc.ClassAccuracy(k=2)]
    model.compile("sgd", kc.CANELoss(), metrics=metrics)
    figures = model.evaluate(X, np.ones(4), verbose=0, return_dict=True)
    modes = {name: mode_of_metric(model, name) for name in figures}
    assert modes.pop("loss") == modes.pop("perplexity") == "min"
    assert modes == {"accuracy": "max", "top_2_accuracy": "max"}
    # Keras's own callbacks go by the same.
    stop = keras.callbacks.EarlyStopping("val_perplexity", patience=0)
    data = X, np.ones(4)
    model.fit(*data, validation_data=data, callbacks=[stop], verbose=0)


def test_unknown_metrics():
    def my_accuracy(y, scores):
        return scores

    def goodness(y, scores):
        return scores

    model, _ = evaluated([my_accuracy, goodness])
    assert mode_of_metric(model, "my_accuracy") == "max"
    with pytest.raises(ValueError, match="`mode` must be .*metric='goodness'"):
        mode_of_metric(model, "goodness")
