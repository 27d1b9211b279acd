import copy
import os
import pickle
import subprocess
import sys

import hosts
import keras
import numpy as np
import pytest
import tensorflow as tf

import keras_compembed as kc
from keras_compembed.compression.layer_places import describe_place
from keras_compembed.compression.layer_places import exchange_layers
from keras_compembed.compression.layer_places import layer_at
from keras_compembed.compression.layer_places import layer_places
from keras_compembed.compression.model_copy import copy_model
from keras_compembed.learners.random_code_learner import RandomCodeLearner

layers = keras.layers
pytestmark = pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")


@keras.saving.register_keras_serializable(package="tests")
class Other(layers.Embedding):
    """Takes the place of an Embedding."""


def tables(model):
    found = [
        x for x in model._flatten_layers() if isinstance(x, layers.Embedding)
    ]
    return {id(x): x for x in found}.values()


def ids_for(model, rows=4):
    shape = (rows, hosts.LENGTH)
    if hasattr(model, "operations"):
        shape = (rows, *model.input.shape[1:])
    return np.random.default_rng(0).integers(hosts.ROWS, size=shape)


def exchanged(model):
    """A copy with an `Other` of the same rows in place of each table."""
    replacements = {}
    for layer in tables(model):
        new = Other.from_config(layer.get_config())
        new.build()
        new.set_weights(layer.get_weights())
        replacements[id(layer)] = new
    small, pairs = copy_model(model, replacements)
    return small, pairs, list(replacements.values())


