"""Copies of models with some layers exchanged."""

import collections
import contextlib
import inspect
import tempfile
import warnings

import keras

from keras_compembed.compression.exchanged_layers import remember_exchanges
from keras_compembed.compression.made_again import made_again
from keras_compembed.exchange.exchange_layers import describe_place
from keras_compembed.exchange.exchange_layers import exchange_layers
from keras_compembed.exchange.exchange_layers import layer_at
from keras_compembed.exchange.exchange_layers import layer_places
from keras_compembed.exchange.held_objects import held_objects
from keras_compembed.utils.layer_names import layer_paths
from keras_compembed.utils.swapped import swapped
from keras_compembed.utils.validation import on_one_line


def is_copied_by_layers(layer):
    """Whether a layer is a model that Keras's own config makes again."""
    if type(layer) is keras.Sequential:
        return True
    if isinstance(layer, keras.Sequential) or not hasattr(layer, "operations"):
        return False
    arguments = list(inspect.signature(type(layer).__init__).parameters)
    return arguments[1:4] == ["inputs", "outputs", "name"]


def copy_model(model, replacements, get_sample=None):
    """Copies a model, weights and all, with some layers exchanged."""
    copier = _Copier(model, replacements, get_sample)
    copy = copier.copy(model)
    copier.build(model)
    copier.copy_trainability(model)
    copier.copy_state()
    copier.remember()
    copier.check_exchanged(copy)
    return copy, [*copier.inner_pairs(), *copier.pairs]


class _CannotCopyError(ValueError):
    """Names what cannot be copied."""


