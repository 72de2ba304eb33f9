"""S3Q from the uniform controller: error, memory and CPU as the number of episodes grows."""

import numpy as np
from rich.table import Table

import s4q


def table() -> Table:
    result = Table(title="S3Q on low_rank from the uniform controller (mean of 5 seeds)")
    for header in ("episodes", "error to Q*", "error x sqrt(episodes)", "bytes", "CPU us an episode"):
        result.add_column(header, justify="right")
    mdp = s4q.problems.low_rank()
    for episodes in (10**3, 10**4, 10**5):
        errors, micros, held = [], [], 0
        for seed in range(5):
            learner = s4q.S3Q(mdp, controller=s4q.UniformPolicy(mdp.n_actions))
            run = s4q.run(learner, s4q.collectors.EpisodeCollector(mdp, seed=seed), episodes)
            errors.append(float(np.abs(mdp.q_values(run.q) - mdp.q_star)[mdp.reachable].max()))
            micros.append(run.cpu_seconds / episodes * 1e6)
            held = run.nbytes
        error = float(np.mean(errors))
        scaled = error * episodes**0.5
        result.add_row(f"{episodes:,}", f"{error:.4f}", f"{scaled:.2f}", f"{held}", f"{min(micros):.1f}")
    return result
