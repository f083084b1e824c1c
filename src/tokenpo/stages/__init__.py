"""The slots of an objective, one file each. A stage is a frozen value; a stage that only one paper uses lives there."""

from .aggregate import ConstantLength, SequenceMean, TokenMean
from .base import Aggregate, CreditStage, Penalty, Shaping, SurrogateStage, Weight
from .correction import RolloutCorrection
from .credit import GroupAdvantage
from .penalties import K1, K2, K3, AbsoluteLogRatio, Anchor, EntropyBonus, Estimator, ReferenceKl, StraightThrough
from .ratio import (
    ArithmeticSequence,
    GeometricSequence,
    GeometricToken,
    ProductSequence,
    Ratio,
    RolloutRatio,
    TokenRatio,
    WeightedRatio,
)
from .selection import HighInBatch, HighInResponse, Selection
from .shaping import GroupOverlong, SoftOverlong
from .surrogate import Bounds, Clip, DetachedClip, FixedBounds, LogLikelihood, Region, SelectedBounds, Unclipped
from .temperature import AdaptiveTemperature
from .weights import BatchWeight, Drop, Keep, NormalisedWeight, ProbabilityWeight, RowNormalised, SignalWeight

__all__ = [
    "K1",
    "K2",
    "K3",
    "AbsoluteLogRatio",
    "AdaptiveTemperature",
    "Aggregate",
    "Anchor",
    "ArithmeticSequence",
    "BatchWeight",
    "Bounds",
    "Clip",
    "ConstantLength",
    "CreditStage",
    "DetachedClip",
    "Drop",
    "EntropyBonus",
    "Estimator",
    "FixedBounds",
    "GeometricSequence",
    "GeometricToken",
    "GroupAdvantage",
    "GroupOverlong",
    "HighInBatch",
    "HighInResponse",
    "Keep",
    "LogLikelihood",
    "NormalisedWeight",
    "Penalty",
    "ProbabilityWeight",
    "ProductSequence",
    "Ratio",
    "ReferenceKl",
    "Region",
    "RolloutCorrection",
    "RolloutRatio",
    "RowNormalised",
    "SelectedBounds",
    "Selection",
    "SequenceMean",
    "Shaping",
    "SignalWeight",
    "SoftOverlong",
    "StraightThrough",
    "SurrogateStage",
    "TokenMean",
    "TokenRatio",
    "Unclipped",
    "Weight",
    "WeightedRatio",
]