class _Copier:
    """Makes one copy of a model."""

    def __init__(self, model, replacements, get_sample):
        self.pairs = []
        self._replacements = replacements
        self._get_sample = get_sample
        self._made = {}
        self._places = {}
        self._paths = {id(x): path for path, x in layer_paths(model).items()}
        self._parts = _parts_of_models(model)
        self._shared = _shared_layers(model)

    def copy(self, layer):
        """The layer of the copy that takes the place of a layer or model."""
        if id(layer) not in self._made:
            self._made[id(layer)] = self._make(layer)
        return self._made[id(layer)]

    def _make(self, layer):
        if is_copied_by_layers(layer):
            return self._make_model(layer)
        if id(layer) in self._replacements:
            new = self._replacements[id(layer)]
        else:
            new = self._make_layer(layer)
        if isinstance(layer, keras.layers.Layer) and id(layer) in self._parts:
            self.pairs.append((layer, new))
        return new

    def _make_model(self, model):
        try:
            # `clone_model` copies losses, which fails for some.
            with swapped(model, compiled=False):
                new = keras.models.clone_model(
                    model,
                    input_tensors=_new_inputs(model),
                    clone_function=self.copy,
                    call_function=self._call_function(model),
                )
        except _CannotCopyError:
            raise
        except Exception as error:
            # Whatever the user's own classes raise.
            raise _CannotCopyError(
                f"The model {model.name!r} cannot be copied: its layers do not "
                "run with others in place of tables. They may call a table, "
                "and read its `embeddings`; it has no other weights of an "
                f"Embedding. Received: {on_one_line(error)[:500]}"
            ) from error
        if new.dtype_policy != model.dtype_policy:
            new.dtype_policy = model.dtype_policy
        return new

    def _call_function(self, model):
        """Calls layers of a graph as it says, but for masks."""
        if isinstance(model, keras.Sequential):
            return None
        replacing = {id(new) for new in self._replacements.values()}

        def call(operation, *args, **kwargs):
            if id(operation) in replacing:
                kwargs.pop("mask", None)
            return operation(*args, **kwargs)

        return call

    def _make_layer(self, layer):
        with self._naming(layer):
            new = made_again(layer)
        if not isinstance(layer, keras.layers.Layer):
            return new
        held = self._held_by(layer)
        if any(
            id(old) in self._replacements and layer_at(new, places[0]) is None
            for old, places in held
        ):
            with self._naming(layer):
                self._build(layer, new)
        self._exchange(layer, new, held)
        # Configs that Keras makes up for a class may have neither of these.
        for old, same in self._same_layers(layer, new):
            if same.name != old.name:
                same.name = old.name
            if same.dtype_policy != old.dtype_policy:
                _set_policy(same, old.dtype_policy)
        if hasattr(layer, "output_names"):
            new.output_names = list(layer.output_names)
        return new

    def _held_by(self, layer):
        """Layers in a layer, however deep, and their places in it."""
        if id(layer) not in self._places:
            self._places[id(layer)] = list(layer_places(layer).values())
        return self._places[id(layer)]

    def _exchange(self, layer, new, held):
        """Gives a layer what takes the place of layers in it."""
        exchanges = []
        for old, places in held:
            replaced = id(old) in self._replacements
            if not replaced and id(old) not in self._shared:
                continue
            made = layer_at(new, places[0])
            if replaced:
                wanted = self.copy(old)
            elif type(made) is not type(old):
                continue
            elif id(old) in self._parts:
                wanted = self.copy(old)
            else:
                wanted = self._made.setdefault(id(old), made)
            for place in places:
                there = layer_at(new, place)
                if there is None or (replaced and type(there) is not type(old)):
                    with self._naming(layer):
                        raise ValueError(
                            "made again from its config, it holds no "
                            f"{type(old).__name__} at {describe_place(place)}."
                        )
                exchanges.append((there, wanted))
        exchange_layers(new, exchanges)
        with self._naming(layer):
            _check_not_held(new, exchanges)

    def _same_layers(self, layer, new):
        """Yields pairs of a layer and all in it, but for what is replaced."""
        yield layer, new
        for old, places in self._held_by(layer):
            same = layer_at(new, places[0])
            if id(old) not in self._replacements and type(same) is type(old):
                yield old, same

    def _in_replaced(self, layer):
        """The `id`s of variables of replaced layers in a layer and its copy."""
        return {
            id(variable)
            for old, _ in self._held_by(layer)
            if id(old) in self._replacements
            for each in (old, self._replacements[id(old)])
            for variable in each.variables
        }

    def build(self, model):
        """Builds the copy of a model that no graph has built."""
        new = self._made[id(model)]
        if model.built and not new.built:
            with self._naming(model):
                self._build(model, new)

    def _build(self, layer, new):
        with warnings.catch_warnings():
            # Of models that must be called to be built.
            warnings.simplefilter("ignore")
            new.build_from_config(layer.get_build_config() or {})
        # As Keras does when it loads a model.
        new.built = True
        if self._get_sample and isinstance(new, keras.Model):
            if len(new.variables) < len(layer.variables):
                new(self._get_sample())

    def inner_pairs(self):
        """Pairs of the layers in those of `pairs`, inner ones first."""
        found = {}
        for layer, new in self.pairs:
            if id(layer) in self._replacements:
                continue
            for old, places in self._held_by(layer):
                if id(old) not in found and id(old) not in self._parts:
                    found[id(old)] = old, layer_at(new, places[0])
        return [
            (old, new)
            for old, new in reversed(found.values())
            if new is not None
        ]

    def remember(self):
        """Makes configs tell what was exchanged, where they do not."""
        for layer, new in self.pairs:
            replaced = [
                (old, places)
                for old, places in self._held_by(layer)
                if id(old) in self._replacements
            ]
            with self._naming(layer):
                remember_exchanges(
                    new,
                    [
                        (places, self._replacements[id(old)])
                        for old, places in replaced
                    ],
                    # Keras's own way of saving a layer that several hold loses
                    # it where the first of them is not the model.
                    always=any(id(old) in self._shared for old, _ in replaced),
                )

    def check_exchanged(self, copy):
        """Raises if a layer was found where none could be put."""
        held = {id(layer) for layer in copy._flatten_layers()}
        for key, new in self._replacements.items():
            is_layer = isinstance(new, keras.layers.Layer)
            if is_layer and id(new) not in held:
                raise _CannotCopyError(
                    f"The layer {self._paths[key]!r} cannot be exchanged: no "
                    "attribute holds it, nor a list, tuple or dict of one. "
                    "Hold it there, or name the other layers in `layers`."
                )

    def copy_trainability(self, layer):
        new = self._made[id(layer)]
        # From the outside in: `trainable` of a layer sets that of its parts.
        new.trainable = layer.trainable
        if is_copied_by_layers(layer):
            for inner in layer.layers:
                # Models make inputs of their own.
                if not isinstance(inner, keras.layers.InputLayer):
                    self.copy_trainability(inner)
        elif id(layer) not in self._replacements:
            for old, places in self._held_by(layer):
                same = layer_at(new, places[0])
                if same is not None and same.trainable != old.trainable:
                    same.trainable = old.trainable

    def copy_state(self):
        copied = {}
        for layer, new in self.pairs:
            if id(layer) in self._replacements:
                continue
            with self._naming(layer):
                try:
                    for old, same in self._same_layers(layer, new):
                        _copy_own_state(old, same)
                finally:
                    # Also where it failed, which this explains.
                    variables = self._variables(layer, new)
                    _check_same_variables(*variables)
            for variable, same in zip(*variables, strict=True):
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

    def _variables(self, layer, new):
        """Variables of a layer and of its copy, but for what is replaced."""
        left_out = self._in_replaced(layer)
        return [
            [x for x in each.variables if id(x) not in left_out]
            for each in (layer, new)
        ]

    @contextlib.contextmanager
    def _naming(self, layer):
        """Says which layer it is that cannot be copied."""
        try:
            yield
        except Exception as error:
            # Whatever the user's own classes raise.
            reason = on_one_line(error)
            if isinstance(error, NotImplementedError):
                reason = (
                    "implement `get_config` in its class, and `from_config` "
                    "where arguments are no plain values."
                )
            path = self._paths.get(id(layer), layer.name)
            raise _CannotCopyError(
                f"The layer {path!r} ({type(layer).__name__}) cannot be "
                f"copied: {reason[:500]}{_remedy(layer)}"
            ) from error


