"""Checkpoints: the same bits after every shard, and in the runs that go on from them."""

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_problems import blocked_mdp, cliff, random_mdp
from states import FailsAfter, Interrupted, bits, differences, run_bits

import s4q
from s4q.collectors import CountCollector, EpisodeCollector
from s4q.core.codec import pack, unpack
from s4q.core.messages import Explore, Learner
from s4q.core.transitions import Transitions
from s4q.learners.s4q import S4Q
from s4q.learners.step_memory import StepMemory
from s4q.running.checkpoint import Autosave, Checkpoint, load, save
from s4q.running.progress import Progress

DENSE = random_mdp(4, 2, 3, 3, seed=5, terminal=True, low=-1.0)
BLOCKS = blocked_mdp()
RIVER = s4q.problems.river_swim(4, 5)
CLIFF = cliff(6)


def some_q(mdp: s4q.FiniteMDP, seed: int = 0) -> s4q.LinearQ:
    return s4q.LinearQ.from_arrays(np.random.default_rng(seed).random(mdp.spec.theta_shape))


def filled(mdp: s4q.FiniteMDP) -> StepMemory:
    memory = StepMemory(mdp.spec, pool=False, max_bytes=None)
    white = np.broadcast_to(np.eye(mdp.spec.block_dim), (mdp.horizon, *mdp.spec.gram_shape))
    policy = s4q.UniformPolicy(mdp.n_actions)
    asked = Explore(0, policy, white, (np.inf, 0.0), 20, keep=20, progress=np.zeros(mdp.horizon))
    memory.add(EpisodeCollector(mdp, seed=3).collect(asked).kept, 20)
    return memory


def fixed_bonus(mdp: s4q.FiniteMDP) -> s4q.FixedBonus:
    white = np.broadcast_to(np.eye(mdp.spec.block_dim) / 2, (mdp.horizon, *mdp.spec.gram_shape))
    return s4q.FixedBonus(white, np.full(mdp.horizon, 0.3))


def mixed(mdp: s4q.FiniteMDP) -> s4q.Mixture:
    q = some_q(mdp)
    return s4q.Mixture([q, s4q.UniformPolicy(mdp.n_actions), q], [0.25, 0.5, 0.25])


Case = tuple[s4q.FiniteMDP, Callable[[s4q.FiniteMDP], Learner], int]
CASES: dict[str, Case] = {
    "practical, thinned": (DENSE, lambda mdp: S4Q(mdp, memory_bytes=1500), 60),
    "practical, pooled, thinned": (RIVER, lambda mdp: S4Q(mdp, memory_bytes=500), 40),
    "practical, blocks, thinned": (BLOCKS, lambda mdp: S4Q(mdp, memory_bytes=2200), 60),
    "practical, within the budget": (RIVER, lambda mdp: S4Q(mdp), 15),
    "practical, all steps": (DENSE, lambda mdp: S4Q(mdp, memory="all"), 15),
    "practical, policies": (CLIFF, lambda mdp: S4Q(mdp, memory="policies"), 40),
    "realisable": (BLOCKS, lambda mdp: S4Q(mdp, preset="realisable"), 120),
    "realisable, pooled": (RIVER, lambda mdp: S4Q(mdp, preset="realisable", ridge=0.5), 120),
    "realisable, thinned": (
        RIVER,
        lambda mdp: S4Q(mdp, preset="realisable", memory="sketch", memory_bytes=1500, pool=False),
        120,
    ),
    "tight": (DENSE, lambda mdp: S4Q(mdp, preset="tight", ridge=[1.0, 2.0, 3.0], trigger=(2.0, 0.1)), 150),
    "tight, all steps": (DENSE, lambda mdp: S4Q(mdp, preset="tight", ridge=1.0, trigger=2.0, memory="all"), 50),
    "paper": (BLOCKS, lambda mdp: S4Q(mdp, preset="paper", ridge=1.0, bonus_width=0.1, trigger=3.0), 250),
    "paper, long": (BLOCKS, lambda mdp: S4Q(mdp, preset="paper", max_episodes=10**6), 300),
    "S3Q": (DENSE, lambda mdp: s4q.S3Q(mdp, s4q.UniformPolicy(2)), 100),
    "S3Q, bonus": (BLOCKS, lambda mdp: s4q.S3Q(mdp, mixed(mdp), bonus=fixed_bonus(mdp), radius=2.0), 100),
    "S3Q, one epoch": (DENSE, lambda mdp: s4q.S3Q(mdp, some_q(mdp), epoch_size=50, keep_grams=True), 200),
    "S3Q, balls": (BLOCKS, lambda mdp: s4q.S3Q(mdp, mixed(mdp), radius=np.full((3, 3), 0.7), pool=True), 100),
    "S3Q, held": (DENSE, lambda mdp: s4q.S3Q(mdp, some_q(mdp), held=filled(mdp).source()), 60),
}


