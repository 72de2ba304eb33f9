"""Effective dimension at S = 200, A = 4, d = 20, H = 10: CPU seconds for brackets of width 0.01 at all levels."""

import time

import numpy as np
from rich.table import Table

import s4q
from s4q.problems import FiniteMDP
from s4q.theory import effective_dim_cap, effective_dims


def sparse_problem(n_states: int = 200, n_actions: int = 4, dim: int = 20, horizon: int = 10) -> FiniteMDP:
    """Each pair leads to three states and the start is one state, so policies differ much in what they see."""
    rng = np.random.default_rng(np.random.SeedSequence(0))
    transitions = np.zeros((horizon, n_states, n_actions, n_states))
    reached = rng.random(transitions.shape).argpartition(3, axis=-1)[..., :3]
    np.put_along_axis(transitions, reached, rng.dirichlet(np.ones(3), size=transitions.shape[:3]), axis=-1)
    features = rng.normal(size=(horizon, n_states, n_actions, dim))
    features /= np.linalg.norm(features, axis=-1, keepdims=True)
    return FiniteMDP(transitions, rng.random(features.shape[:3]), np.eye(n_states)[0], features)


def table() -> Table:
    result = Table(
        title="Effective dimension, S = 200, A = 4, d = 20, H = 10, all levels; target <= 30 CPU s, width <= 0.01"
    )
    for header in ("problem", "n / ridge", "least d~", "largest d~", "cap", "widest bracket", "steps", "CPU s"):
        result.add_column(header, justify="right")
    for name, mdp in (("low_rank", s4q.problems.low_rank(200, 4, 20, 10)), ("sparse", sparse_problem())):
        for ratio in (1e2, 1e4, 1e6):
            start = time.process_time()
            brackets = effective_dims(mdp, ratio)
            seconds = time.process_time() - start
            lowers = [bracket.lower for bracket in brackets]
            result.add_row(
                name,
                f"{ratio:.0e}",
                f"{min(lowers):.2f}",
                f"{max(lowers):.2f}",
                f"{effective_dim_cap(20, ratio):.2f}",
                f"{max(bracket.width for bracket in brackets):.4f}",
                f"{sum(bracket.steps for bracket in brackets)}",
                f"{seconds:.2f}",
            )
    return result
