"""Baird's star: its tables by hand, and who diverges on it."""

import numpy as np
import pytest

import s4q
from s4q.baselines import QLearning, QRex
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.problems import baird


def test_features_are_those_of_the_literature_divided_by_their_norm() -> None:
    star = baird().features.vectors[0]
    solid = np.array([[2 * (j == s) + (j == 7) for j in range(8)] for s in range(6)] + [[0] * 6 + [1, 2]])
    np.testing.assert_allclose(star[:7, 6, :8], solid / np.sqrt(5))
    np.testing.assert_allclose(np.linalg.norm(star[:7], axis=-1), 1.0)
    np.testing.assert_array_equal(star[:7, 0, 8:], np.eye(7))
    assert (star[:7, :6, :8] == 0).all()
    assert (star[7] == 0).all()


def test_a_uniform_policy_visits_every_state_alike() -> None:
    mdp = baird(horizon=4, discount=0.9)
    visits = mdp.occupancies(s4q.UniformPolicy(7)).sum(axis=-1)
    for h in range(4):
        np.testing.assert_allclose(visits[h, :7], 0.9**h / 7)


def test_the_value_is_the_discounted_sum_and_linear_in_the_features() -> None:
    mdp = baird(horizon=5, discount=0.9, reward=0.3)
    for h in range(5):
        value = 0.3 * (1 - 0.9 ** (5 - h)) / 0.1
        np.testing.assert_allclose(mdp.q_star[h, :7], value)
        theta = np.append(np.full(8, value * np.sqrt(5) / 3), np.full(7, value))
        np.testing.assert_allclose(mdp.features.vectors[h, :7] @ theta, value)


def test_the_mean_update_of_linear_q_learning_has_an_unstable_direction() -> None:
    """d theta / dt = E phi (discount phi(lower) - phi) theta, where action 6 is best: an eigenvalue is positive."""
    star = baird().features.vectors[0, :7, 6, :8]
    mean = sum(np.outer(phi, 0.99 * star[6] - phi) for phi in star) / 7
    assert np.linalg.eigvals(mean).real.max() > 0.01
    alone = sum(np.outer(phi, -phi) for phi in star) / 7  # with a target that stands still
    assert np.linalg.eigvals(alone).real.max() < 1e-12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_target_that_stands_still_slows_the_divergence_and_one_parameter_a_level_ends_it(seed: int) -> None:
    mdp, sizes = baird(), dict[str, list[float]]()
    for name, learner in (
        ("live", QLearning(mdp, 1.0, shared=True)),
        ("still", QRex(mdp, 1.0, shared=True, target_every=50)),
        ("a level", QLearning(mdp, 1.0)),
    ):
        collector, sizes[name] = EpisodeCollector(mdp, seed=seed), []
        for episodes in (500,) if name == "live" else (500, 4500):
            s4q.run(learner, collector, episodes)
            sizes[name].append(float(np.abs(learner.theta).max()))
    assert sizes["live"][0] > 50 * sizes["still"][0]
    assert sizes["still"][1] > 5 * mdp.v_star  # five times what it is for
    assert sizes["a level"][1] < 2 * mdp.v_star


@pytest.mark.slow
def test_linear_q_learning_diverges_and_s3q_does_not() -> None:
    mdp = baird()
    learner, collector = QLearning(mdp, epsilon=1.0, step_size=0.1, shared=True), EpisodeCollector(mdp, seed=0)
    sizes = []
    for _ in range(3):
        s4q.run(learner, collector, 100)
        sizes.append(float(np.abs(learner.theta).max()))
    assert sizes[2] > 2 * sizes[1] > 4 * sizes[0]
    assert sizes[2] > 20 * mdp.v_star
    errors, s3q = [], s4q.S3Q(mdp, s4q.UniformPolicy(7))
    for episodes in (10**4, 10**6, 10**8):
        q = s4q.run(s3q, CountCollector(mdp, seed=0), episodes).q
        errors.append(float(np.abs(mdp.q_values(q) - mdp.q_star)[mdp.reachable].max()))
    assert errors[0] > 3 * errors[1] > 9 * errors[2]
    assert errors[2] < 0.1


def test_divergence_ends_in_a_clear_error() -> None:
    mdp = baird()
    learner = QLearning(mdp, epsilon=1.0, step_size=1.0, shared=True)
    learner.theta += 1e101
    with pytest.raises(ValueError, match=r"QLearning has diverged: a parameter is .* choose smaller steps"):
        s4q.run(learner, EpisodeCollector(mdp, seed=0), 10)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"discount": 1.0}, "discount .*got 1.0"),
        ({"reward": 2.0}, "reward .*got 2.0"),
        ({"horizon": 0}, "horizon .*got 0"),
    ],
)
def test_bad_input(arguments: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        baird(**arguments)  # type: ignore[arg-type]
