"""Files for texts: what runs them, and what they hold beside the graph."""

import zipfile

import keras
import pytest

import keras_compembed as kc

pytest.importorskip("tensorflow_text")
pytest.importorskip("mediapipe")

LABELS = ["calm", "glad", "sad"]
ABOUT = kc.export.FileMetadata(
    name="Moods",
    description="Tells moods of texts.",
    version="1.2",
    author="Ada",
    license="Apache-2.0",
)


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(0)
    tokenizer = kc.text.WordTokenizer(["the", "cat", "sat", "mat", "été"])
    return keras.Sequential(
        [
            keras.Input((), dtype="string"),
            tokenizer,
            kc.QuantizedEmbedding(tokenizer.vocabulary_size, 8, name="words"),
            keras.layers.GlobalAveragePooling1D(),
            keras.layers.Dense(3, "softmax", name="moods"),
        ]
    )


@pytest.mark.parametrize("runtime", ["litert", "tf-text", "mediapipe"])
def test_text_file(runtime, model, tmp_path, capsys):
    path = tmp_path / "m.tflite"
    export = kc.export.export_litert(
        model, path, runtime=runtime, labels=LABELS, metadata=ABOUT
    )
    assert export.max_error < 1e-6
    assert export.labels == {"output_0": tuple(LABELS)}
    printed = capsys.readouterr().out
    assert "calm, glad, sad" in printed and "Apache-2.0" in printed
    file = kc.export.inspect_litert(path)
    assert file.file_metadata == ABOUT
    assert file.labels == export.labels
    names = zipfile.ZipFile(path).namelist()
    if runtime == "litert":
        assert names == ["vocabulary.txt", "labels.txt"]
    else:
        assert names == ["labels.txt"]
        assert 0 < export.text_bytes < export.file_bytes
