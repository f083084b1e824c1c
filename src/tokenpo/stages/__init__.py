"""The slots of an objective, one file each. A stage is a frozen value; a stage that only one paper uses lives there."""

from .aggregate import ConstantLength, SequenceMean, TokenMean
from .base import Aggregate, CreditStage, Penalty, Shaping, SurrogateStage, Weight
from .credit import GroupAdvantage
from .penalties import K1, K2, K3, AbsoluteLogRatio, Estimator, ReferenceKl
from .ratio import ArithmeticSequence, GeometricSequence, GeometricToken, Ratio, TokenRatio, WeightedRatio
from .shaping import GroupOverlong, SoftOverlong
from .surrogate import Bounds, Clip, FixedBounds, Unclipped
from .temperature import AdaptiveTemperature
from .weights import NormalisedWeight, ProbabilityWeight

__all__ = [
    "K1",
    "K2",
    "K3",
    "AbsoluteLogRatio",
    "AdaptiveTemperature",
    "Aggregate",
    "ArithmeticSequence",
    "Bounds",
    "Clip",
    "ConstantLength",
    "CreditStage",
    "Estimator",
    "FixedBounds",
    "GeometricSequence",
    "GeometricToken",
    "GroupAdvantage",
    "GroupOverlong",
    "NormalisedWeight",
    "Penalty",
    "ProbabilityWeight",
    "Ratio",
    "ReferenceKl",
    "SequenceMean",
    "Shaping",
    "SoftOverlong",
    "SurrogateStage",
    "TokenMean",
    "TokenRatio",
    "Unclipped",
    "Weight",
    "WeightedRatio",
]