def again(learner: Any) -> Any:
    """The learner, through its state and back."""
    packed = pack(learner)
    return unpack(type(packed)(json.loads(json.dumps(packed.objects)), _copies(packed.arrays)), type(learner))


def _copies(arrays: dict[str, Any]) -> dict[str, Any]:
    return {name: array.copy() for name, array in arrays.items()}


@pytest.mark.parametrize("name", CASES)
def test_a_learner_made_again_after_every_shard_has_the_same_bits(name: str) -> None:
    mdp, make, episodes = CASES[name]
    collector = EpisodeCollector(mdp, seed=1)
    whole, hopping = make(mdp), make(mdp)
    left, kinds = episodes, set()
    while left and (request := whole.ask(left)) is not None:
        hopping = again(hopping)
        asked = hopping.ask(left)
        assert (asked.id, asked.done, asked.n_episodes) == (request.id, request.done, request.n_episodes)
        for learner, one in ((whole, request), (hopping, asked)):
            shard = next(iter(collector.shards(one)))
            answer = collector.play(one, shard, one.start() if isinstance(one, Explore) else None)
            learner.tell(one, answer)
        assert bits(whole) == bits(hopping)
        assert whole.nbytes == hopping.nbytes
        assert not differences(whole, hopping)
        left -= answer.n_episodes
        kinds.add(type(request))
    assert whole.phases > 0 or name == "paper, long"
    if isinstance(whole, S4Q):
        assert whole.diagnose() == hopping.diagnose()
        assert whole.explain() == hopping.explain()
        assert len(kinds) == (1 if isinstance(whole.memory, StepMemory) or name == "paper, long" else 2)
        if "thinned" in name:
            assert isinstance(whole.memory, StepMemory)
            assert whole.memory.n_thinnings > 1


def test_what_is_shared_stays_shared_and_is_stored_once() -> None:
    learner = S4Q(RIVER, preset="realisable")
    s4q.run(learner, CountCollector(RIVER), 10_000, stop=lambda run: run.phases > 6 and learner.open_phase is None)
    copy = again(learner)
    assert isinstance(copy, S4Q)
    policies = [entry.policy for entry in copy.memory.entries]
    request = copy.ask(10)
    assert list(request.mixture.policies) == policies  # type: ignore[union-attr]  # by identity: eq=False
    assert copy.last_phase is not None
    assert copy.last_phase.q is copy.q is policies[-1]
    kinds = [one["kind"] for one in pack(learner).objects]
    assert kinds.count("Spec") == kinds.count("Constants") == kinds.count("PolicyReplayMemory") == 1
    assert kinds.count("LinearQ") == len({id(policy) for policy in policies}) + 1  # and what S3Q begins with


def test_an_array_that_levels_share_is_stored_once_and_shared_again() -> None:
    learner = S4Q(RIVER)  # pooled steps: one whitener serves all levels
    s4q.run(learner, CountCollector(RIVER), 60)
    first = learner.q.levels[0]
    assert all(level.whitener is first.whitener for level in learner.q.levels)
    copy = again(learner)
    assert all(level.whitener is copy.q.levels[0].whitener for level in copy.q.levels)
    assert not any(array.flags.writeable for level in copy.q.levels for array in level.arrays)
    packed = pack(learner.q)
    assert [name for name in packed.arrays if name.endswith("whitener")] == ["QLevel.1.whitener"]
    assert copy._loop.ridge is copy._ridge


