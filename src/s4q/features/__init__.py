"""Feature maps: states in, `Phi` out. They belong to collectors, never to learners."""

from s4q.features.table import TableFeatures

__all__ = ["TableFeatures"]
