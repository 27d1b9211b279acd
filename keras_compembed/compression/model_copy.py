"""Copies of models with some layers exchanged."""

import collections
import contextlib
import inspect
import tempfile
import types
import warnings

import keras

from keras_compembed.compression.held_objects import custom_objects
from keras_compembed.utils.layer_names import layer_paths


def is_searchable(layer):
    """Whether a layer is a model whose layers can be exchanged one by one."""
    # Functional models, and no others, have `operations`.
    return isinstance(layer, keras.Sequential) or hasattr(layer, "operations")


def exchangeable_layers(model):
    """All layers that `copy_model` can exchange, each once."""
    found = {}
    for layer in model.layers:
        if is_searchable(layer):
            found.update(
                (id(inner), inner) for inner in exchangeable_layers(layer)
            )
        else:
            found[id(layer)] = layer
    return list(found.values())


def copy_model(model, replacements):
    """Copies a Sequential or functional model, weights and all.

    Layers are made again from their class and config. Each is paired with
    the layer that it came from as it is made, whatever their names. What two
    layers of the model share, two layers of the copy share.

    Args:
        model: A built model.
        replacements: Dict from the `id` of a layer to the layer that takes
            its place in the copy.

    Returns:
        A tuple of the copy, not compiled, which shares nothing with the model
        given, and the list of pairs of exchangeable layers, `(old, new)`.

    Raises:
        ValueError: if a layer cannot be made again, differs when made
            again, or shares variables in a way that its config does not
            tell.
    """
    copier = _Copier(model, replacements)
    copy = copier.copy(model)
    copier.copy_trainability(model)
    copier.copy_state()
    return copy, copier.pairs


class _Copier:
    """Makes one copy of a model.

    Args:
        model: A built model.
        replacements: Same as in `copy_model`.
    """

    def __init__(self, model, replacements):
        self.pairs = []
        self._replacements = replacements
        self._made = {}
        self._paths = {id(x): path for path, x in layer_paths(model).items()}
        self._parts = _parts_of_models(model)
        self._shared = _shared_layers(model)

    def copy(self, layer):
        """The layer of the copy that takes the place of a layer or model."""
        if id(layer) not in self._made:
            self._made[id(layer)] = self._make(layer)
        return self._made[id(layer)]

    def _make(self, layer):
        if is_searchable(layer):
            return self._make_model(layer)
        if id(layer) in self._replacements:
            new = self._replacements[id(layer)]
        else:
            new = self._make_layer(layer)
        if isinstance(layer, keras.layers.Layer):
            self.pairs.append((layer, new))
        return new

    def _make_model(self, model):
        with _uncompiled(model):
            new = keras.models.clone_model(
                model,
                input_tensors=_new_inputs(model),
                clone_function=self.copy,
            )
        if new.dtype_policy != model.dtype_policy:
            new.dtype_policy = model.dtype_policy
        if type(new) is not type(model):
            warnings.warn(
                f"The copy of the model {model.name!r} is a "
                f"{type(new).__name__}, without the methods of its class "
                f"{type(model).__name__}, whose constructor takes other "
                "arguments than `inputs` and `outputs`.",
                stacklevel=2,
            )
        return new

    def _make_layer(self, layer):
        with self._naming(layer):
            new = _made_again(layer)
        if not isinstance(layer, keras.layers.Layer):
            return new
        # Configs that Keras makes up for a class may have neither of these.
        if new.name != layer.name:
            new.name = layer.name
        for old, same in zip(_flat(layer), _flat(new), strict=False):
            if same.dtype_policy != old.dtype_policy:
                same.dtype_policy = old.dtype_policy
        self._tie(layer, new)
        return new

    def _tie(self, layer, new):
        """Gives a new layer the copies of layers that its model shares."""
        for name, part in list(vars(layer).items()):
            made = vars(new).get(name)
            if type(made) is not type(part):
                continue
            if not isinstance(part, keras.layers.Layer):
                continue
            if id(part) not in self._shared:
                self._tie(part, made)
                continue
            if id(part) in self._parts:
                wanted = self.copy(part)
            else:
                wanted = self._made.setdefault(id(part), made)
            if wanted is not made:
                # In its place: variables are paired in the order of layers.
                places = [id(inner) for inner in new._layers]
                if id(made) in places:
                    new._layers[places.index(id(made))] = wanted
                vars(new)[name] = wanted

    def copy_trainability(self, layer):
        new = self._made[id(layer)]
        # From the outside in: `trainable` of a layer sets that of its parts.
        new.trainable = layer.trainable
        if is_searchable(layer):
            for inner in layer.layers:
                # Models make inputs of their own.
                if not isinstance(inner, keras.layers.InputLayer):
                    self.copy_trainability(inner)
        elif id(layer) not in self._replacements:
            for old, same in zip(_flat(layer), _flat(new), strict=False):
                same.trainable = old.trainable

    def copy_state(self):
        copied = {}
        for layer, new in self.pairs:
            if id(layer) in self._replacements:
                continue
            with self._naming(layer):
                try:
                    _copy_own_state(layer, new)
                finally:
                    # Also where it failed, which this explains.
                    _check_same_variables(layer, new)
            for variable, same in zip(
                layer.variables, new.variables, strict=True
            ):
                first, holder = copied.setdefault(id(variable), (same, layer))
                if first is not same:
                    raise ValueError(
                        f"The layers {self._paths[id(holder)]!r} and "
                        f"{self._paths[id(layer)]!r} share the variable "
                        f"{variable.path!r}, and a copy would hold it twice. "
                        "Let the one have the other as an attribute, and in "
                        "its config."
                    )
                same.assign(variable)
                if same.trainable != variable.trainable:
                    same.trainable = variable.trainable

    @contextlib.contextmanager
    def _naming(self, layer):
        """Says which layer it is that cannot be copied."""
        try:
            yield
        except Exception as error:
            # Whatever the user's own classes raise.
            reason = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, NotImplementedError):
                reason = (
                    "implement `get_config` in its class, and `from_config` "
                    "where arguments are no plain values."
                )
            path = self._paths.get(id(layer), layer.name)
            raise ValueError(
                f"The layer {path!r} ({type(layer).__name__}) cannot be "
                f"copied: {reason[:500]}"
            ) from error


