"""What a run says, in sentences and a few numbers. The page and `s4q explain` show them."""

from dataclasses import dataclass
from math import inf
from typing import final

from s4q.certificates.certifier import Certificate, certify, refusal
from s4q.learners.explanation import broken_proof, guarantee
from s4q.learners.s4q import S4Q
from s4q.report.drawing import RAISED
from s4q.report.run_plots import Bound, played_points
from s4q.report.run_source import RunSource
from s4q.running.accounting import Run
from s4q.running.live_progress import byte_count
from s4q.theory.bounds import worst_regret


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """One number of the summary."""

    name: str
    value: str
    note: str = ""


def count(n: float) -> str:
    """A whole number as people read it.

    >>> count(12_000), count(10**8), count(2_500_000)
    ('12,000', '10⁸', '2.5 × 10⁶')
    """
    n = int(n)
    power = len(str(n)) - 1
    if n < 10**6:
        return f"{n:,}"
    ten = "10" + str(power).translate(RAISED)
    return ten if n == 10**power else f"{n / 10**power:.3g} × {ten}"


def algorithm(source: RunSource) -> str:
    """The learner and its preset."""
    learner = source.learner
    return f"S4Q (preset {learner.constants.preset})" if isinstance(learner, S4Q) else type(learner).__name__