def test_a_forgotten_attribute_would_be_noticed() -> None:
    learner = S4Q(RIVER)
    other = again(learner)
    assert not differences(learner, other)
    other._loop.n_episodes += 1
    assert differences(learner, other) == ["S4Q._loop.n_episodes"]
    other._loop.n_episodes -= 1
    other.memory = again(other.memory)
    other.novelty = 3
    assert differences(learner, other) == ["S4Q: attributes"]


def test_only_a_class_that_annotates_its_fields_can_be_saved() -> None:
    with pytest.raises(TypeError, match="Own annotates no fields"):
        pack(Own())
    with pytest.raises(TypeError, match="cannot be interpreted as an integer"):
        pack(Progress(budget=2.5))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="weights has dtype int32; only int64 can be saved there"):
        pack(Transitions(*(np.zeros((0,) * n, kind) for n, kind in STEPS), np.zeros(0, np.int32)))


STEPS = [
    (3, np.float64),
    (2, np.int64),
    *[(1, np.int64)] * 3,
    (1, np.float64),
    (1, np.int64),
    (1, np.bool_),
]


def test_infinities_and_every_last_bit_survive() -> None:
    clip = np.array([[-np.inf, np.inf], [-0.0, np.nextafter(1.0, 2.0)]])
    q = s4q.LinearQ.from_arrays(np.array([[[5e-324]], [[np.pi]]]), clip=clip)
    assert bits(q) == bits(again(q))
    endless = Progress(budget=1, regret=float("inf"))
    assert again(endless).regret == float("inf")


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_run_equals_one_that_never_stopped(name: str, tmp_path: Path) -> None:
    mdp, make, episodes = CASES[name]
    whole = s4q.run(make(mdp), CountCollector(mdp, seed=4), episodes)
    pause = iter((1, 3, 8, 10**9))
    path, source, played = tmp_path / "run.s4q", make(mdp), 0
    for shards in pause:
        seen: list[int] = []
        rule = Pauses(shards, seen)
        run = s4q.run(source, CountCollector(mdp, seed=4), episodes, stop=rule, checkpoint=Autosave(path, 1e-9))
        assert run.episodes >= played
        played, source = run.episodes, load(path)
        assert source.progress.episodes == played
    assert run_bits(whole) == run_bits(run)


class Pauses:
    """Stops after a number of shards."""

    def __init__(self, shards: int, seen: list[int]) -> None:
        self._shards, self._seen = shards, seen

    def __call__(self, run: s4q.Run) -> bool:
        self._seen.append(run.episodes)
        return len(self._seen) >= self._shards


@given(
    pieces=st.lists(st.integers(1, 20), max_size=5), seed=st.integers(0, 3), held=st.sampled_from([None, 900, 10**6])
)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_number_of_pieces(pieces: list[int], seed: int, held: int | None, tmp_path: Path) -> None:
    path, episodes = tmp_path / f"{len(pieces)}.s4q", 150
    path.unlink(missing_ok=True)  # of the example before
    options: dict[str, Any] = {} if held is None else {"memory": "sketch", "memory_bytes": held}
    whole = s4q.run(S4Q(RIVER, "realisable", **options), EpisodeCollector(RIVER, seed=seed), episodes)
    source: Any = S4Q(RIVER, "realisable", **options)
    for shards in [*pieces, 10**9]:
        run = s4q.run(source, EpisodeCollector(RIVER, seed=seed), episodes, stop=Pauses(shards, []), checkpoint=path)
        source = load(path)
    assert run_bits(whole) == run_bits(run)
    assert bits(source.learner) != bits(S4Q(RIVER, "realisable", **options))


