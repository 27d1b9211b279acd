"""Ways to train very many classes: `CANESoftmax` in several settings, others.

A line of `METHODS` is a method; `LOSSES` has the losses.
"""

import dataclasses

import numpy as np

import keras_compembed as kc
from benchmarks import baselines
from benchmarks.classes.tasks import IGNORED


@dataclasses.dataclass(frozen=True)
class Method:
    """A way to train classes, but for the number of them in a step."""

    loss: str = "cane"
    selector: str = "frequent"
    candidates: float = 0.25
    power: float = 0.75
    samples: int | None = None
    groups: int | None = None

    @property
    def is_baseline(self):
        return self.loss != "cane"


METHODS = {
    "sampled softmax": Method("sampled"),
    "CANE 1/4 frequent": Method(),
    # It samples nothing.
    "full softmax": Method("full", samples=0),
    "CANE by default": Method(selector="auto", samples=1000),
    # 1,000 classes that the whole batch shares.
    "CANE in one group": Method(selector="auto", samples=1000, groups=1),
    # As in section 5 of the paper.
    "CANE in subsets": Method(selector="subsets", samples=40),
    "CANE 20 frequent": Method(candidates=20, samples=1000),
    "NCE": Method("nce", power=1.0),
    "BlackOut": Method("blackout", power=0.4),
    # The labels of the batch are what it samples.
    "in-batch softmax": Method("batch", samples=0),
    "gBCE": Method("gbce", power=0.0, samples=1000),
    "SCE": Method("sce", samples=200),
    "RECE": Method("rece", samples=0),
    "sampled softmax by counts": Method("sampled", power=1.0),
    "sampled softmax evenly": Method("sampled", power=0.0),
}


def by_layer(loss):
    """For `LOSSES`: a loss that takes its numbers from the layer."""
    return lambda samples, examples, **kwargs: loss(**kwargs)


def sce(samples, examples, **kwargs):
    """As many buckets, of as many examples, as its paper has."""
    number = round(2 * examples**0.5)
    return baselines.SCELoss(number, number, samples, **kwargs)


def rece(samples, examples, **kwargs):
    return baselines.RECELoss(round(examples**0.5), **kwargs)


# Of the classes that are sampled, and the examples of a step.
LOSSES = {
    "cane": by_layer(kc.CANELoss),
    "full": by_layer(baselines.FullSoftmaxLoss),
    "sampled": by_layer(kc.SampledSoftmaxLoss),
    "nce": by_layer(kc.NCELoss),
    "blackout": by_layer(baselines.BlackOutLoss),
    "batch": by_layer(kc.InBatchSoftmaxLoss),
    "gbce": by_layer(baselines.GBCELoss),
    "sce": sce,
    "rece": rece,
}


def make_head(method, samples, task, seed):
    """The layer of classes."""
    counts = task.counts
    # Of tasks that read with the vectors of classes.
    class_embedding = getattr(task, "class_embedding", None)
    if method.selector == "auto":
        return kc.CANESoftmax(
            len(counts),
            sampling=kc.Sampling(groups=method.groups),
            class_counts=np.maximum(counts, 1),
            class_embedding=class_embedding,
            seed=seed,
        )
    candidates, noises = sizes(method, samples)
    if method.selector == "subsets":
        return kc.CANESoftmax(
            len(counts),
            sampling=kc.Sampling(
                kc.classes.FrequencySubsets(counts, num_subsets=6, seed=seed),
                num_candidates=samples,
                noise="uniform",
                num_noises=1,
                shared=False,
                estimate="separate",
            ),
            class_counts=counts,
            seed=seed,
        )
    return kc.CANESoftmax(
        len(counts),
        sampling=kc.Sampling(
            kc.classes.FrequentClasses(counts),
            num_candidates=candidates,
            # Those that do not occur in training may be labels all the same.
            noise=kc.classes.UnigramNoise(np.maximum(counts, 1), method.power),
            num_noises=noises,
            shared=True,
        ),
        class_counts=counts,
        class_embedding=class_embedding,
        seed=seed,
    )


def sizes(method, samples):
    """Numbers of candidates and noises of the layer."""
    if method.is_baseline:
        # It samples as many as both together.
        return 1, max(1, samples - 1)
    candidates = method.candidates
    if candidates < 1:
        candidates = round(candidates * samples)
    return int(candidates), samples - int(candidates)


def make_loss(method, samples, task):
    examples = task.settings.batch_size * getattr(task.settings, "steps", 1)
    return LOSSES[method.loss](samples, examples, ignore_class=IGNORED)
