"""Words and the relations between them, as a graph: WordNet, made-up ones."""

import collections
import dataclasses
import lzma

import numpy as np

# Relations that hold both ways.
_EITHER_WAY = frozenset(
    ["antonym", "also_see", "similar_to", "synonym", "verb_group"]
)


@dataclasses.dataclass(frozen=True)
class Links:
    """Questions "what is linked so to this one?" and an answer of each."""

    num_entities: int
    num_relations: int
    train: np.ndarray
    valid: np.ndarray
    test: np.ndarray

    @classmethod
    def split(cls, links, num_entities, either_way, held=0.05):
        """Makes questions of links, both ways, and holds two parts out."""
        entities, relations, others = links.T
        num_relations = len(either_way)
        back = np.where(
            either_way[relations], relations, relations + num_relations
        )
        questions = np.stack(
            [links, np.stack([others, back, entities], axis=1)], axis=1
        ).astype("int32")
        questions = np.random.default_rng(0).permutation(questions)
        number = max(1, round(held * len(questions)))
        valid, test, train = np.split(questions, [number, 2 * number])
        return cls(
            num_entities,
            2 * num_relations,
            *(part.reshape(-1, 3) for part in (train, valid, test)),
        )


def wordnet(folder, least=5):
    """Relations of words in WordNet."""
    links = {}
    with lzma.open(folder / "relations.tsv.xz", "rt", encoding="utf-8") as file:
        for line in file:
            relation, _, *words = line.rstrip("\n").split("\t")
            if words[0] == words[1]:
                continue
            if relation in _EITHER_WAY:
                words.sort()
            links[words[0], relation, words[1]] = None
    while True:
        counts = collections.Counter()
        for word, _, other in links:
            counts.update((word, other))
        kept = [
            link
            for link in links
            if min(counts[link[0]], counts[link[2]]) >= least
        ]
        if len(kept) == len(links):
            break
        links = kept
    words = {word: place for place, word in enumerate(sorted(counts))}
    relations = sorted({relation for _, relation, _ in links})
    places = {relation: place for place, relation in enumerate(relations)}
    return Links.split(
        np.array(
            [
                (words[word], places[relation], words[other])
                for word, relation, other in links
            ]
        ),
        len(words),
        np.array([relation in _EITHER_WAY for relation in relations]),
    )


def generated(seed=0):
    """Entities of ten kinds, linked with many of their kind and of the next."""
    rng = np.random.default_rng(seed)
    number = 100
    entities, others = np.triu_indices(number, 1)
    steps = (others - entities) % 10
    links = np.stack([entities, steps, others], axis=1)[steps < 2]
    kept = rng.random(len(links)) < 0.7
    return Links.split(links[kept], number, np.array([True, False]))
