"""Fits of all levels in one go against those that S3Q makes level by level."""

import numpy as np
import pytest

import s4q
from s4q.collectors import EpisodeCollector
from s4q.core.messages import Mixture
from s4q.learners import one_hot_fit
from s4q.learners.step_memory import HeldFit
from s4q.problems import FiniteMDP


def swim(horizon: int) -> FiniteMDP:
    return s4q.problems.river_swim(4, horizon)


def lake(horizon: int) -> FiniteMDP:
    return s4q.problems.from_gymnasium("FrozenLake-v1", horizon=horizon)


def cliff(horizon: int) -> FiniteMDP:
    return s4q.problems.from_gymnasium("CliffWalking-v1", horizon=horizon)


def learned(mdp: FiniteMDP, episodes: int = 40, **settings: object) -> s4q.S4Q:
    learner = s4q.S4Q(mdp, **{"pool": True, **settings})  # type: ignore[arg-type]
    s4q.run(learner, EpisodeCollector(mdp, seed=3), episodes)
    return learner


def assert_same(learner: s4q.S4Q) -> None:
    """theta, widths, bonus numbers and residuals of every level."""
    quick = HeldFit(learner.memory).all_levels(learner.constants, learner._ridge)  # type: ignore[arg-type]
    assert quick is not None
    controller, bonus = Mixture([learner.q], np.ones(1)), learner._bonus_rule(learner.memory.n_episodes)
    slow = learner._call_s3q(controller, bonus, held=HeldFit(learner.memory))  # type: ignore[arg-type]
    np.testing.assert_allclose(quick.residuals, slow.residuals, rtol=1e-6, atol=1e-12)
    for ours, theirs in zip(quick.levels, slow.q.levels, strict=True):
        for one, other in zip(ours.arrays, theirs.arrays, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(ours.numbers, theirs.numbers, rtol=1e-6)
        assert not any(one.flags.writeable for one in ours.arrays)


@pytest.mark.parametrize("problem", [swim, lake, cliff])
@pytest.mark.parametrize("horizon", [1, 2, 3, 12])
def test_all_levels_in_one_go_are_the_levels_one_by_one(problem, horizon: int) -> None:
    assert_same(learned(problem(horizon)))


@pytest.mark.parametrize("settings", [{"bonus_width": 0.7}, {"bonus_width": 0.0}, {"ridge": 0.5}, {"memory": "all"}])
def test_with_other_settings(settings: dict[str, object]) -> None:
    assert_same(learned(lake(3), **settings))


def test_they_are_what_the_learner_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same run without the quick way: the same episodes, and the same policy."""
    quick = learned(lake(8), 200)
    monkeypatch.setattr(HeldFit, "all_levels", lambda *_: None)
    slow = learned(lake(8), 200)
    assert quick.phases == slow.phases > 10
    assert quick._next_id == slow._next_id
    np.testing.assert_allclose(quick.q.theta, slow.q.theta, rtol=1e-9, atol=1e-12)


def test_where_there_is_no_quick_way() -> None:
    tight = learned(lake(6), memory_bytes=2_500, trigger=0.3)
    assert tight.memory.n_thinnings > 0  # type: ignore[union-attr]
    others = {
        "thinned": tight,
        "not pooled": learned(lake(6), pool=False),
        "a ridge per level": learned(lake(3), ridge=[0.1, 0.2, 0.3]),
    }
    for name, learner in others.items():
        found = HeldFit(learner.memory).all_levels(learner.constants, learner._ridge)  # type: ignore[arg-type]
        assert found is None, name


@pytest.mark.parametrize("name", ["variance_left", "unseen_width", "regression_targets"])
def test_the_comparison_notices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner = learned(lake(3))
    right = getattr(one_hot_fit, name)
    monkeypatch.setattr(one_hot_fit, name, lambda *a, **k: 1.01 * right(*a, **k))
    with pytest.raises(AssertionError):
        assert_same(learner)
