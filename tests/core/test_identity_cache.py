"""IdentityCache: once per object, and no object is kept alive for it."""

import gc

import numpy as np

from s4q.core.identity_cache import IdentityCache
from s4q.core.linear_q import LinearQ


def policy(number: float) -> LinearQ:
    return LinearQ.from_arrays(np.full((1, 1, 1), number))


def test_objects_may_die_and_their_names_be_given_away() -> None:
    cache: IdentityCache[LinearQ, float] = IdentityCache(lambda q: float(q.theta[0, 0, 0]), size=100)
    for number in range(50):  # each dies at once, and the next one often gets its id
        assert cache(policy(number)) == number
    gc.collect()
    assert len(cache) == 0


def test_the_oldest_goes_first_and_keep_only_forgets_the_others() -> None:
    calls: list[float] = []
    cache: IdentityCache[LinearQ, None] = IdentityCache(lambda q: calls.append(float(q.theta[0, 0, 0])), size=2)
    a, b, c = policy(0), policy(1), policy(2)
    for q in (a, b, a, c, a):  # b is the oldest when c comes
        cache(q)
    assert calls == [0, 1, 2]
    cache.keep_only([c])
    cache(c)
    cache(a)
    assert calls == [0, 1, 2, 0]
