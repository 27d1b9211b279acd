"""Sizes of a table as products of a few small numbers."""

import math

from keras_compembed.utils.validation import check_positive_int


def factor_rows(size, number):
    """Balanced factors, whose product is at least `size`."""
    factors = []
    for left in range(number, 0, -1):
        factor = math.ceil(size ** (1 / left) - 1e-9)
        factors.append(factor)
        size = -(-size // factor)
    return tuple(sorted(factors, reverse=True))


def factor_columns(size, number):
    """Factors whose product is `size`, the largest as small as can be."""
    return min(_factors(size, number), key=lambda found: found[::-1])


def _factors(size, number):
    """Yields all ascending factors."""
    if number == 1:
        yield (size,)
        return
    for first in range(1, size + 1):
        if first**number > size:
            return
        if size % first == 0:
            for others in _factors(size // first, number - 1):
                if first <= others[0]:
                    yield (first, *others)


def check_factors(name, factors, size_name, size, exact):
    """Returns factors as a tuple of integers, or raises."""
    if not isinstance(factors, (tuple, list)) or len(factors) < 2:
        raise ValueError(
            f"`{name}` must be two or more positive integers. "
            f"Received: {name}={factors!r}."
        )
    factors = tuple(check_positive_int(name, factor) for factor in factors)
    product = math.prod(factors)
    if product < size or (exact and product != size):
        rule = "be" if exact else "be at least"
        raise ValueError(
            f"The product of `{name}` must {rule} `{size_name}`={size}. "
            f"Received: {name}={factors}, whose product is {product}."
        )
    return factors


def digits(ids, factors):
    """Places of ids in a grid, in the order of a C array."""
    found = []
    for factor in factors[:0:-1]:
        found.append(ids % factor)
        ids = ids // factor
    return [ids, *found[::-1]]
