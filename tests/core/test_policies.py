"""Policies that stand for themselves."""

import numpy as np

import s4q


def test_policies_print_in_one_short_line() -> None:
    assert repr(s4q.UniformPolicy(4)) == "UniformPolicy(n_actions=4)"
    many = s4q.Mixture([s4q.UniformPolicy(4)] * 100, np.full(100, 0.01))
    assert repr(many) == "Mixture(100 policies, weights 0.01, 0.01, 0.01, 0.01, ...)"
