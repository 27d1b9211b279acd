import keras
import numpy as np
import pytest
import tensorflow as tf
from class_models import NUM_CLASSES
from class_models import WIDTH
from class_models import check_exact
from class_models import check_files
from class_models import counts
from class_models import examples
from class_models import fit
from class_models import loss_and_gradients
from class_models import numerical_gradient
from class_models import randomize

import keras_compembed as kc
from keras_compembed.baselines import AdaptiveSoftmax
from keras_compembed.baselines import FullSoftmaxLoss


def log_softmax(scores):
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def log_probabilities(layer, weights, features):
    """All of them, cluster by cluster."""
    number = len(layer.cutoffs)
    weights = dict(
        zip([w.name for w in layer.trainable_weights], weights, strict=True)
    )
    head = features @ weights["kernel_0"].T + weights["bias_0"]
    head = log_softmax(head)
    first = layer.cutoffs[0]
    parts = [head[:, :first]]
    for i in range(1, number + 1):
        narrow = features @ weights[f"projection_{i}"]
        scores = narrow @ weights[f"kernel_{i}"].T + weights[f"bias_{i}"]
        parts.append(log_softmax(scores) + head[:, [first + i - 1]])
    return np.concatenate(parts, axis=1)[:, layer.places.numpy()]


def weights_of(layer):
    return [
        weight.numpy().astype("float64") for weight in layer.trainable_weights
    ]


@pytest.mark.parametrize(
    "cutoffs, class_counts",
    [([3, 7], None), ([2], counts()), ((1, 4, 5, 11), counts()[::-1])],
)
def test_loss_and_gradients(cutoffs, class_counts):
    layer = AdaptiveSoftmax(
        NUM_CLASSES, cutoffs, factor=1.5, class_counts=class_counts
    )
    layer.build((None, WIDTH))
    widths = [projection.shape[1] for projection in layer.projections]
    assert widths == [
        int(WIDTH / 1.5**i) or 1 for i in range(1, 1 + len(widths))
    ]
    randomize(layer)
    features, labels = examples(20)

    def reference(features, *weights):
        scores = log_probabilities(layer, weights, features)
        return -scores[np.arange(len(labels)), labels].mean()

    arrays = features.astype("float64"), *weights_of(layer)
    value, gradients = loss_and_gradients(
        layer, FullSoftmaxLoss(), features, labels
    )
    assert float(value) == pytest.approx(reference(*arrays), rel=1e-5)
    expected = numerical_gradient(reference, *arrays)
    for gradient, wanted in zip(gradients, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-5)


def test_clusters_without_examples():
    layer = AdaptiveSoftmax(NUM_CLASSES, [3, 7])
    layer.build((None, WIDTH))
    randomize(layer)
    features, _ = examples(5)
    labels = np.array([0, 1, 2, 2, 4], "int32")
    value, gradients = loss_and_gradients(
        layer, FullSoftmaxLoss(), features, labels
    )
    scores = log_probabilities(
        layer, weights_of(layer), features.astype("float64")
    )
    expected = -scores[np.arange(5), labels].mean()
    assert float(value) == pytest.approx(expected, rel=1e-5)
    by_name = dict(
        zip(
            [weight.name for weight in layer.trainable_weights],
            gradients[1:],
            strict=True,
        )
    )
    assert not by_name["kernel_2"].numpy().any()
    assert by_name["kernel_1"].numpy().any()


def test_accuracy_of_training():
    layer = AdaptiveSoftmax(NUM_CLASSES, [3, 7], factor=1.5)
    layer.build((None, WIDTH))
    randomize(layer)
    features, labels = examples(40)
    metric = kc.ClassAccuracy()
    metric.update_state(labels, layer(features, training=True))
    parts = [
        layer._scores(i, tf.constant(features)).numpy().argmax(axis=1)
        for i in range(3)
    ]
    reached = np.choose(
        np.maximum(parts[0] - 2, 0),
        [parts[0], 3 + parts[1], 7 + parts[2]],
    )
    assert 0 < float(metric.result())
    assert float(metric.result()) == pytest.approx((reached == labels).mean())


