"""Learners by name: each plays, is what its description says, and counts its bytes."""

import gc
import inspect
import math
import re
from dataclasses import replace
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import pytest
from comparisons import SMALL

import s4q
from s4q.baselines import LEARNERS
from s4q.baselines.random_numbers import learner_rng
from s4q.baselines.tabular import NotOneHot
from s4q.collectors.sharding import generator
from s4q.core.messages import Shard


@pytest.mark.parametrize("name", LEARNERS)
def test_every_named_learner_plays(name: str) -> None:
    [row] = s4q.compare([SMALL], [name], seeds=1, episodes=5, processes=1)
    assert row["error"] == ""
    assert row["regret"] > 0
    assert row["nbytes"] > 0
    assert LEARNERS[name].about
    if LEARNERS[name].kind == "tuned" and name != "ucbvi_tuned":
        assert name.removesuffix("_tuned") in LEARNERS


def regret(name: str, problem: str, **more: Any) -> float:
    [row] = s4q.compare([problem], [name], seeds=1, episodes=300, processes=1, **more)
    return float(row["regret"])


def test_named_learners_are_what_their_names_say() -> None:
    """Each ablation does what it is called, and no tuned learner is another one under a second name."""
    sketch = LEARNERS["sketch"].build(s4q.problems.low_rank(), 0, 300, {})
    assert isinstance(sketch, s4q.S4Q)
    s4q.run(sketch, s4q.collectors.EpisodeCollector(s4q.problems.low_rank(), seed=0), 300)
    assert sketch.memory.n_thinnings > 0  # type: ignore[union-attr]
    assert regret("experience_replay", "low_rank") == regret("s4q", "low_rank") != regret("sketch", "low_rank")
    assert regret("bonus_off", "deep_sea:size=6") > 290 > 30 > regret("s4q", "deep_sea:size=6")
    for problem in ("chain:n_states=4,horizon=4", "low_rank"):
        tuned = [name for name in LEARNERS if LEARNERS[name].kind == "tuned"]
        dense = [name for name in tuned if name not in ("ucb_q_tuned", "ucbvi_tuned")]
        regrets = [regret(name, problem) for name in (dense if problem == "low_rank" else tuned)]
        assert len(set(regrets)) == len(regrets), problem


NUMBER = re.compile(r"\b(beta|sigma|epsilon|step|c|c_replay) (\d[\d.]*\d|\d)")


@pytest.mark.parametrize("name", LEARNERS)
def test_what_is_said_of_a_named_learner_is_set(name: str) -> None:
    """Every number and switch of its description, against what its class is called with."""
    named, spec = LEARNERS[name], s4q.problems.chain().spec
    usual = {one.name: one.default for one in inspect.signature(named.make).parameters.values()}
    used = {**usual, **named.settings, **{key: rule(spec, 100) for key, rule in named.of_run.items()}}
    for what, number in NUMBER.findall(named.about):
        assert used[{"step": "step_size"}.get(what, what)] == float(number), what
    if "SARSA" in named.about:
        assert used["trace"] == float(re.search(r"SARSA\(([\d.]+)\)", named.about)[1])  # type: ignore[index]
    assert bool(used.get("optimistic")) == ("optimistic" in named.about)
    assert (used.get("switch") == "determinant") == ("rare switching" in named.about)
    assert ("pool" in named.of_run) == ("levels pooled" in named.about)
    assert (used.get("preset") == "realisable") == ("realisable" in named.about)
    assert (used.get("keep", 1.0) == 0.5) == ("halved" in named.about)
    assert (used.get("epochs") == "doubling") == ("doubling" in named.about)
    assert (used.get("memory") == "policies" or used.get("preset") == "realisable") == (
        "policy replay" in named.about or name == "s4q_doubling"
    )
    if "theorem" in named.about:
        assert used.get("beta", used.get("c")) == pytest.approx(
            {
                "lsvi_ucb_paper": 20 * math.log(2 * 20 * 1000 / 0.05) ** 0.5,
                "ucb_q_paper": math.log(20 * 1000 / 0.05) ** 0.5,
            }[name]
        )


def held_arrays(learner: Any) -> int:
    """Bytes of all arrays that hang on a learner, remembered factors included; the problem itself left out."""
    seen, buffers, waiting = {id(learner.spec)}, dict[int, int](), [learner]
    leaves = (type, ModuleType, FunctionType, MethodType, CodeType)
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, leaves):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            while isinstance(one.base, np.ndarray):
                one = one.base
            buffers[id(one)] = one.nbytes
        waiting.extend(gc.get_referents(one))
    return sum(buffers.values())


@pytest.mark.parametrize("name", LEARNERS)
def test_every_learner_counts_all_arrays_that_it_holds(name: str) -> None:
    for mdp in (s4q.problems.chain(5, 5), s4q.problems.low_rank()):
        try:
            learner = LEARNERS[name].build(mdp, 0, 150, {})
        except NotOneHot:
            continue
        s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=0), 150)
        # S4Q counts an array twice that two of its parts share. A memory of sums does not count remembered factors.
        most = 1.6 if LEARNERS[name].make is s4q.S4Q else 1.06
        least = 0.8 if name == "no_replay_discounted" else 0.97
        assert least * held_arrays(learner) <= learner.nbytes <= most * held_arrays(learner)


def test_a_learner_and_a_collector_with_one_seed_share_no_dice() -> None:
    """RLSVI drew its noise from the very numbers that a CountCollector then made its episodes of."""
    mdp = s4q.problems.low_rank()
    for n in range(4):
        asked = replace(s4q.S3Q(mdp, s4q.UniformPolicy(4)).ask(2), id=n)
        for index in range(3):
            theirs = generator(7, asked, Shard(index, 1)).random(4)
            for place in ((n,), (n, index), (n, 0), (index, n)):
                assert not np.any(learner_rng(7, *place).random(4) == theirs)
    assert np.all(learner_rng(7, 1, 2).random(4) == learner_rng(7, 1, 2).random(4))
