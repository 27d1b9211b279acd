"""Tests of vectors of words, in the folder `word_similarity`."""

# Heads of columns to files of pairs and how similar people find them.
PAIRS = {
    "WordSim": "EN-WS-353-ALL",
    "SimLex": "EN-SIMLEX-999",
    "MEN": "EN-MEN-TR-3k",
    "RW": "EN-RW-STANFORD",
    "SimVerb": "EN-SimVerb-3500",
    "MTurk": "EN-MTurk-771",
}
ANALOGIES = "questions-words"