def test_the_record_goes_on_too(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    whole = s4q.run(S4Q(RIVER, "realisable"), CountCollector(RIVER), 100, record=True)
    s4q.run(S4Q(RIVER, "realisable"), CountCollector(RIVER), 100, record=True, stop=Pauses(9, []), checkpoint=path)
    source = load(path)
    resumed = s4q.run(source, CountCollector(RIVER), 100, record=True)
    assert whole.record is not None
    assert resumed.record is not None
    assert len(whole.record.phases) == len(resumed.record.phases) == whole.phases
    for one, other in zip(whole.record.phases, resumed.record.phases, strict=True):
        assert bits(one) == bits(other)
    s4q.run(load(path), CountCollector(RIVER), 100, checkpoint=path)  # goes on without
    with pytest.raises(ValueError, match="record=True needs the record from the first phase on"):
        s4q.run(load(path), CountCollector(RIVER), 200, record=True)


def test_written_every_phase_every_few_minutes_and_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    kept: list[tuple[int, int]] = []

    def look(run: s4q.Run) -> bool:
        written = load(path).progress.episodes if path.exists() else 0
        kept.append((run.episodes, written))
        return False

    run = s4q.run(S4Q(BLOCKS, preset="realisable"), CountCollector(BLOCKS), 60, stop=look, checkpoint=path)
    ends = [point.episodes for point in run.curve[:-1]]
    assert [written for episodes, written in kept if episodes in ends] == ends
    assert any(written < episodes for episodes, written in kept)  # not after every shard
    assert load(path).progress.episodes == 60
    kept.clear()
    path.unlink()
    s4q.run(
        S4Q(BLOCKS, preset="realisable"), CountCollector(BLOCKS), 60, stop=look, checkpoint=Autosave(path, minutes=1e-9)
    )
    assert all(written == episodes for episodes, written in kept)


def test_the_previous_file_is_kept_and_nothing_else_is_left(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    for n in range(3):
        save(path, S4Q(DENSE), seed=n, extra={"n": n})
    assert (load(path).seed, load(path).extra) == (2, {"n": 2})
    assert load(tmp_path / "run.s4q.previous").seed == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["run.s4q", "run.s4q.previous"]


def test_a_broken_file_never_takes_the_place_of_the_previous_good_one(tmp_path: Path) -> None:
    path, previous = tmp_path / "run.s4q", tmp_path / "run.s4q.previous"
    for n in range(2):
        save(path, S4Q(DENSE), seed=n)
    for broken in (path.read_bytes()[:-1], b"", b"x"):
        path.write_bytes(broken)
        save(path, S4Q(DENSE), seed=2)
        assert (load(path).seed, load(previous).seed) == (2, 0)


def test_what_killed_writers_left_is_swept_away_later(tmp_path: Path) -> None:
    old, new = tmp_path / "run.s4q.1-aa.partial", tmp_path / "run.s4q.2-bb.partial"
    for file in (old, new):
        file.write_bytes(b"torn")
    hour_ago = time.time() - 3700
    os.utime(old, (hour_ago, hour_ago))
    save(tmp_path / "run.s4q", S4Q(DENSE), seed=0)
    assert not old.exists()
    assert new.exists()


def test_the_same_state_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        learner = S4Q(RIVER)
        s4q.run(learner, CountCollector(RIVER), 60)
        save(tmp_path / name, learner, seed=0)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    save(tmp_path / "c", load(tmp_path / "a").learner, seed=0)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "c").read_bytes()
    held = pack(load(tmp_path / "a")).arrays.values()
    with np.load(tmp_path / "a", allow_pickle=False) as members:  # any reader of .npz files can look inside
        for name in ("float64", "int64", "bool"):
            numbers = [array.ravel() for array in held if array.dtype.name == name]
            np.testing.assert_array_equal(members[name], np.concatenate([np.zeros(0, name), *numbers]))


def test_a_failing_collector_leaves_the_state_before_the_failure(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    whole = s4q.run(S4Q(DENSE), EpisodeCollector(DENSE, seed=2), 50)
    with pytest.raises(Interrupted):
        s4q.run(S4Q(DENSE), FailsAfter(EpisodeCollector(DENSE, seed=2), 7), 50, checkpoint=path)
    resumed = s4q.run(load(path), EpisodeCollector(DENSE, seed=2), 50, checkpoint=path)
    assert run_bits(whole) == run_bits(resumed)


def test_a_finished_run_can_be_given_more_episodes(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    s4q.run(S4Q(DENSE), CountCollector(DENSE), 60, checkpoint=path)
    assert s4q.run(load(path), CountCollector(DENSE), 60).episodes == 60
    more = s4q.run(load(path), CountCollector(DENSE), 90)
    assert (more.episodes, more.curve[-1].episodes) == (90, 90)


def test_refusals(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    s4q.run(S4Q(DENSE), CountCollector(DENSE, seed=3), 60, checkpoint=path)
    with pytest.raises(ValueError, match="made with a collector of seed 3; got one of seed 0"):
        s4q.run(load(path), CountCollector(DENSE), 90)
    with pytest.raises(ValueError, match="whole run, of which 60 have been played; got 50"):
        s4q.run(load(path), CountCollector(DENSE, seed=3), 50)
    with pytest.raises(ValueError, match="one problem, but n_actions is 2"):
        s4q.run(load(path), CountCollector(BLOCKS, seed=3), 90)
    once = load(path)
    s4q.run(once, CountCollector(DENSE, seed=3), 90)
    with pytest.raises(ValueError, match="has learned more since it was loaded; load the file again"):
        s4q.run(once, CountCollector(DENSE, seed=3), 90)
    with pytest.raises(ValueError, match="checkpoint must be a path or an Autosave; got int"):
        s4q.run(S4Q(DENSE), CountCollector(DENSE), 10, checkpoint=3)  # type: ignore[arg-type]
    with pytest.raises(s4q.CheckpointError, match=r"there is no folder .*nowhere; make it first"):
        s4q.run(S4Q(DENSE), CountCollector(DENSE), 10, checkpoint=tmp_path / "nowhere" / "run.s4q")
    with pytest.raises(ValueError, match=r"minutes is the longest time .* got 0"):
        Autosave(path, minutes=0)
    for extra in ({"x": float("nan")}, {"x": object()}, [1]):
        with pytest.raises(ValueError, match="extra must"):
            save(path, S4Q(DENSE), seed=0, extra=extra)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="seed is the seed of the collector"):
        save(path, S4Q(DENSE), seed=-1)


class Own:
    """A policy, a bonus rule, a cache and a learner of the user's."""

    def probabilities(self, h: int, states: Any, phi: Any) -> Any:
        return np.full(phi.blocks.shape, 0.5)

    def __call__(self, level: int, fit: Any, moments: Any) -> Any:
        return fixed_bonus(DENSE)(level, fit, moments)

    def moments(self, level: int, target: Any) -> Any:
        return s4q.Moments.zeros(1, 3)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: s4q.S3Q(DENSE, Own()), r"policies\.0 of type Own cannot be saved"),
        (lambda: s4q.S3Q(DENSE, s4q.UniformPolicy(2), bonus=Own()), "bonus of type Own cannot be saved"),
    ],
)
def test_what_cannot_be_saved_is_said_before_the_first_episode(
    make: Callable[[], s4q.S3Q], says: str, tmp_path: Path
) -> None:
    learner = make()
    with pytest.raises(ValueError, match=says):
        s4q.run(learner, EpisodeCollector(DENSE), 10, checkpoint=tmp_path / "run.s4q")
    assert learner.n_episodes == 0
    assert not list(tmp_path.iterdir())
    assert s4q.run(learner, EpisodeCollector(DENSE), 10).episodes == 10


def test_a_checkpoint_knows_its_parts(tmp_path: Path) -> None:
    path = tmp_path / "run.s4q"
    save(path, S4Q(DENSE), seed=5, progress=Progress(budget=7), extra={"a": [1, None, "b"]})
    read = load(path)
    assert isinstance(read, Checkpoint)
    assert (read.seed, read.progress.budget, read.extra, read.n_episodes) == (5, 7, {"a": [1, None, "b"]}, 0)