def _remedy(layer):
    """A sentence on what may work where a layer cannot be copied."""
    if not isinstance(layer, keras.layers.Layer):
        return ""
    if any(
        getattr(part, "lora_enabled", False)
        # Of these, the updates are merged here.
        and not isinstance(part, keras.layers.Embedding)
        for part in layer._flatten_layers()
    ):
        return (
            " Updates of LoRA are merged when a model is saved: compress what "
            "`keras.saving.load_model` reads."
        )
    if getattr(layer, "inputs", None) and not is_copied_by_layers(layer):
        return (
            " A plain functional model can be copied, without the methods of "
            "the class: keras.Model(model.inputs, model.outputs)."
        )
    return ""


def _parts_of_models(model):
    """The `id`s of all layers and models that `copy_model` makes by itself."""
    found = {id(model)}
    if is_copied_by_layers(model):
        found.update(*map(_parts_of_models, model.layers))
    return found


def _shared_layers(model):
    """The `id`s of layers inside layers that something else holds as well."""
    counts = collections.Counter(_parts_of_models(model))
    for layer in _layers_of_models(model):
        counts.update(id(x) for x in layer._flatten_layers(include_self=False))
    return {key for key, count in counts.items() if count > 1}


def _layers_of_models(model):
    """The layers that `copy_model` makes again by their own class."""
    if not is_copied_by_layers(model):
        return [model]
    found = {}
    for layer in model.layers:
        found.update((id(inner), inner) for inner in _layers_of_models(layer))
    return list(found.values())


def _new_inputs(model):
    """Inputs as a functional model has them, sparse or optional as they are."""
    if not hasattr(model, "operations"):
        return None
    inputs = {
        id(layer.output): layer
        for layer in model.layers
        if isinstance(layer, keras.layers.InputLayer)
    }

    def copied(tensor):
        layer = inputs[id(tensor)]
        copy = made_again(layer)
        # Keras 3.12 leaves it out of configs.
        copy.optional = layer.optional
        return copy.output

    return keras.tree.map_structure(copied, model.input)


def _check_not_held(layer, exchanges):
    """Raises if a layer still holds one that was exchanged."""
    gone = {id(old): old for old, new in exchanges if old is not new}
    for item in held_objects(layer) if gone else ():
        if id(item) in gone:
            raise ValueError(
                f"it also holds its {type(item).__name__} {item.name!r} where "
                "Keras does not track it: in a function, or in an object that "
                "is no layer. Read it as an attribute of the layer."
            )


def _set_policy(layer, policy):
    if isinstance(layer.dtype_policy, keras.dtype_policies.DTypePolicyMap):
        # Keras puts what is set into the map, which other layers share, and
        # takes the names of what is in maps away when it saves them.
        layer._dtype_policy = policy
    else:
        layer.dtype_policy = policy


def _copy_own_state(layer, new):
    """Copies what a layer holds besides variables, as files keep it."""
    load = type(layer).load_own_variables
    if load is not keras.layers.Layer.load_own_variables:
        store = {}
        layer.save_own_variables(store)
        store = {
            name: keras.ops.convert_to_numpy(value)
            for name, value in store.items()
        }
        new.load_own_variables(store)
    if isinstance(layer, keras.layers.RNN) and layer.stateful:
        # Variables that Keras does not track.
        for state, other in zip(
            keras.tree.flatten(layer.states),
            keras.tree.flatten(new.states),
            strict=True,
        ):
            other.assign(state)
    if hasattr(layer, "save_assets"):
        with tempfile.TemporaryDirectory() as folder:
            layer.save_assets(folder)
            new.load_assets(folder)


def _check_same_variables(variables, new_variables):
    got, wanted = (
        [(tuple(variable.shape), variable.dtype) for variable in each]
        for each in (new_variables, variables)
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