def make_layer(**kwargs):
    kwargs = {
        "cutoffs": [4, 8],
        "factor": 2.0,
        "class_counts": counts(),
        "kernel_initializer": keras.initializers.RandomNormal(0.05, seed=0),
        "projection_initializer": keras.initializers.GlorotUniform(seed=0),
    } | kwargs
    return AdaptiveSoftmax(NUM_CLASSES, **kwargs)


def test_fit(tmp_path):
    model, losses = fit(make_layer, FullSoftmaxLoss(), epochs=10)
    assert losses[-1] < 0.7 * losses[0]
    layer = model.layers[-1]
    check_exact(
        model,
        lambda features: log_probabilities(layer, weights_of(layer), features),
    )
    check_files(model, tmp_path / "model.keras")


def test_two_devices(strategy):
    kwargs = {"loss": FullSoftmaxLoss()}
    one, one_losses = fit(make_layer, **kwargs)
    two, two_losses = fit(make_layer, scope=strategy.scope(), **kwargs)
    np.testing.assert_allclose(one_losses, two_losses, rtol=1e-5)
    for a, b in zip(one.weights, two.weights, strict=True):
        # Adam divides sums in another order by their size.
        np.testing.assert_allclose(a.numpy(), b.numpy(), atol=1e-5)


def test_starts_at_frequencies():
    some = np.array([1, 90, 0, 5, 20, 3])
    layer = AdaptiveSoftmax(6, [2, 4], class_counts=some)
    layer.build((None, 3))
    np.testing.assert_array_equal(layer.places, [4, 0, 5, 2, 1, 3])
    # Features of zeros: biases alone.
    ids, probabilities = layer.top_k(np.zeros((2, 3), "float32"), k=6)
    np.testing.assert_array_equal(ids[0], [1, 4, 3, 5, 0, 2])
    expected = np.array([90, 20, 5, 3, 1, 0.5])
    np.testing.assert_allclose(
        probabilities[0], expected / expected.sum(), rtol=1e-5
    )


def test_frequent_classes_first_without_counts():
    layer = AdaptiveSoftmax(6, [2, 4])
    layer.build((None, 3))
    np.testing.assert_array_equal(layer.places, np.arange(6))
    assert [bias.shape for bias in layer.biases] == [(4,), (2,), (2,)]
    assert not any(bias.numpy().any() for bias in layer.biases)
    assert layer.kernels[1].shape == (2, 1)


@pytest.mark.parametrize(
    "cutoffs", [[], [0], [12], [4, 4], [8, 4], [1.5], ["a"], 4, None, [True]]
)
def test_bad_cutoffs(cutoffs):
    with pytest.raises(
        ValueError, match="`cutoffs` must be increasing integers from 1 to 11"
    ):
        AdaptiveSoftmax(NUM_CLASSES, cutoffs)


def test_bad_arguments():
    with pytest.raises(ValueError, match="`factor` must be at least 1"):
        AdaptiveSoftmax(NUM_CLASSES, [4], factor=0.5)
    with pytest.raises(ValueError, match="`factor` must be a positive number"):
        AdaptiveSoftmax(NUM_CLASSES, [4], factor="2")
    with pytest.raises(ValueError, match="`class_counts` must have one entry"):
        AdaptiveSoftmax(NUM_CLASSES, [4], class_counts=[1, 2])
    with pytest.raises(ValueError, match="`num_classes` must be"):
        AdaptiveSoftmax(1, [1])


def test_compiled_without_xla():
    layer = make_layer()
    assert not layer.supports_jit
    again = AdaptiveSoftmax.from_config(layer.get_config())
    assert not again.supports_jit
    assert again.get_config() == layer.get_config()
    features, _ = examples(3)
    # What does not train can be compiled.
    found = tf.function(layer.top_k, jit_compile=True)(tf.constant(features))
    np.testing.assert_array_equal(found[0], layer.top_k(features)[0])
