"""Feature maps: a batch of states in, `Phi` out. They belong to collectors, never to learners.

OneHot, PerAction, Mixed, Dense, FunctionFeatures and TableFeatures are feature maps. Fourier, Tiles, RBF, RandomFourier
and Sklearn are features of a state, which PerAction turns into a feature map. `registry` describes them by name and
parameters, for files.
"""

from s4q.features import registry
from s4q.features.checking import check_features
from s4q.features.defaults import default_features
from s4q.features.dense import Dense
from s4q.features.fourier import Fourier
from s4q.features.function_features import FunctionFeatures
from s4q.features.mixed import Mixed
from s4q.features.one_hot import OneHot
from s4q.features.per_action import PerAction
from s4q.features.random_fourier import RandomFourier
from s4q.features.rbf import RBF
from s4q.features.scikit_learn import Sklearn
from s4q.features.table import TableFeatures
from s4q.features.tiles import Tiles
from s4q.features.unmeasured import Unmeasured

__all__ = [
    "RBF",
    "Dense",
    "Fourier",
    "FunctionFeatures",
    "Mixed",
    "OneHot",
    "PerAction",
    "RandomFourier",
    "Sklearn",
    "TableFeatures",
    "Tiles",
    "check_features",
    "default_features",
    "registry",
]

for _map in (OneHot, Dense, Fourier, Tiles, RBF, RandomFourier, Sklearn, FunctionFeatures):
    registry.register(_map)
registry.register(PerAction, PerAction.from_config)
registry.register(TableFeatures, TableFeatures.from_lists)
registry.register(Mixed, Mixed.from_config)
registry.register(Unmeasured, Unmeasured.from_config)