def first_and_last_returns(run: Run) -> tuple[float, float, int] | None:
    """Mean return of about the first and the last tenth of the main-loop episodes, and how many the last are."""
    points = [point for point in played_points(run) if point.mean_return is not None]
    if not points:
        return None
    before = [0, *(point.main_episodes for point in points[:-1])]
    parts = [(point.main_episodes - n, point.mean_return or 0.0) for point, n in zip(points, before, strict=True)]
    wanted = max(points[-1].main_episodes // 10, 1)
    first, _ = _mean_of(parts, wanted)
    last, n_last = _mean_of(parts[::-1], wanted)
    return first, last, n_last


def _mean_of(parts: list[tuple[int, float]], wanted: int) -> tuple[float, int]:
    """The mean over whole phases until there are as many episodes as wanted, and how many they are."""
    total, n = 0.0, 0
    for episodes, mean in parts:
        if n >= wanted:
            break
        total, n = total + episodes * mean, n + episodes
    return (total / n if n else parts[0][1]), n


def headline(source: RunSource) -> str:
    """What was learned, in one sentence: what the policy to keep is worth, and what it is to be compared with."""
    run, who = source.run, algorithm(source)
    if not run.episodes:
        return f"{who} on {source.problem}: no episode has been played, so nothing is learned yet."
    after = f"After {count(run.episodes)} episode{'' if run.episodes == 1 else 's'}"
    so_far = " so far" if source.in_progress else ""
    begins = f"{after}{so_far} {who} has a policy for {source.problem} that"
    if source.mdp is not None and source.policy_fits:
        facts = source.mdp.facts()
        return (
            f"{begins} is worth {source.mdp.value(run.best):.4g} an episode; the best possible is {facts.v_star:.4g}, "
            f"and random actions get {facts.v_uniform:.4g}."
        )
    returns, kept = first_and_last_returns(run), kept_policy(source)
    if kept is not None:
        began = "" if returns is None else f"; the first policies got {returns[0]:.4g}"
        return f"{begins} got {kept.mean:.4g} {kept.basis}{began}."
    if returns is None:
        return f"{after}{so_far} {who} has fitted {source.problem}; no episode was played with its own policy."
    first, last, n = returns
    return f"{begins} got {last:.4g} an episode over its last {count(n)}; it began with {first:.4g}."


@final
@dataclass(frozen=True, slots=True)
class KeptPolicy:
    """The policy to keep, by the episodes that it has played itself."""

    mean: float  # of their returns
    n_episodes: int
    cautious: float | None  # a guess of its return that allows for the luck of the choice

    @property
    def basis(self) -> str:
        """What the mean comes from, and why it is not to be taken at its word."""
        once = self.n_episodes == 1
        own = "in its only episode" if once else f"on average in its own {count(self.n_episodes)} episodes"
        if self.cautious is None:
            return own
        chosen = f"{'it' if once else 'they'} decided the choice, so expect less"
        return f"{own} ({chosen}; a cautious guess is {self.cautious:.4g})"


def kept_policy(source: RunSource) -> KeptPolicy | None:
    """The policy to keep, `run.best`; None where the learner keeps none or no episode has spoken for it."""
    if not isinstance(source.learner, S4Q):
        return None
    far = source.learner.progress
    if far.best_return is None:
        return None
    return KeptPolicy(far.best_return, far.best_episodes, far.best_lower_bound)


def tiles(source: RunSource) -> list[Tile]:
    """The numbers of the summary."""
    run = source.run
    found = [
        Tile("episodes", count(run.episodes), _of_all(source)),
        Tile("phases", count(run.phases), "new policies tried"),
    ]
    if source.mdp is not None and source.policy_fits:
        value, best = source.mdp.value(run.best), source.mdp.v_star
        found += [Tile("worth of the policy", f"{value:.4g}", f"best {best:.4g}")]
    else:
        returns, kept = first_and_last_returns(run), kept_policy(source)
        if kept is not None:
            guess = "" if kept.cautious is None else f"; cautiously {kept.cautious:.4g}"
            own = f"its own {count(kept.n_episodes)} episode{'' if kept.n_episodes == 1 else 's'}{guess}"
            found.append(Tile("policy to keep", f"{kept.mean:.4g}", own))
        found += (
            [] if returns is None else [Tile("return lately", f"{returns[1]:.4g}", f"{count(returns[2])} episodes")]
        )
    if run.regret is not None and run.episodes:
        found.append(
            Tile(
                "regret",
                count(round(run.regret)) if run.regret >= 10**4 else f"{run.regret:.4g}",
                f"{run.regret / run.episodes:.2g} an episode",
            )
        )
    made = certificate_of(source)
    if made is not None and not made.vacuous and not made.contradictory:
        found.append(Tile("gap, proved", f"{made.gap:.4g}", f"with probability {1 - made.delta:g}"))
    return [*found, Tile("memory", byte_count(run.nbytes)), Tile("CPU", f"{run.cpu_seconds:.3g} s")]


def _of_all(source: RunSource) -> str:
    """How much was asked for, while a run is in progress; else what was measured before it began."""
    if not source.in_progress:
        return f"{count(source.run.warm_up_episodes)} to measure ranges" if source.run.warm_up_episodes else ""
    if source.episodes_asked is None and source.max_steps is not None:
        return f"{count(source.run.steps)} of {count(source.max_steps)} steps"
    return f"of {count(source.budget or 0)}"


def where_episodes_went(run: Run) -> str:
    """How many episodes served what, as one sentence.

    Args:
        run: The run.
    """
    parts = (
        (run.main_episodes, "tried new policies"),
        (run.replay_episodes, "replayed old ones"),
        (run.evaluation_episodes, "only evaluated"),
        (run.warm_up_episodes, "played random actions to measure the ranges of the observations"),
    )
    said = [f"{count(n)} {what}" for n, what in parts if n]
    return f"Of {count(run.episodes)} episode{'' if run.episodes == 1 else 's'} {', '.join(said) or 'none was played'}."


def guarantee_of(source: RunSource) -> str:
    """What is proved about the run."""
    return guarantee(source.learner.constants) if isinstance(source.learner, S4Q) else "Theorem 2, for its controller"


def certificate_of(source: RunSource) -> Certificate | None:
    """The certificate of the run, or one made from the last phases of its learner; None where nothing is proved."""
    learner = source.learner
    if source.run.certificate is not None:
        return source.run.certificate
    if not isinstance(learner, S4Q) or refusal(learner.constants) is not None or not learner.n_episodes:
        return None
    return certify(learner)


def no_certificate(source: RunSource) -> str:
    """Why there is no certificate."""
    if not isinstance(source.learner, S4Q):
        return "only an S4Q makes certificates"
    return refusal(source.learner.constants) or "no episode has been played"


def regret_bound(source: RunSource) -> Bound | None:
    """The bound of Theorem 1 on the regret, where the preset proves it."""
    learner = source.learner
    if not isinstance(learner, S4Q) or learner.constants.preset not in ("paper", "tight"):
        return None
    c = learner.constants
    if broken_proof(c) is not None or c.fixed_trigger is not None or not c.spec.well_specified:
        return None
    return lambda episodes: worst_regret(c, episodes)


def bytes_a_step(source: RunSource) -> int:
    """What LSVI-UCB keeps of a step: the features of its action, those of all actions afterwards, and the reward."""
    spec = source.learner.spec
    return 8 * (spec.block_dim * (1 + spec.n_actions) + 1)


def certified_gap(source: RunSource) -> float | None:
    """The gap that is proved, where it says something."""
    made = certificate_of(source)
    return None if made is None or made.vacuous or made.gap == inf else made.gap
