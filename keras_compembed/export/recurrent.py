"""Layers that loop over time, in ops that LiteRT has."""

import inspect

import keras
import tensorflow as tf


def takes(layer, name):
    """Whether the `call` of a layer has an argument."""
    return name in inspect.signature(layer.call).parameters


def call_on_all_steps(layer, inputs, training=None, mask=None):
    """In place of the method `call` of a `TimeDistributed` layer."""

    def merge(tensor):
        shape = tf.concat([[-1], tf.shape(tensor)[2:]], axis=0)
        merged = tf.reshape(tensor, shape)
        merged.set_shape((None, *tensor.shape[2:]))
        return merged

    kwargs = {}
    if mask is not None and takes(layer.layer, "mask"):
        kwargs["mask"] = merge(mask)
    if takes(layer.layer, "training"):
        kwargs["training"] = training
    outputs = layer.layer.call(merge(inputs), **kwargs)

    def split(output):
        shape = tf.concat([tf.shape(inputs)[:2], tf.shape(output)[1:]], axis=0)
        steps = tf.reshape(output, shape)
        steps.set_shape((*inputs.shape[:2], *output.shape[1:]))
        return steps

    return keras.tree.map_structure(split, outputs)


def inner_loop(layer, sequences, initial_state, mask=None, training=False):
    """In place of the method `inner_loop` of a recurrent layer."""
    cell_kwargs = {}
    if takes(layer.cell, "training"):
        cell_kwargs["training"] = training

    def run_cell(inputs, states):
        output, states = layer.cell(inputs, states, **cell_kwargs)
        return output, tuple(keras.tree.flatten(states))

    if keras.tree.is_nested(mask):
        mask = mask[0]
    if layer.go_backwards:
        sequences = tf.reverse(sequences, [1])
        mask = None if mask is None else tf.reverse(mask, [1])
    steps = tf.shape(sequences)[1]
    states = tuple(keras.tree.flatten(initial_state))

    def pack(states):
        return keras.tree.pack_sequence_as(initial_state, list(states))

    # Its value counts only where the mask hides the first step: zeros there.
    first, _ = run_cell(sequences[:, 0], pack(states))
    output = tf.zeros_like(first)

    def advance(step, output, states):
        new_output, new_states = run_cell(
            tf.gather(sequences, step, axis=1), pack(states)
        )
        if mask is not None:
            seen = tf.gather(tf.cast(mask, tf.bool), step, axis=1)
            other = (
                tf.zeros_like(output) if layer.zero_output_for_mask else output
            )
            new_output = _where(seen, new_output, other)
            new_states = tuple(
                _where(seen, new, old)
                for new, old in zip(new_states, states, strict=True)
            )
        return new_output, new_states

    if layer.unroll:
        # Without a loop, for runtimes that have none.
        found = []
        for step in range(sequences.shape[1]):
            output, states = advance(step, output, states)
            found.append(output)
        outputs = found if layer.return_sequences else [output]
        return output, tf.stack(outputs, axis=1), pack(states)

    def body(step, output, outputs, *states):
        new_output, new_states = advance(step, output, states)
        if layer.return_sequences:
            # LiteRT loops cannot grow a tensor.
            here = tf.reshape(tf.equal(every_step, step), ones)
            outputs = tf.where(here, tf.expand_dims(new_output, 1), outputs)
        return (step + 1, new_output, outputs, *new_states)

    ones = (1, -1, *(1 for _ in first.shape[1:]))
    every_step = tf.range(steps)
    outputs = tf.expand_dims(output, 1)
    if layer.return_sequences:
        outputs = tf.repeat(outputs, steps, axis=1)
    _, output, outputs, *states = tf.while_loop(
        lambda step, *_: step < steps,
        body,
        (tf.constant(0), output, outputs, *states),
    )
    if layer.return_sequences:
        outputs.set_shape(sequences.shape[:2] + output.shape[1:])
    return output, outputs, pack(states)


def _where(seen, new, old):
    """`new` for the rows seen, else `old`."""
    for _ in range(len(new.shape) - 1):
        seen = tf.expand_dims(seen, -1)
    return tf.where(seen, new, old)