def _flat(layer):
    return layer._flatten_layers()


def _parts_of_models(model):
    """The `id`s of all layers and models that `copy_model` makes by itself."""
    found = {id(model)}
    for layer in model.layers:
        found |= _parts_of_models(layer) if is_searchable(layer) else set()
        found.add(id(layer))
    return found


def _shared_layers(model):
    """The `id`s of layers inside layers that something else holds as well."""
    counts = collections.Counter(_parts_of_models(model))
    for layer in exchangeable_layers(model):
        counts.update(id(x) for x in layer._flatten_layers(include_self=False))
    return {key for key, count in counts.items() if count > 1}


def _new_inputs(model):
    """Inputs as a functional model has them, sparse or optional as they are.

    Returns:
        None for Sequential models, whose inputs Keras copies.
    """
    if not hasattr(model, "operations"):
        return None
    inputs = {
        id(layer.output): layer
        for layer in model.layers
        if isinstance(layer, keras.layers.InputLayer)
    }

    def made_again(tensor):
        layer = inputs[id(tensor)]
        copy = _made_again(layer)
        # Keras 3.12 leaves it out of configs.
        copy.optional = layer.optional
        return copy.output

    return keras.tree.map_structure(made_again, model.input)


@contextlib.contextmanager
def _uncompiled(model):
    """Keeps `clone_model` from copying losses, which fails for some."""
    compiled = model.compiled
    model.compiled = False
    try:
        yield
    finally:
        model.compiled = compiled


def _made_again(layer):
    """A layer or operation of the same class and config, without state."""
    if type(layer) is keras.layers.Lambda:
        # Not by its config, which takes functions apart.
        return keras.layers.Lambda(
            layer.function,
            output_shape=layer._output_shape,
            mask=layer.mask,
            arguments=dict(layer.arguments),
            name=layer.name,
            dtype=layer.dtype_policy,
        )
    with (
        warnings.catch_warnings(),
        keras.utils.custom_object_scope(custom_objects(layer)),
    ):
        # Of lambdas in configs, which are put back here.
        warnings.filterwarnings("ignore", message=".*lambda.*")
        config = layer.get_config()
        for name, value in vars(layer).items():
            is_function = isinstance(value, types.FunctionType)
            if name in config and is_function and value.__name__ == "<lambda>":
                config[name] = value
        if type(layer).get_config is keras.layers.Layer.get_config:
            config = _without_unknown(config, type(layer))
        return type(layer).from_config(config)


def _without_unknown(config, cls):
    """A config that Keras made up, without what the constructor lacks."""
    parameters = inspect.signature(cls).parameters
    if any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        return config
    return {
        name: value
        for name, value in config.items()
        if name in parameters or name not in ("name", "trainable", "dtype")
    }


def _copy_own_state(layer, new):
    """Copies what a layer holds besides variables, as files keep it."""
    for old, same in zip(_flat(layer), _flat(new), strict=False):
        if type(old) is not type(same):
            continue
        if _keeps_own_variables(old):
            store = {}
            old.save_own_variables(store)
            store = {
                name: keras.ops.convert_to_numpy(value)
                for name, value in store.items()
            }
            same.load_own_variables(store)
        if isinstance(old, keras.layers.RNN) and old.stateful:
            # Variables that Keras does not track.
            for state, other in zip(
                keras.tree.flatten(old.states),
                keras.tree.flatten(same.states),
                strict=True,
            ):
                other.assign(state)
        if hasattr(old, "save_assets"):
            with tempfile.TemporaryDirectory() as folder:
                old.save_assets(folder)
                same.load_assets(folder)


def _keeps_own_variables(layer):
    load = type(layer).load_own_variables
    return load is not keras.layers.Layer.load_own_variables


def _check_same_variables(layer, new):
    got, wanted = (
        [
            (tuple(variable.shape), variable.dtype)
            for variable in holder.variables
        ]
        for holder in (new, layer)
    )
    if got != wanted:
        place = next(
            (
                i
                for i, pair in enumerate(zip(got, wanted, strict=False))
                if pair[0] != pair[1]
            ),
            min(len(got), len(wanted)),
        )
        raise ValueError(
            "made again from its config, its variables are not the same. It "
            f"has {len(wanted)}, of which number {place} is "
            f"{wanted[place] if place < len(wanted) else 'none'}; its copy "
            f"has {len(got)}, there "
            f"{got[place] if place < len(got) else 'none'}."
        )
