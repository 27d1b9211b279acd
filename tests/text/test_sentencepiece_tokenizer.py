"""Pieces: the ids of SentencePiece, in a smaller table."""

import io

import numpy as np
import pytest
import tensorflow as tf
from text_references import PieceReference
from text_references import hard_texts
from text_references import with_wrong_bytes

import keras_compembed as kc
from keras_compembed.text import piece_table
from keras_compembed.text.normalization import compact_rules
from keras_compembed.text.normalization import read_rules

tensorflow_text = pytest.importorskip("tensorflow_text")
sentencepiece = pytest.importorskip("sentencepiece")
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
    spec = piece_table.parse(model).normalizer_spec
    return read_rules(spec.precompiled_charsmap)


def test_ids(given, texts):
    """Those of the best path, by the rules that the model came with."""
    model, tokenizer = given
    texts = texts[::80]
    found = tokenizer.tokenize(tf.constant(texts)).to_list()
    reference = PieceReference(piece_table.parse(model), rules_of(model))
    assert found == [reference(text) for text in texts]


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


def test_rules_that_are_left():
    known = ["\u2581ab", "c", "\u00e9"]
    rules = {
        "A": "a",  # to a known character
        "\u0100": "\u0101",  # unknown, as many bytes
        "\u0102": "x",  # unknown, fewer bytes
        "\u0003": "",  # nothing
        "\u2003": " ",  # a space
        "e\u0301": "\u00e9",
        "\u2460": "(1c)",  # in part known
        "a\u0301": "\u00e1",  # of a known character
        "\u0200\u0201": "\u0202\u0203",
        "\u0204\u0205": "\u0206\u0207",
        "\u0205": "c",  # may fit where the one above it does
    }
    found = compact_rules(rules, known)
    assert found == {
        "A": "a",
        "\u0102": "\x01",
        "\u0003": "",
        "\u2003": " ",
        "e\u0301": "\u00e9",
        "\u2460": "\x01\x01c\x01",
        "a\u0301": "\x80",
        "\u0204\u0205": "\x80\x80",
        "\u0205": "c",
    }
    # The tokenizer needs one rule at least.
    assert len(compact_rules({"\u0100": "\u0101"}, known)) == 1
    assert compact_rules(found, known) == found


@pytest.mark.parametrize(
    ("options", "arguments", "ends"),
    [
        # As T5 has them.
        ({"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}, ["eos"], (1,)),
        # As ALBERT has them, with pieces of its own.
        (
            {
                "pad_id": 0,
                "unk_id": 1,
                "bos_id": 2,
                "eos_id": 3,
                "user_defined_symbols": ["(", ")"],
                "control_symbols": ["[MASK]"],
            },
            ["bos", "eos"],
            (2, 3),
        ),
    ],
)
def test_models_of_others(options, arguments, ends):
    model = train(**options)
    tokenizer = Tokenizer(model, **{f"add_{name}": True for name in arguments})
    assert tokenizer.pad_id == 0
    assert tokenizer.unknown_id == options["unk_id"]
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    wanted = processor.encode(
        TEXTS[::20],
        add_bos="bos" in arguments,
        add_eos="eos" in arguments,
    )
    found = tokenizer.tokenize(tf.constant(TEXTS[::20])).to_list()
    assert found == wanted
    # So no text is without a token.
    empty = tokenizer([""]).numpy()
    assert empty.tolist() == [list(ends)]
    rows = tokenizer(TEXTS[::20]).numpy()
    assert [row[row > 0].tolist() for row in rows] == wanted
    # A model says the same after its ids are others.
    small = tokenizer.prune(TEXTS[::20])
    assert small.vocabulary_size < tokenizer.vocabulary_size
    again = Tokenizer(small.model)
    assert (again.pad_id, again.unknown_id) == (0, options["unk_id"])


def test_padding_of_a_model_without():
    model = train(bos_id=1, eos_id=2, unk_id=0)
    with pytest.raises(ValueError, match="`pad_id` must be given"):
        Tokenizer(model)
    with pytest.raises(ValueError, match="pad_id"):
        Tokenizer(model, pad_id=1000)
    tokenizer = Tokenizer(model, pad_id=2)
    rows = tokenizer(["a", "a green apple"]).numpy()
    assert rows[0, -1] == 2
    pruned = tokenizer.prune(["a green apple"])
    assert pruned.get_vocabulary()[pruned.pad_id] == "</s>"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "bpe"}, "kind 'bpe'"),
        ({"byte_fallback": True, "vocab_size": 400}, "bytes as pieces"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix"),
    ],
)
def test_models_that_phones_lack(options, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer(train(**options))


def test_unused_pieces():
    proto = piece_table.parse(train(pad_id=3))
    proto.pieces[9].type = piece_table.UNUSED
    with pytest.raises(ValueError, match="unused pieces"):
        Tokenizer(proto.SerializeToString())


@pytest.mark.parametrize("content", [b"", b"not a model", b"\x00" * 40])
def test_what_is_no_model(content):
    with pytest.raises(ValueError, match="must be a SentencePiece model"):
        Tokenizer(content)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match="bytes of a SentencePiece model or"):
        Tokenizer(3)
    with pytest.raises(FileNotFoundError):
        Tokenizer(tmp_path / "none.model")
    model = train(pad_id=3, bos_id=-1)
    with pytest.raises(ValueError, match="`add_bos` needs"):
        Tokenizer(model, add_bos=True)
    with pytest.raises(ValueError, match="`add_eos` must be"):
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


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ("one text", "an iterable of strings"),
        ([1, 2], "must hold strings"),
        ([], "must hold a text"),
        (["", "  "], "must hold words"),
        (["a", None], "must hold strings. Received: .* NoneType"),
        (["a \ud800"], "text that UTF-8 can hold"),
    ],
)
def test_texts_to_train_on(texts, message):
    with pytest.raises(ValueError, match=message):
        Tokenizer.train(texts, 100)


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
    with pytest.raises(ValueError, match="min_count"):
        tokenizer.prune(texts, min_count=0)
    with pytest.raises(ValueError, match="vocabulary_size"):
        tokenizer.prune(texts, vocabulary_size=3)
