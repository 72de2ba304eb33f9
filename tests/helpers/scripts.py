"""Episodes written down in advance and a collector that plays them: the same episodes for oracle and library."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from literal_s3q import Script

from s4q.collectors.sharding import ShardedCollector, fixed_shards
from s4q.core.least_squares import Moments
from s4q.core.messages import Regress, Regression, Request, Shard
from s4q.problems import FiniteMDP


def write_scripts(mdp: FiniteMDP, n: int, seed: int) -> list[Script]:
    """n uniform episodes, drawn the naive way."""
    rng = np.random.default_rng(seed)
    scripts = []
    for _ in range(n):
        states, actions, rewards = [int(rng.choice(mdp.n_states, p=mdp.start))], [], []
        for h in range(mdp.horizon):
            s, a = states[-1], int(rng.integers(mdp.n_actions))
            mean = mdp.rewards[h, s, a]
            low, high = mdp.spec.reward_min, mdp.spec.reward_max
            if mdp.reward_noise == "bernoulli":
                rewards.append(high if rng.random() * (high - low) < mean - low else low)
            else:
                rewards.append(float(mean))
            actions.append(a)
            states.append(int(rng.choice(mdp.n_states, p=mdp.transitions[h, s, a])))
            if mdp.terminal[states[-1]]:
                break
        scripts.append(Script(states, actions, rewards, bool(mdp.terminal[states[-1]])))
    return scripts


class ScriptedCollector:
    """Answers Regress from the list, in order; `piece` is the shard size."""

    def __init__(self, mdp: FiniteMDP, scripts: list[Script], piece: int = 5) -> None:
        self.mdp, self.scripts, self.piece, self.seed, self.used = mdp, scripts, piece, 0, 0

    def shards(self, request: Request) -> Iterator[Shard]:
        return fixed_shards(request, self.piece)

    def collect(self, request: Any) -> Any:
        return ShardedCollector.collect(self, request)  # type: ignore[arg-type]

    def play(self, request: Regress, shard: Shard, start: Any = None) -> Regression:
        batch = self.scripts[self.used : self.used + shard.n_episodes]
        assert len(batch) == shard.n_episodes, "the script is too short"
        self.used += shard.n_episodes
        spec, h = self.mdp.spec, request.level
        rows = [one for one in batch if len(one.actions) > h]
        vectors, blocks, targets = [], [], []
        for one in rows:
            phi = self.mdp.features(h, np.array([one.states[h]]))
            vector, block = phi.chosen(np.array([one.actions[h]]))
            ended = one.ended and len(one.actions) == h + 1
            if ended:
                after = -spec.reward_min * (spec.horizon - 1 - h)
            elif request.target is None:
                after = 0.0
            else:
                after = float(request.target.value(self.mdp.features(h + 1, np.array([one.states[h + 1]])))[0])
            vectors.append(vector[0])
            blocks.append(block[0])
            targets.append(one.rewards[h] - spec.reward_min + after)
        moments = Moments.of(
            np.array(vectors).reshape(len(rows), spec.block_dim),
            np.array(blocks, dtype=np.int64),
            np.array(targets),
            spec.n_blocks,
        )
        return Regression(moments, np.array([len(batch)]), sum(min(h + 1, len(one.actions)) for one in batch))
