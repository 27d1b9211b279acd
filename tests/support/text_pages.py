"""A text classifier, and what stands for MediaPipe's package for pages."""

import json

import keras

import keras_compembed as kc

_FILES = [
    "README.md",
    "text_bundle.mjs",
    "wasm/text_wasm_internal.js",
    "wasm/text_wasm_internal.wasm",
    "wasm/text_wasm_nosimd_internal.js",
    "wasm/text_wasm_nosimd_internal.wasm",
]


def make_model(classes=3, tokenizer=None, **kwargs):
    tokenizer = tokenizer or kc.text.WordTokenizer(["cat", "dog"])
    layers = [
        keras.layers.Embedding(tokenizer.vocabulary_size, 4, **kwargs),
        keras.layers.GlobalAveragePooling1D(),
        keras.layers.Dense(classes, "softmax"),
    ]
    return keras.Sequential(
        [keras.Input((), dtype="string"), tokenizer, *layers]
    )


def write_package(folder, name="@mediapipe/tasks-text", version="1.0.1"):
    (folder / "wasm").mkdir(parents=True)
    for file in _FILES:
        (folder / file).write_text(file)
    described = {"name": name, "version": version}
    (folder / "package.json").write_text(json.dumps(described))
    return folder
