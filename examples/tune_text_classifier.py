"""Searches with keras-tuner for the best way to compress a text classifier.

Trains the classifier of `examples.compress_text_classifier`. Tries methods for
its embedding table within a size limit, fine-tunes each, and shows bytes and
accuracy. The best model is tested and written as a LiteRT file.


    python -m examples.tune_text_classifier
    python -m examples.tune_text_classifier --max-bytes 300000 --tuner hyperband
    python -m examples.tune_text_classifier --data reviews.csv --trials 40
"""

import argparse
import os
import pathlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import keras_tuner
import numpy as np

import keras_compembed as kc
from examples import labelled_texts
from examples.compress_text_classifier import ENCODERS
from examples.compress_text_classifier import accuracy
from examples.compress_text_classifier import build_model
from examples.compress_text_classifier import litert_accuracy
from examples.compress_text_classifier import train

TUNERS = {
    "random": keras_tuner.RandomSearch,
    "bayesian": keras_tuner.BayesianOptimization,
    "hyperband": keras_tuner.Hyperband,
    "grid": keras_tuner.GridSearch,
}
QUICK = {
    "data": "generated",
    "model": "mean",
    "embedding_dim": 16,
    "length": 12,
    "epochs": 6,
    "trial_epochs": 1,
    "trials": 4,
    "batch_size": 32,
}


def parse_arguments(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument(
        "--data",
        default="docstrings",
        help="docstrings, imdb, 20newsgroups, generated, or a .csv or .tsv "
        "file with the columns label and text",
    )
    parser.add_argument(
        "--data-dir", help="folder that holds imdb or 20newsgroups already"
    )
    parser.add_argument("--output", default="build/tune", help="folder")
    parser.add_argument("--tuner", default="bayesian", choices=tuple(TUNERS))
    parser.add_argument(
        "--max-bytes", type=int, help="of the LiteRT file (default: no limit)"
    )
    parser.add_argument(
        "--trials", type=int, default=20, help="at most; not for hyperband"
    )
    parser.add_argument("--trial-epochs", type=int, default=3)
    parser.add_argument(
        "--quantize",
        default="int8",
        choices=("float32", "float16", "int8", "int8_codebooks"),
    )
    parser.add_argument("--model", default="cnn", choices=tuple(ENCODERS))
    parser.add_argument("--vocabulary-size", type=int, default=16_000)
    parser.add_argument("--embedding-dim", type=int, default=256)
    parser.add_argument("--length", type=int, default=128, help="words read")
    parser.add_argument("--epochs", type=int, default=12, help="at most")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--classes", type=int, help="keep the most frequent")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--quick", action="store_true", help="seconds: tiny, generated texts"
    )
    args = parser.parse_args(argv)
    if args.quick:
        vars(args).update(QUICK)
    return args


def load_texts(args):
    if args.data == "generated":
        pairs = labelled_texts.generated(500, 4, num_words=200)
        return labelled_texts.split([pairs], args.seed)
    return labelled_texts.load(
        args.data, args.data_dir, args.seed, args.classes
    )


def trained_model(path, dataset, args, vocabulary_size):
    """The classifier, trained now or loaded from an earlier run."""
    if path.exists():
        print(f"Reading {path}")
        return keras.saving.load_model(path)
    print("Training the classifier")
    keras.utils.set_random_seed(args.seed)
    model = build_model(args, vocabulary_size, len(dataset.classes))
    train(model, dataset, args, args.epochs, 1.5e-3)
    model.save(path)
    return model


def make_tuner(args, hypermodel):
    limit = {"max_trials": args.trials}
    if args.tuner == "hyperband":
        limit = {"max_epochs": args.trial_epochs}
    return TUNERS[args.tuner](
        hypermodel,
        objective="val_accuracy",
        seed=args.seed,
        directory=args.output,
        project_name=args.tuner,
        **limit,
    )


def main(argv=None):
    args = parse_arguments(argv)
    output = pathlib.Path(args.output)
    output.mkdir(parents=True, exist_ok=True)

    print(f"Reading {args.data}")
    dataset = load_texts(args)
    vocabulary, dataset = dataset.as_ids(args.vocabulary_size, args.length)
    path = output / "model.keras"
    model = trained_model(path, dataset, args, len(vocabulary))
    quantize = None if args.quantize == "float32" else args.quantize
    counts = np.bincount(dataset.train[0].ravel(), minlength=len(vocabulary))
    budget = kc.Budget(
        args.max_bytes,
        quantize=quantize,
        sample_weight={"words": np.sqrt(1 + counts)},
    )
    hypermodel = kc.tuning.CompressedHyperModel(
        model,
        budget,
        layers=["words"],
        learning_rates=[2e-4, 1e-3],
        seed=args.seed,
        verbose=0,
    )
    tuner = make_tuner(args, hypermodel)
    tuner.search(
        *dataset.train,
        validation_data=dataset.validation,
        batch_size=args.batch_size,
        epochs=args.trial_epochs,
        verbose=2,
    )

    trials = tuner.oracle.get_best_trials(len(tuner.oracle.trials))
    print("\n     bytes  accuracy  method")
    for trial in trials:
        size = trial.metrics.get_best_value("litert_bytes")
        method = trial.hyperparameters.get("method")
        print(f"{size:10,.0f}  {trial.score:8.4f}  {method}")
    (best,) = tuner.get_best_models()
    file = output / "best.tflite"
    kc.export_litert(best, file, quantize=quantize, overwrite=True, verbose=0)
    ids, labels = dataset.test
    result = {
        "stored as": trials[0].hyperparameters.get("method"),
        "file_bytes": file.stat().st_size,
        "original_bytes": hypermodel.original_bytes,
        "test_accuracy": litert_accuracy(file, ids, labels),
        "original_test_accuracy": accuracy(
            model.predict(ids, verbose=0), labels
        ),
    }
    print()
    for name, value in result.items():
        print(f"{name:24} {value}")
    print(f"\nFile: {file}")
    return result


if __name__ == "__main__":
    main()
