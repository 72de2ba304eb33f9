"""How far is it? What a run of S4Q has explored so far, what its policies promise and what they get.

S4Q tells the `ExplorationHistory` of every finished phase, and never asks it: learning does not depend on it. Its size
does not grow with the episodes, and a checkpoint holds it. `LearningProgress` says the same in the user's units, for
`agent.progress`, the progress bar and logs.
"""

from dataclasses import dataclass, replace
from typing import Literal, final

import numpy as np

from s4q.core.blocks import Array
from s4q.core.codec import Positive
from s4q.core.messages import sum_if_known
from s4q.core.spec import Spec
from s4q.learners.best_policy import BestPolicy
from s4q.learners.main_loop import PhaseRecord

_SEEN = 0.5  # of a visit with a feature of norm 1: a direction with more data than this counts as seen
_PARTS = 16  # a stretch has this part of all episodes, or is a single phase
_MOST = 32  # stretches that are kept
_RECENT = 8  # the newest stretches with this part of all episodes are what "lately" means
_STILL_NEW = 0.01  # of all directions: so many new ones, at the rate of late over all episodes: exploration goes on
_CLOSE = 0.1  # of promise or return: closer than this the policy gets what it promises

Stage = Literal["not begun", "exploring", "refining", "settled"]


@final
@dataclass(frozen=True, slots=True)
class Stretch:
    """Consecutive phases. Returns are for rewards shifted to start at 0."""

    n_episodes: Positive
    return_sum: float
    start_value_sum: float | None  # what the policies promised at the start states; None where it is not known
    directions_seen: int  # at its end
    n_truncated: int = 0  # episodes that were cut, which are in neither sum

    @property
    def n_returns(self) -> int:
        """Episodes whose return is known."""
        return self.n_episodes - self.n_truncated

    @property
    def gap(self) -> float | None:
        """What the policies promised an episode beyond what they got."""
        if self.start_value_sum is None or not self.n_returns:
            return None
        return (self.start_value_sum - self.return_sum) / self.n_returns

    def then(self, later: "Stretch") -> "Stretch":
        """Both as one."""
        return Stretch(
            self.n_episodes + later.n_episodes,
            self.return_sum + later.return_sum,
            sum_if_known(self.start_value_sum, later.start_value_sum),
            later.directions_seen,
            self.n_truncated + later.n_truncated,
        )


@final
@dataclass(frozen=True, slots=True)
class ExplorationHistory:
    """All finished phases as a few stretches, the oldest first."""

    stretches: tuple[Stretch, ...] = ()

    @property
    def n_episodes(self) -> int:
        """Episodes of all stretches."""
        return sum(one.n_episodes for one in self.stretches)

    def with_phase(self, record: PhaseRecord) -> "ExplorationHistory":
        """The same with one phase more, which has played at least one episode."""
        seen = directions_seen(record.cov_ref + record.increment)
        return self._with(
            Stretch(record.n_episodes, record.return_sum, record.start_value_sum, seen, record.n_truncated)
        )

    def with_running(self, record: PhaseRecord | None) -> "ExplorationHistory":
        """The same with the phase that is running; what it has seen is not counted yet."""
        if record is None or not record.n_episodes:
            return self
        seen = self.stretches[-1].directions_seen if self.stretches else 0
        return self._with(
            Stretch(record.n_episodes, record.return_sum, record.start_value_sum, seen, record.n_truncated)
        )

    def _with(self, new: Stretch) -> "ExplorationHistory":
        kept = [*self.stretches, new]
        if len(kept) > 1 and kept[-2].n_episodes + new.n_episodes <= (self.n_episodes + new.n_episodes) / _PARTS:
            kept[-2:] = [kept[-2].then(new)]
        if len(kept) > _MOST:
            kept = [one.then(next_one) for one, next_one in zip(kept[::2], kept[1::2], strict=False)] + (
                kept[-1:] if len(kept) % 2 else []
            )
        return replace(self, stretches=tuple(kept))

    def newest(self, part: float) -> int:
        """How many of the newest stretches hold this part of all episodes, at least one."""
        wanted, found = part * self.n_episodes, 0
        for count, one in enumerate(reversed(self.stretches), start=1):
            found += one.n_episodes
            if found >= wanted:
                return count
        return len(self.stretches)


