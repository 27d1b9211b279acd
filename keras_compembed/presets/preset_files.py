"""Names of the files in a preset's folder."""

MODEL = "model.keras"
VECTORS = "vectors.npz"
LITERT = "model.tflite"
FIGURES = "figures.json"
CARD = "README.md"
# What the card is made of, and what the folder holds.
RECORD = "preset.json"

# What `save_preset` writes by itself.
OWN_FILES = (MODEL, VECTORS, FIGURES, CARD, RECORD)

CONTENTS = {
    MODEL: "the Keras model",
    VECTORS: "words and their vectors",
    LITERT: "the model as a LiteRT file",
    "labels.txt": "names of the outputs, one a line, in their order",
    "vocabulary.txt": "words, one a line; the line is the id",
    FIGURES: "the record of the figures below",
    "sample.json": "a few inputs with their answers",
    RECORD: "what this card is made of",
}
