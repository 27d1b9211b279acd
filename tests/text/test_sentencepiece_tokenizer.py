"""Pieces: the ids of SentencePiece, in a smaller table."""

import io

import numpy as np
import pytest
import tensorflow as tf
from errors import refused
from text_references import hard_texts
from text_references import with_wrong_bytes

import keras_compembed as kc
from keras_compembed.text.piece_table import read_rules

tensorflow_text = pytest.importorskip("tensorflow_text")
sentencepiece = pytest.importorskip("sentencepiece")
protos = pytest.importorskip("sentencepiece.sentencepiece_model_pb2")
# What trains pieces leaves memory behind.
pytestmark = pytest.mark.slow
Tokenizer = kc.text.SentencePieceTokenizer
TEXTS = [
    f"{a} {b} of {c} {d}, naïve and old {i}"
    for i, a in enumerate(["The red", "a green", "Two thin", "their other"])
    for b in ("thermometers", "apples", "caf\u00e9s", "antennas")
    for c in ("Berlin", "motherland", "wherever", "====")
    for d in ("breathe", "rested", "aaaaa")
]


def train(**options):
    """Bytes of a model as the package trains it."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXTS),
        model_writer=content,
        minloglevel=2,
        num_threads=1,
        **{
            "vocab_size": 120,
            "hard_vocab_limit": False,
            "normalization_rule_name": "identity",
            **options,
        },
    )
    return content.getvalue()


@pytest.fixture(scope="module")
def given():
    """A model with all rules, and the tokenizer of it."""
    model = train(
        normalization_rule_name="nmt_nfkc_cf",
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
    )
    return model, Tokenizer(model)


@pytest.fixture(scope="module")
def texts(given):
    """Hard texts, among them all kinds of what the rules are for."""
    sources = list(rules_of(given[0]))
    noise = sources[::500] + [source for source in sources if len(source) == 1]
    found = hard_texts([*given[1].get_vocabulary(), *TEXTS], 4000, 1, noise)
    return [*(text.encode() for text in found), *with_wrong_bytes(found)]


def rules_of(model):
    spec = parse(model).normalizer_spec
    return read_rules(spec.precompiled_charsmap)


def parse(model):
    return protos.ModelProto.FromString(model)


def test_fewer_rules_make_no_difference(given, texts):
    model, tokenizer = given
    whole = tensorflow_text.FastSentencepieceTokenizer(model)
    texts = tf.constant(texts)
    wanted = whole.tokenize(texts).to_list()
    assert tokenizer.tokenize(texts).to_list() == wanted
    # Rules take 247,000 bytes of a model as it is trained.
    assert len(model) > 247_000
    assert tokenizer.count_bytes() < len(tokenizer.model) + 4000 < 40_000
    # Again, there is nothing to do.
    assert Tokenizer(tokenizer.model).model == tokenizer.model


def test_ids_of_sentencepiece(given):
    """What others make of the smaller model."""
    model, tokenizer = given
    texts = [*TEXTS[::9], "Unknown: \u65e5\u672c\u8a9e \uff21\uff22 \u2460x."]
    for content in (model, tokenizer.model):
        processor = sentencepiece.SentencePieceProcessor(model_proto=content)
        found = tokenizer.tokenize(tf.constant(texts)).to_list()
        assert found == processor.encode(texts)


def test_models_of_others():
    """As ALBERT has them, with pieces of its own."""
    model = train(
        pad_id=0,
        unk_id=1,
        bos_id=2,
        eos_id=3,
        user_defined_symbols=["(", ")"],
        control_symbols=["[MASK]"],
    )
    added = {"add_bos": True, "add_eos": True}
    tokenizer = Tokenizer(model, **added)
    assert (tokenizer.pad_id, tokenizer.unknown_id) == (0, 1)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    wanted = processor.encode(TEXTS[::20], **added)
    found = tokenizer.tokenize(tf.constant(TEXTS[::20])).to_list()
    assert found == wanted
    # So no text is without a token.
    empty = tokenizer([""]).numpy()
    assert empty.tolist() == [[2, 3]]
    rows = tokenizer(TEXTS[::20]).numpy()
    assert [row[row > 0].tolist() for row in rows] == wanted
    # A model says the same after its ids are others.
    small = tokenizer.prune(TEXTS[::20])
    assert small.vocabulary_size < tokenizer.vocabulary_size
    again = Tokenizer(small.model)
    assert (again.pad_id, again.unknown_id) == (0, 1)


def test_models_that_are_refused(tmp_path):
    proto = parse(train(pad_id=3))
    proto.pieces[9].type = protos.ModelProto.SentencePiece.UNUSED
    for model, received in (
        (train(model_type="bpe"), "kind='bpe'"),
        (proto.SerializeToString(), "has_unused=True"),
        (b"not a model", "11 other bytes"),
        (3, "int"),
    ):
        with refused("model", received):
            Tokenizer(model)
    with pytest.raises(FileNotFoundError):
        Tokenizer(tmp_path / "none.model")
    model = train(pad_id=3, bos_id=-1)
    with refused("add_bos", "add_bos=True"):
        Tokenizer(model, add_bos=True)
    with refused("add_eos", 1):
        Tokenizer(model, add_eos=1)
    path = tmp_path / "a.model"
    path.write_bytes(model)
    assert Tokenizer(path).model == Tokenizer(str(path)).model


def test_train():
    tokenizer = Tokenizer.train(TEXTS, 100, sequence_length=5)
    vocabulary = tokenizer.get_vocabulary()
    assert vocabulary[:2] == ["[PAD]", "[UNK]"]
    assert tokenizer.vocabulary_size == len(vocabulary) <= 100
    upper, lower = (tokenizer([text]) for text in ("THE APPLE", "the apple"))
    np.testing.assert_array_equal(upper, lower)
    # Few texts have few pieces.
    assert Tokenizer.train(["a b"], 1000).vocabulary_size < 10


def test_prune(given):
    _, tokenizer = given
    texts = TEXTS[:30]
    kept = tokenizer.find_ids(texts)
    small = tokenizer.prune(texts)
    assert small.vocabulary_size == len(kept) < tokenizer.vocabulary_size
    names = np.array(tokenizer.get_vocabulary(), object)
    assert small.get_vocabulary() == names[kept].tolist()
    # The same pieces, of other ids.
    np.testing.assert_array_equal(kept[small(texts)], tokenizer(texts))
    # Each character can still be read.
    few = tokenizer.prune(texts, vocabulary_size=45)
    assert few.vocabulary_size == 45
    ids = few.tokenize(tf.constant(TEXTS)).flat_values.numpy()
    assert few.unknown_id not in ids
    assert len(tokenizer.find_ids(texts, min_count=20)) < len(kept)
    with refused("min_count", 0):
        tokenizer.prune(texts, min_count=0)
    with refused("vocabulary_size", 3):
        tokenizer.prune(texts, vocabulary_size=3)
