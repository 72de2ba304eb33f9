"""The chain with the learners of rlberry. It runs inside an environment that has them, and prints a line of JSON a run.

    python play_rlberry.py lsvi_ucb 100 200 400 800

All settings are the package's own, but for the horizon and a discount of 1. The features of LSVI-UCB are one-hot.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from rlberry.spaces import Discrete

from chain import HORIZON, N_ACTIONS, N_STATES
from chain_env import ChainEnv
from held_bytes import held_bytes


class RlberryChain(ChainEnv):
    """The chain with the spaces and the range of rewards that rlberry asks for."""

    observation_space = Discrete(N_STATES)
    action_space = Discrete(N_ACTIONS)
    reward_range = (0.0, 1.0)


def lsvi_ucb(env: RlberryChain) -> Any:
    """LSVI-UCB of rlberry-scool."""
    from rlberry_scool.agents.features import FeatureMap
    from rlberry_scool.agents.linear import LSVIUCBAgent

    class OneHot(FeatureMap):
        def __init__(self) -> None:
            self.shape = (N_STATES * N_ACTIONS,)

        def map(self, observation: Any, action: Any) -> np.ndarray:
            phi = np.zeros(N_STATES * N_ACTIONS)
            phi[int(observation) * N_ACTIONS + int(action)] = 1.0
            return phi

    return LSVIUCBAgent(env, horizon=HORIZON, feature_map_fn=lambda _: OneHot(), gamma=1.0)


def ucbvi(env: RlberryChain) -> Any:
    """UCBVI of rlberry-scool."""
    from rlberry_scool.agents.ucbvi import UCBVIAgent

    return UCBVIAgent(env, horizon=HORIZON, gamma=1.0)


def opt_ql(env: RlberryChain) -> Any:
    """Q-learning with a bonus, of rlberry-research, or of rlberry before it moved there."""
    try:
        from rlberry_research.agents.optql.optql import OptQLAgent
    except ImportError:
        from rlberry.agents.optql import OptQLAgent

    return OptQLAgent(env, horizon=HORIZON, gamma=1.0)


LEARNERS: dict[str, Callable[[RlberryChain], Any]] = {"lsvi_ucb": lsvi_ucb, "ucbvi": ucbvi, "opt_ql": opt_ql}


def main() -> None:
    make, numbers = LEARNERS[sys.argv[1]], [int(text) for text in sys.argv[2:]]
    make(RlberryChain(0)).fit(2)  # what is compiled at first use is not charged
    for episodes in numbers:
        agent = make(RlberryChain(seed=1))
        before = time.process_time()
        agent.fit(episodes)
        seconds = time.process_time() - before
        chain = agent.env.unwrapped.chain  # the agent plays a copy
        assert chain.n_episodes == episodes, (chain.n_episodes, episodes)
        found = {"episodes": episodes, "regret": chain.regret, "cpu_seconds": seconds, "bytes": held_bytes(agent)}
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