def check_same(model, small):
    ids = ids_for(model)
    np.testing.assert_allclose(small(ids), model(ids), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", hosts.HOSTS)
def test_tables_are_exchanged_wherever_they_are(name):
    make, count = hosts.HOSTS[name]
    model = make()
    before = [np.array(x) for x in model.get_weights()]
    small, pairs, new = exchanged(model)
    assert len(new) == count
    assert isinstance(small, type(model))
    found = list(tables(small))
    assert {id(x) for x in found} == {id(x) for x in new}
    # All layers are paired, and by name.
    inner = {id(x) for x in model._flatten_layers()} - {id(model)}
    of_models = (layers.InputLayer, keras.Model)
    for old, same in pairs:
        assert same.name == old.name and isinstance(same, type(old))
        inner.discard(id(old))
    left = {type(x) for x in model._flatten_layers() if id(x) in inner}
    assert all(issubclass(cls, of_models) for cls in left)
    check_same(model, small)
    own = {id(x) for x in model.variables}
    assert not own & {id(x) for x in small.variables}
    for old, array in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(old, array)
    if hasattr(model, "twice"):
        ids = ids_for(model)
        np.testing.assert_allclose(small.twice(ids), 2 * small(ids), rtol=1e-6)


@pytest.mark.parametrize("name", hosts.HOSTS)
def test_copies_of_copies(name, tmp_path):
    model = hosts.HOSTS[name][0]()
    small = exchanged(model)[0]
    again, _ = copy_model(small, {})
    assert type(again) is type(small)
    check_same(model, again)
    second = exchanged(again)[0]
    check_same(model, second)
    second.save(tmp_path / "second.keras")
    check_same(model, keras.saving.load_model(tmp_path / "second.keras"))
    check_same(model, copy.deepcopy(small))


def compress(model, **kwargs):
    settings = {
        "num_codebooks": 2,
        "codebook_size": 4,
        "min_bytes": 1000,
        "learner": RandomCodeLearner,
        "verbose": 0,
    }
    return kc.compression.compress_model(model, **{**settings, **kwargs})


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Compressed models by name, trained by a step, and their files."""
    folder = tmp_path_factory.mktemp("saved")
    models = {}
    for name, (make, _) in hosts.HOSTS.items():
        model = make()
        model.compile("sgd", "mse")
        small = compress(model)
        ids = ids_for(small)
        small.fit(ids, np.ones_like(small(ids)), verbose=0)
        small.save(folder / f"{name}.keras")
        np.savez(folder / f"{name}.npz", ids=ids, outputs=small(ids))
        models[name] = model, small
    return folder, models


@pytest.mark.parametrize("name", hosts.HOSTS)
def test_compressed(name, saved):
    model, small = saved[1][name]
    assert isinstance(small, type(model))
    codes = [
        x for x in small._flatten_layers() if isinstance(x, kc.CodeEmbedding)
    ]
    assert {x.input_dim for x in codes} == {hosts.ROWS}
    assert not [x for x in tables(small) if x.input_dim == hosts.ROWS]
    assert small.compiled
    trained = {id(x) for x in small.trainable_variables}
    assert all(id(x.codebooks) in trained for x in codes)


def test_files_load_in_another_process(saved):
    folder, models = saved
    code = (
        "import sys, numpy as np, keras, keras_compembed, hosts\n"
        "for name in sys.argv[1:]:\n"
        "    model = keras.saving.load_model(f'{name}.keras')\n"
        "    data = np.load(f'{name}.npz')\n"
        "    difference = np.abs(model(data['ids']) - data['outputs']).max()\n"
        "    assert difference < 1e-6, (name, difference)\n"
        "    model.fit(data['ids'], data['outputs'], verbose=0)\n"
        "    model.save('again.keras')\n"
        "    again = keras.saving.load_model('again.keras')\n"
        "    assert type(again) is type(model), name\n"
        "    print(name)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, *models],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout.splitlines() == list(models), run.stderr


def test_graphs_stay_whole():
    model = hosts.Graph(3)
    small, _, (new,) = exchanged(model)
    assert small.tokens is new
    assert [x.name for x in small.layers] == [x.name for x in model.layers]
    assert new in small.layers
    part = keras.Model(small.input, small.layers[-2].output)
    assert new in part.layers
    ids = ids_for(model)
    np.testing.assert_allclose(small.layers[-1](part(ids)), model(ids), 1e-6)
    whole = hosts.in_functional(small)
    assert new in whole._flatten_layers()
    cloned = keras.Model.from_config(part.get_config())
    assert [x.name for x in cloned.layers] == [x.name for x in part.layers]


def test_parts_are_saved_alone(saved, tmp_path):
    _, small = saved[1]["task"]
    small.backbone.save(tmp_path / "backbone.keras")
    loaded = keras.saving.load_model(tmp_path / "backbone.keras")
    assert isinstance(loaded.tokens, kc.CodeEmbedding)
    _, small = saved[1]["subclassed"]
    for part in (small.graph, small.attributes[1]):
        again = keras.saving.deserialize_keras_object(
            keras.saving.serialize_keras_object(part)
        )
        assert isinstance(again.tokens, kc.CodeEmbedding)
        assert type(again) is type(part)


def test_checkpoints_of_tensorflow_hold_codes(saved, tmp_path):
    _, small = saved[1]["collections"]
    path = tf.train.Checkpoint(model=small).save(tmp_path / "checkpoint")
    shapes = [shape for _, shape in tf.train.list_variables(path)]
    assert shapes.count([2, 4, hosts.WIDTH]) >= 4
    assert [hosts.ROWS, hosts.WIDTH] not in shapes


def test_places():
    layer = hosts.Collections(name="host")
    model = hosts.in_functional(layer)
    said = {
        found.name: [describe_place(place) for place in places]
        for found, places in layer_places(model).values()
    }
    first, second = "layers[1].tables.few[0]", "layers[1].tables.few[1]"
    assert said[layer.tables["few"][0].name] == [first]
    assert said["tokens"] == [second, "layers[1].again[0]"]
    assert said["seventh"] == ["layers[1].by_number[7]"]
    assert said["second"] == ["layers[1].pair[1]"]
    place = ("layers", 1, "by_number", 7)
    assert layer_at(model, place) is layer.by_number[7]
    for missing in ("layers",), ("layers", 9), ("layers", 1, "by_number", 8):
        assert layer_at(model, missing) is None
    exchange_layers(model, [(layer.pair.second, layer.again[0])])
    assert isinstance(layer.pair, hosts.Pair)
    assert layer.pair.second is layer.again[0]


@keras.saving.register_keras_serializable(package="tests")
class Reads(layers.Layer):
    """Looks up by a layer that its config tells of."""

    def __init__(self, table, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def build(self, input_shape):
        self.table.build()

    def call(self, inputs):
        return self.table(inputs)

    def get_config(self):
        table = keras.saving.serialize_keras_object(self.table)
        return {**super().get_config(), "table": table}

    @classmethod
    def from_config(cls, config):
        table = keras.saving.deserialize_keras_object(config["table"])
        return cls(**{**config, "table": table})


@pytest.mark.parametrize("in_graph", [False, True])
def test_ties_between_hosts_are_kept(in_graph, tmp_path):
    host = hosts.Attributes(name="host")
    inputs = keras.Input((hosts.LENGTH,), dtype="int32")
    outputs = host(inputs)
    for name in "one", "two":
        outputs += Reads(host.tokens, name=name)(inputs)
    if in_graph:
        # After those that hold it: files of the model itself do not load.
        outputs += host.tokens(inputs)
    model = keras.Model(inputs, outputs)
    small = compress(model)
    small.save(tmp_path / "1.keras")
    once = keras.saving.load_model(tmp_path / "1.keras")
    once.save(tmp_path / "2.keras")
    for each in (small, once, keras.saving.load_model(tmp_path / "2.keras")):
        tokens = each.get_layer("host").tokens
        assert isinstance(tokens, kc.CodeEmbedding)
        assert each.get_layer("one").table is tokens
        assert each.get_layer("two").table is tokens
        if in_graph:
            assert each.get_layer("tokens") is tokens


class Scores(layers.Layer):
    """Reads a table that it is given; no config tells of it."""

    def __init__(self, table, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def call(self, inputs):
        vectors = self.table(inputs)
        table = keras.ops.transpose(self.table.embeddings)
        return keras.ops.matmul(vectors, table)


@keras.saving.register_keras_serializable(package="tests")
class MakesAll(keras.Model):
    """Makes layers that could not be made again alone."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(hosts.ROWS, hosts.WIDTH)
        self.scores = Scores(self.table)

    def call(self, inputs):
        return self.scores(inputs)


def made_all():
    model = MakesAll()
    ids = np.arange(2 * hosts.LENGTH).reshape(2, -1)
    model(ids)
    return model, compress(model, sample_inputs=ids), ids


def test_layers_that_only_the_model_can_make(tmp_path):
    _, small, ids = made_all()
    small.save(tmp_path / "small.keras")
    loaded = keras.saving.load_model(tmp_path / "small.keras")
    assert loaded.scores.table is loaded.table
    assert isinstance(loaded.table, kc.CodeEmbedding)
    np.testing.assert_allclose(loaded(ids), small(ids), rtol=1e-6)


def test_pickles():
    _, small, ids = made_all()
    again = pickle.loads(pickle.dumps(small))
    assert type(again) is type(small)
    np.testing.assert_allclose(again(ids), small(ids), rtol=1e-6)


@keras.saving.register_keras_serializable(package="tests")
class SelfTaught(layers.Layer):
    """Has an attribute named as TensorFlow names its own."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self._self_table = layers.Embedding(hosts.ROWS, hosts.WIDTH)

    def call(self, inputs):
        return self._self_table(inputs)


def test_attributes_named_as_those_of_tensorflow(tmp_path):
    model = hosts.in_functional(SelfTaught(name="host"))
    small = compress(model)
    assert isinstance(small.get_layer("host")._self_table, kc.CodeEmbedding)
    assert not tables(small)
    small.save(tmp_path / "small.keras")
    check_same(small, keras.saving.load_model(tmp_path / "small.keras"))


@keras.saving.register_keras_serializable(package="tests")
class ReadsWeights(layers.Layer):
    """Reads an attribute that only an Embedding has."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(hosts.ROWS, hosts.WIDTH)

    def build(self, input_shape):
        self.table.build()

    def call(self, inputs):
        return keras.ops.take(self.table.embeddings.value, inputs, axis=0)


def test_layers_that_do_not_run_with_codes():
    model = hosts.in_functional(ReadsWeights(name="host"))
    message = "cannot be copied: .*may call a table.*ReadsWeights"
    with pytest.raises(ValueError, match=message):
        compress(model)


@keras.saving.register_keras_serializable(package="tests")
class Forgets(layers.Layer):
    """Keras still tracks a table that nothing else holds."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        for _ in range(2):
            self.table = layers.Embedding(hosts.ROWS, hosts.WIDTH)
            self.table.build()

    def call(self, inputs):
        return self.table(inputs)


def test_tables_that_nothing_holds():
    model = hosts.in_functional(Forgets(name="host"))
    host = model.get_layer("host")
    (forgotten,) = (x for x in tables(model) if x is not host.table)
    message = f"'host/{forgotten.name}' cannot be exchanged: no attribute"
    with pytest.raises(ValueError, match=message):
        compress(model)
    small = compress(model, layers=[host.table.name])
    assert isinstance(small.get_layer("host").table, kc.CodeEmbedding)


class Reader:
    """Holds a layer, and is none that Keras knows."""

    def __init__(self, table):
        self.table = table


@keras.saving.register_keras_serializable(package="tests")
class Untracked(layers.Layer):
    """Holds a table where Keras tracks it, and where it does not."""

    def __init__(self, how, **kwargs):
        super().__init__(**kwargs)
        self.how = how
        self.table = table = layers.Embedding(hosts.ROWS, hosts.WIDTH)
        self.other = {
            "method": table.call,
            "function": lambda ids: table(ids),
            "object": Reader(table),
        }[how]

    def call(self, inputs):
        return self.table(inputs)


@pytest.mark.parametrize("how", ["method", "function", "object"])
def test_tables_held_out_of_sight(how):
    """What other methods do with them would be done with random rows."""
    model = hosts.in_functional(Untracked(how, name="host"))
    message = "'host' .Untracked. cannot be copied: it also holds its Embedding"
    with pytest.raises(ValueError, match=message):
        compress(model)


@keras.saving.register_keras_serializable(package="tests")
class Traced(layers.Layer):
    """Its call is a graph that TensorFlow keeps."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.table = layers.Embedding(hosts.ROWS, hosts.WIDTH)

    @tf.function
    def call(self, inputs):
        return self.table(inputs)


def test_graphs_that_are_kept_read_codes():
    model = hosts.in_functional(Traced(name="host"))
    ids = ids_for(model)
    small = compress(model, sample_inputs=ids)
    host = small.get_layer("host")
    np.testing.assert_allclose(host(ids), host.table(ids), rtol=1e-6)
    host.table.codebooks.assign(0 * host.table.codebooks)
    assert not np.any(host(ids))


class NeedsTable(layers.Layer):
    """Its constructor takes a layer, and its config does not tell of it."""

    def __init__(self, table=None, **kwargs):
        super().__init__(**kwargs)
        self.table = table

    def call(self, inputs):
        return inputs if self.table is None else self.table(inputs)

    def get_config(self):
        return super().get_config()


def test_hosts_that_cannot_be_made_again_are_named():
    table = layers.Embedding(hosts.ROWS, hosts.WIDTH)
    model = hosts.in_functional(NeedsTable(table, name="host"))
    message = "'host' .NeedsTable. cannot be copied: .*no Embedding at table"
    with pytest.raises(ValueError, match=message):
        compress(model)


def test_two_devices_train_as_one(saved, strategy):
    folder, models = saved
    path = folder / "collections.keras"
    one = keras.saving.load_model(path)
    with strategy.scope():
        two = keras.saving.load_model(path)
        compress(models["collections"][0])
    ids = ids_for(one, rows=8)
    targets = np.ones_like(one(ids))
    for model in one, two:
        model.fit(ids, targets, batch_size=8, shuffle=False, verbose=0)
    np.testing.assert_allclose(two(ids), one(ids), atol=1e-6)


def test_class_that_is_defined_twice(tmp_path):
    # As where a cell of a notebook is run again.
    for _ in range(2):

        @keras.saving.register_keras_serializable(package="tests")
        class Again(hosts.MadeInBuild):
            pass

        small = compress(hosts.in_functional(Again(name="host")))
        small.save(tmp_path / "small.keras")
        loaded = keras.saving.load_model(tmp_path / "small.keras")
        assert isinstance(loaded.get_layer("host"), Again)
        check_same(small, loaded)
