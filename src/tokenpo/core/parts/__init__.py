"""Parts of an objective: signals, and the stages that fill its slots, one kind a file.

A part is a frozen value. Two stages that hold equal signals share one tensor, and a report can ask for it by name. A
part that only one paper uses lives in that paper's file.
"""

from .aggregate import ConstantLength, SequenceMean, TokenMean
from .correction import (
    Criterion,
    EachToken,
    Every,
    Level,
    Mean,
    Rejection,
    RolloutCorrection,
    RolloutMean,
    Strayed,
    Total,
)
from .credit import GroupAdvantage, ShrunkAdvantage
from .entropy import CurrentEntropyQuantile, CurrentEntropyScore, OldEntropyQuantile, OldEntropyScore
from .part import BatchSignal, Look, Memory, MemorySignal, Part, Signal, check_parts, walk
from .penalties import (
    K1,
    K2,
    K3,
    AbsoluteLogRatio,
    Anchor,
    EntropyBonus,
    Estimator,
    K3Within,
    ReferenceKl,
    Reweighted,
    StraightThrough,
)
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
from .slots import Aggregate, CreditStage, Penalty, Shaping, SurrogateStage, Weight
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
    "BatchSignal",
    "BatchWeight",
    "Bounds",
    "Clip",
    "ConstantLength",
    "CreditStage",
    "Criterion",
    "CurrentEntropyQuantile",
    "CurrentEntropyScore",
    "DetachedClip",
    "Drop",
    "EachToken",
    "EntropyBonus",
    "Estimator",
    "Every",
    "FixedBounds",
    "GeometricSequence",
    "GeometricToken",
    "GroupAdvantage",
    "GroupOverlong",
    "HighInBatch",
    "HighInResponse",
    "K3Within",
    "Keep",
    "Level",
    "LogLikelihood",
    "Look",
    "Mean",
    "Memory",
    "MemorySignal",
    "NormalisedWeight",
    "OldEntropyQuantile",
    "OldEntropyScore",
    "Part",
    "Penalty",
    "ProbabilityWeight",
    "ProductSequence",
    "Ratio",
    "ReferenceKl",
    "Region",
    "Rejection",
    "Reweighted",
    "RolloutCorrection",
    "RolloutMean",
    "RolloutRatio",
    "RowNormalised",
    "SelectedBounds",
    "Selection",
    "SequenceMean",
    "Shaping",
    "ShrunkAdvantage",
    "Signal",
    "SignalWeight",
    "SoftOverlong",
    "StraightThrough",
    "Strayed",
    "SurrogateStage",
    "TokenMean",
    "TokenRatio",
    "Total",
    "Unclipped",
    "Weight",
    "WeightedRatio",
    "check_parts",
    "walk",
]
