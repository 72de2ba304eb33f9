"""Plots of what an S4Q knows: what its memory holds, its bonus and its information, level by level.

The page calls them. They read public state of a learner and change nothing.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from s4q.core.blocks import Array
from s4q.core.linear_q import LinearQ
from s4q.learners.main_loop import PhaseRecord
from s4q.learners.policy_replay import PolicyReplayMemory
from s4q.learners.s4q import S4Q
from s4q.learners.step_memory import StepMemory
from s4q.problems import FiniteMDP
from s4q.report.drawing import BLUE, FAINT_BLUE, GREEN, MUTED, ORANGE, label, legend, log_if_wide, new_axes, whole_ticks
from s4q.theory.information_gain import effective_dim, effective_dim_cap

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SMALL = 1_500  # pairs (level, state, action): up to there d~ is quickly found
_FEW_FEATURES = 40


def plot_memory_contents(learner: S4Q, ax: "Axes | None" = None) -> "Axes":
    """What the memory holds: past policies with their episodes, or steps beside all that came.

    Args:
        learner: An S4Q that has finished a phase or keeps steps.
        ax: The Axes to draw on. None (default): new ones.
    """
    memory = learner.memory
    ax = new_axes() if ax is None else ax
    if isinstance(memory, PolicyReplayMemory):
        counts = [entry.n_episodes for entry in memory.entries]
        if not counts:
            raise ValueError("the memory holds no policy yet: no phase has ended")
        ax.bar(np.arange(1, len(counts) + 1), counts, color=BLUE, width=1.0 if len(counts) > 60 else 0.8)
        if log_if_wide(ax.yaxis, counts):
            ax.set_ylim(bottom=0.8)
        whole_ticks(ax.xaxis)
        label(ax, "policy in memory", "episodes it stands for")
        return ax
    if not isinstance(memory, StepMemory):
        raise ValueError(f"only policies and steps can be drawn; the memory is a {type(memory).__name__}")
    came, held = [shelf.n_samples for shelf in memory.shelves], [len(shelf) for shelf in memory.shelves]
    if not sum(came):
        raise ValueError("the memory holds no step yet")
    pooled = len(came) == 1
    where = np.arange(len(came))
    ax.bar(where, came, color=FAINT_BLUE, width=0.8, label="steps that came")
    ax.bar(where, held, color=BLUE, width=0.5, label="rows held for them")
    least = max(min([*held, *came]), 1)
    if log_if_wide(ax.yaxis, [least, max(came)]):
        ax.set_ylim(0.5 * least, 20 * max(came))
    else:
        ax.set_ylim(0, 1.35 * max(came))
    if pooled:
        ax.set_xlim(-1.5, 1.5)
        ax.set_xticks([0], ["all levels together"])
    else:
        whole_ticks(ax.xaxis)
    label(ax, "" if pooled else "level", "steps")
    legend(ax)
    return ax


def phase_of(learner: S4Q) -> PhaseRecord | None:
    """The newest phase that has a Gram matrix to show."""
    running = learner.open_phase
    return running if running is not None and (running.n_episodes or learner.last_phase is None) else learner.last_phase


def information(learner: S4Q) -> Array:
    """log det(I + Gram / ridge) of all main-loop steps so far: one a level, (H,), or one with pooled steps, (1,)."""
    phase = phase_of(learner)
    if phase is None:
        return np.zeros(0)
    grams = phase.cov_ref + phase.increment
    scaled = grams / phase.ridge[: len(grams), None, None, None] + np.eye(grams.shape[-1])
    return np.asarray(np.linalg.slogdet(scaled)[1].sum(axis=-1))


def samples_behind(learner: S4Q) -> int:
    """Main-loop episodes behind `information`; with pooled steps the steps of as many whole episodes."""
    memory, phase = learner.memory, phase_of(learner)
    running = 0 if memory.keeps_steps or phase is None or phase is learner.last_phase else phase.n_episodes
    return (memory.n_episodes + running) * (learner.spec.horizon if learner.constants.pool else 1)


def effective_dims_of(mdp: FiniteMDP, learner: S4Q) -> Array | None:
    """d~_h of every level, (H,), for as many episodes as the learner has seen; None where it would take long."""
    small = mdp.rewards.size <= _SMALL and mdp.dim <= _FEW_FEATURES
    n, phase = samples_behind(learner), phase_of(learner)
    if not small or learner.constants.pool or phase is None or n == 0:
        return None
    found = []
    for h, ridge in enumerate(phase.ridge.tolist()):
        loose = 0.01 * max(effective_dim_cap(mdp.dim, n / ridge), 1.0)
        found.append(effective_dim(mdp, h, n / ridge, tolerance=loose, max_steps=300).upper)
    return np.array(found)


def plot_information(learner: S4Q, ax: "Axes | None" = None, *, effective: Array | None = None) -> "Axes":
    """How much the steps so far say of the features, level by level, beside the most that they could say.

    Args:
        learner: An S4Q that has played.
        ax: The Axes to draw on. None (default): new ones.
        effective: d~_h of every level, (H,): the most that the best explorer gathers. None (default): not drawn.
    """
    gains, n, phase = information(learner), samples_behind(learner), phase_of(learner)
    if phase is None or n == 0:
        raise ValueError("there is no information to plot: the learner has played no episode")
    ax = new_axes() if ax is None else ax
    where = np.arange(len(gains))
    ax.bar(where, gains, color=BLUE, width=0.7, label="gathered (log det)")
    cap = [effective_dim_cap(learner.spec.dim, n / ridge) for ridge in phase.ridge[: len(gains)].tolist()]
    ax.plot(where, cap, "_", color=MUTED, markersize=14, markeredgewidth=1.6, label=f"cap of d = {learner.spec.dim}")
    if effective is not None and len(effective) == len(gains):
        ax.plot(where, effective, "D", color=ORANGE, markersize=4.5, label="best explorer (effective dimension)")
    ax.set_ylim(0, 1.45 * max(max(cap), float(gains.max())))
    if len(gains) == 1:
        ax.set_xlim(-1.5, 1.5)
        ax.set_xticks([0], ["all levels together"])
    else:
        whole_ticks(ax.xaxis)
    label(ax, "" if len(gains) == 1 else "level", "information")
    legend(ax)
    return ax


def mean_bonuses(mdp: FiniteMDP, q: LinearQ) -> Array:
    """The bonus that the greedy policy of q expects to meet at each level, (H,)."""
    visits = mdp.occupancies(q)
    found = []
    for h, level in enumerate(q.levels):
        phi = mdp.features.level(h)
        plain = replace(level, whitener=None, width=None, second=None)
        found.append(float((visits[h] * (level.optimistic(phi) - plain.optimistic(phi)))[~mdp.terminal].sum()))
    return np.array(found)


def plot_bonus(mdp: FiniteMDP, q: LinearQ, ax: "Axes | None" = None, *, scale: float | None = None) -> "Axes":
    """The bonus that a policy expects to meet at each level: what is still optimism and not knowledge.

    Args:
        mdp: The problem.
        q: The value function of an S4Q on it.
        ax: The Axes to draw on. None (default): new ones.
        scale: The best return, drawn for scale. None (default): no line.
    """
    bonuses = mean_bonuses(mdp, q)
    ax = new_axes() if ax is None else ax
    ax.bar(np.arange(len(bonuses)), bonuses, color=BLUE, width=0.7, label="mean bonus met")
    if scale is not None and scale < 20 * float(bonuses.max()):
        ax.axhline(scale, color=GREEN, linewidth=1.2, linestyle=(0, (4, 3)), label="best return of an episode")
    whole_ticks(ax.xaxis)
    label(ax, "level", "bonus, in units of reward")
    legend(ax)
    return ax