def directions_seen(grams: Array) -> int:
    """Directions with more data than half a visit, over all levels and blocks. grams (levels, n_blocks, k, k).

    >>> directions_seen(np.array([[[[3.0]], [[0.0]], [[1.0]]]]))
    2
    """
    if grams.shape[-1] == 1:
        return int((grams >= _SEEN).sum())
    return int(sum((np.linalg.eigvalsh(blocks) >= _SEEN).sum() for blocks in grams))


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class LearningProgress:
    """How far a run has come, in the user's units. `agent.progress` makes it; print it.

    Attributes:
        episodes: Episodes of main loops so far.
        phases: Finished phases.
        promise: What the policies lately promised at the start: no policy is expected to get more. None if not known.
        mean_return: What they got.
        recent_episodes: How many episodes "lately" means.
        most: The most that an episode can return, as declared.
        best_return: Mean return of the best policy so far, which `predict` plays. It flatters the policy, because the
            same episodes decided the choice. None before the first episode.
        best_phase: The phase it was made for.
        best_episodes: Episodes behind its mean return.
        best_lower_bound: The lower bound by which it was chosen: a cautious guess of its return, and no guarantee.
        directions: Directions of the features: levels times features, or the features alone where steps are pooled.
        directions_seen: Those with data. For one-hot features: the pairs of state and action that were tried.
        new_directions: Those seen for the first time lately.
        earlier_gap: What the promise lacked at about half of the episodes. None if not known.
        logged_steps: Steps that `learn_from` took before the first episode.
    """

    episodes: int
    phases: int
    promise: float | None
    mean_return: float | None
    recent_episodes: int
    most: float
    best_return: float | None
    best_phase: int | None
    best_episodes: int
    directions: int
    directions_seen: int
    new_directions: int
    earlier_gap: float | None
    logged_steps: int = 0
    best_lower_bound: float | None = None

    @classmethod
    def of(
        cls,
        spec: Spec,
        history: ExplorationHistory,
        choice: BestPolicy,
        *,
        phases: int,
        running: PhaseRecord | None,
        n_grams: int,
        logged_steps: int,
        seen_at_start: int,
    ) -> "LearningProgress":
        """From what a learner knows.

        Args:
            spec: The problem.
            history: Of the finished phases.
            choice: The best policy so far, and what chose it.
            phases: Number of finished phases.
            running: The phase whose main loop is running, if one is.
            n_grams: Levels whose directions are counted, 1 with pooled steps.
            logged_steps: Steps taken before the first episode.
            seen_at_start: Directions that these steps had seen.
        """
        history = history.with_running(running)
        count = history.newest(1 / _RECENT)
        recent, before = history.stretches[len(history.stretches) - count :], history.stretches[: -count or None]
        n, known = sum(one.n_episodes for one in recent), sum(one.n_returns for one in recent)
        seen = recent[-1].directions_seen if recent else seen_at_start
        promised = None
        for one in recent:
            promised = one.start_value_sum if one is recent[0] else sum_if_known(promised, one.start_value_sum)
        middle = len(history.stretches) - history.newest(0.5)
        shift = spec.horizon * spec.reward_min
        best = choice.best
        return cls(
            episodes=history.n_episodes,
            phases=phases,
            promise=None if promised is None or not known else promised / known + shift,
            mean_return=sum(one.return_sum for one in recent) / known + shift if known else None,
            recent_episodes=n,
            most=spec.value_bound[0] + shift,
            best_return=None if best is None else best.mean + shift,
            best_phase=None if best is None else best.phase,
            best_episodes=0 if best is None else best.n_episodes,
            directions=n_grams * spec.dim,
            directions_seen=seen,
            new_directions=seen - (before[-1].directions_seen if before else seen_at_start),
            earlier_gap=history.stretches[middle].gap if n and middle + count < len(history.stretches) else None,
            logged_steps=logged_steps,
            best_lower_bound=None if best is None else max(choice.lower_bound(best), 0.0) + shift,
        )

    @property
    def share_seen(self) -> float:
        """Share of the directions that were seen, 0 to 1."""
        return self.directions_seen / self.directions

    @property
    def gap(self) -> float | None:
        """What the promise exceeds the return by: what exploration may still gain, if the promise is optimistic."""
        return None if self.promise is None or self.mean_return is None else self.promise - self.mean_return

    @property
    def at_bound(self) -> bool:
        """True if the policies promise the most that is possible, as if nothing were known."""
        lowest = self.mean_return if self.mean_return is not None else self.most
        return self.promise is not None and self.promise >= self.most - 0.001 * abs(self.most - lowest)

    @property
    def stage(self) -> Stage:
        """ "exploring" while new directions are seen or nothing is known; then "refining"; "settled" when the policy
        gets about what it promises.
        """
        if not self.episodes:
            return "not begun"
        if self.new_directions * self.episodes > _STILL_NEW * self.directions * self.recent_episodes:
            return "exploring"
        if self.gap is None or self.mean_return is None or self.promise is None:
            return "refining"
        if self.gap <= _CLOSE * max(abs(self.promise), abs(self.mean_return)):
            return "settled"
        return "exploring" if self.at_bound else "refining"

    @property
    def episodes_left(self) -> int | None:
        """About how many episodes until every direction is seen, at the rate of late. None where none is new.

        It is too large where some directions cannot be reached, and says nothing of the refining that comes after.
        """
        if self.new_directions <= 0:
            return None
        return round((self.directions - self.directions_seen) * self.recent_episodes / self.new_directions)

    def __str__(self) -> str:
        logged = f", {_count(self.logged_steps, 'logged step')} before them" if self.logged_steps else ""
        lines = [f"{self.stage}: {_count(self.episodes, 'episode')}, {_count(self.phases, 'phase')}{logged}"]
        lines.append(f"  directions   {self._directions()}")
        if self.mean_return is not None:
            lines.append(f"  return       {self._returns()}")
        if self.best_return is not None:
            lines.append(f"  best policy  {self._best()}")
        return "\n".join(lines)

    def _directions(self) -> str:
        text = f"{self.directions_seen:,} of {self.directions:,} seen ({self.share_seen:.0%})"
        if not self.episodes:
            return text
        text += f", {self.new_directions:,} of them new in the last {_count(self.recent_episodes, 'episode')}"
        if self.stage == "exploring" and self.episodes_left:
            text += f"; the rest takes about {self.episodes_left:,} more, fewer if some cannot be reached"
        return text

    def _best(self) -> str:
        if self.best_episodes == 1:
            what, luck = "was the return of its own episode", "a lucky one, since it"
        else:
            what, luck = f"is the mean of its own {self.best_episodes:,} episodes", "lucky ones, since they"
        text = f"{self.best_return:.4g} {what}, phase {self.best_phase:,}, maybe {luck} decided the choice"
        if self.best_lower_bound is None:
            return text
        return f"{text}; a cautious guess is {self.best_lower_bound:.4g}"

    def _returns(self) -> str:
        text = f"{self.mean_return:.4g} in the last {_count(self.recent_episodes, 'episode')}"
        if self.promise is None or self.gap is None:
            return text
        text += f"; promised {self.promise:.4g}"
        if self.at_bound and self.stage == "exploring":
            return f"{text}, the most that is possible: too little is known to say what can be reached"
        if self.stage == "settled":
            return f"{text}: the policy gets about what it promises"
        if self.gap <= 0:
            return f"{text}: nothing more is promised"
        past = None if self.earlier_gap is None else max(self.earlier_gap, 0.0)
        earlier = "" if past is None else f", which was {past:.4g} at half of the episodes"
        return f"{text}: at most {self.gap:.4g} may still be gained{earlier}"


def _count(n: int, what: str) -> str:
    return f"{n:,} {what}{'' if n == 1 else 's'}"
