"""Errors planted on purpose, to show that the tests of the theory would notice them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

import s4q
from s4q.core.blocks import Array
from s4q.core.messages import Regress, Shard
from s4q.core.optimism import QLevel
from s4q.learners.presets import Constants
from s4q.problems import FiniteMDP
from s4q.theory import bounds
from s4q.theory.bounds import Prescribed


def drop_bonus(monkeypatch: pytest.MonkeyPatch) -> None:
    """The learner plays without a bonus; the radius of its fits is still known."""
    bonus = Constants.with_bonus

    def nothing(*arguments: Any) -> QLevel:
        kept = bonus(*arguments)
        return replace(kept, width=0 * kept.width)

    monkeypatch.setattr(Constants, "with_bonus", nothing)


def divide_width(monkeypatch: pytest.MonkeyPatch, divisor: float) -> None:
    """The radius, and with it the bonus, is too small; in the audit too, which has formulas of its own."""
    width, radius = Constants.width, Prescribed.fit_radius
    monkeypatch.setattr(Prescribed, "fit_radius", lambda *arguments: radius(*arguments) / divisor)
    monkeypatch.setattr(Constants, "width", lambda *arguments: width(*arguments) / divisor)


def divide_s3q_radius(monkeypatch: pytest.MonkeyPatch, divisor: float) -> None:
    """The radius of Theorem 2 is too small."""
    radius = bounds.s3q_radius
    monkeypatch.setattr(bounds, "s3q_radius", lambda *a, **options: radius(*a, **options) / divisor)


class OffByOneLevel:
    """A collector that regresses on the target of the level after the next, once it has seen that one."""

    def __init__(self, mdp: FiniteMDP, seed: int) -> None:
        self._inner = s4q.collectors.CountCollector(mdp, seed=seed)
        self.mdp, self.seed = mdp, seed
        self._targets: dict[int, QLevel | None] = {}

    def shards(self, request: Any) -> Iterator[Shard]:
        return iter(self._inner.shards(request))

    def collect(self, request: Any) -> Any:
        raise NotImplementedError

    def play(self, request: Any, shard: Shard, start: Array | None = None) -> Any:
        if isinstance(request, Regress):
            self._targets[request.level] = request.target
            if request.target is not None:
                later = self._targets.get(request.level + 1) or QLevel(0 * request.target.theta)
                request = replace(request, target=later)
        return self._inner.play(request, shard, start)
