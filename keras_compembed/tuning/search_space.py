"""Which ways to store tables a tuner may propose."""

import numbers

from keras_compembed.methods.method import check_method
from keras_compembed.utils.validation import check_positive_number

METHOD = "method"
LEARNING_RATE = "learning_rate"


class SearchSpace:
    """Hyperparameters of which each choice is feasible."""

    def __init__(self, families, bytes_of, max_bytes, learning_rates):
        self.families, self.file_bytes = {}, {}
        sizes = {}
        for family, methods in families.items():
            found = {}
            for method in methods:
                size = bytes_of(method)
                if size is None:
                    continue
                sizes[method.name] = size
                if max_bytes is None or size <= max_bytes:
                    found[method.name] = method
            if found:
                names = sorted(found, key=lambda name: (sizes[name], name))
                self.families[family] = {name: found[name] for name in names}
                self.file_bytes |= {name: sizes[name] for name in names}
        if not self.families:
            raise ValueError(_nothing(sizes, max_bytes))
        self.learning_rates = learning_rates

    def declare(self, hp):
        """Adds the hyperparameters to a `keras_tuner.HyperParameters`."""
        hp.Choice(METHOD, list(self.families))
        for family, methods in self.families.items():
            with hp.conditional_scope(METHOD, [family]):
                hp.Choice(family, list(methods))
        if self.learning_rates:
            hp.Choice(LEARNING_RATE, self.learning_rates)

    def is_declared(self, hp):
        """Whether hyperparameters have a value for each that is active."""
        return (
            METHOD in hp
            and hp.get(METHOD) in hp
            and (not self.learning_rates or LEARNING_RATE in hp)
        )

    def method(self, hp):
        """The `Method` of a trial."""
        name = method_name(hp.values)
        method = self.families.get(hp.values[METHOD], {}).get(name)
        if method is None:
            raise ValueError(
                "Hyperparameters must name a method that fits. Received: "
                f"{name!r}, in the family {hp.values[METHOD]!r}; those are "
                f"{sorted(self.file_bytes)}. A project that was begun with "
                "other arguments needs those, or `overwrite=True`."
            )
        return method


def method_name(values):
    """The name of the method in the values of a trial."""
    return values[values[METHOD]]


def check_families(families):
    """Returns families of methods, or raises if they are none."""
    if not isinstance(families, dict) or not families:
        raise ValueError(
            "`methods` must be a dict from names of families to lists of "
            f"`keras_compembed.methods.Method`. Received: methods={families!r}."
        )
    seen = set()
    for family, methods in families.items():
        if not isinstance(family, str) or family in (METHOD, LEARNING_RATE):
            raise ValueError(
                "`methods` must name families by strings other than "
                f"{METHOD!r} and {LEARNING_RATE!r}. Received: {family!r}."
            )
        for method in methods:
            name = check_method("methods", method).name
            if name in seen:
                raise ValueError(
                    "`methods` must hold methods of different names. "
                    f"Received: {name!r} twice."
                )
            seen.add(name)
    return families


def check_rates(rates):
    """Returns rates as a list of numbers, or None, or raises."""
    if rates is None:
        return None
    if isinstance(rates, str | numbers.Real) or not len(rates):
        raise ValueError(
            "`learning_rates` must be a list of positive numbers. "
            f"Received: learning_rates={rates!r}."
        )
    return [check_positive_number("learning_rates", rate) for rate in rates]


def _nothing(sizes, max_bytes):
    if not sizes:
        return (
            "`methods` must hold a way to store the tables of the model that "
            "is smaller than they are. Received: methods of which none is."
        )
    name = min(sizes, key=sizes.get)
    return (
        "`max_bytes` must be at least what the smallest of `methods` takes, "
        f"{sizes[name]:,} bytes with {name!r} (the rest of the model in it). "
        f"Received: max_bytes={max_bytes}."
    )
