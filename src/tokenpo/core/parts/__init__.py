"""Parts of an objective: signals, and the stages that fill its slots; each file holds one kind.

A part is a frozen value; stages that hold equal signals share one tensor. A part that only one paper uses is in that
method's file.
"""

# isort: off
from .aggregate import ConstantLength as ConstantLength, PromptMean as PromptMean, SequenceMean as SequenceMean
from .aggregate import TokenMean as TokenMean, TokenSum as TokenSum
from .credit import BehindToken as BehindToken, Continuations as Continuations, Cuts as Cuts
from .credit import EqualEntropy as EqualEntropy, EveryTokens as EveryTokens, Improbable as Improbable
from .credit import SegmentGain as SegmentGain, WhitenedGain as WhitenedGain
from .correction import Criterion as Criterion, EachToken as EachToken, Every as Every, Level as Level, Mean as Mean
from .correction import Rejection as Rejection, RolloutCorrection as RolloutCorrection, RolloutMean as RolloutMean
from .correction import Strayed as Strayed, Total as Total
from .credit import GroupAdvantage as GroupAdvantage, RewardToGo as RewardToGo, ShrunkAdvantage as ShrunkAdvantage
from .critic import Critic as Critic, Gae as Gae, LengthLambda as LengthLambda, RightLikelihood as RightLikelihood
from .critic import TokenRewards as TokenRewards
from .selection import CurrentEntropyQuantile as CurrentEntropyQuantile, CurrentEntropyScore as CurrentEntropyScore
from .selection import OldEntropyQuantile as OldEntropyQuantile, OldEntropyScore as OldEntropyScore
from .part import BatchSignal as BatchSignal, Look as Look, Memory as Memory, MemorySignal as MemorySignal, Part as Part
from .part import Sampler as Sampler, Signal as Signal, Supplied as Supplied, Tokens as Tokens
from .part import check_parts as check_parts, walk as walk
from .penalties import K1 as K1, K2 as K2, K3 as K3, AbsoluteLogRatio as AbsoluteLogRatio, Anchor as Anchor
from .penalties import EntropyBonus as EntropyBonus, Estimator as Estimator, K3Within as K3Within
from .penalties import ReferenceKl as ReferenceKl, Reweighted as Reweighted, StraightThrough as StraightThrough
from .part import Aggregate as Aggregate, CreditStage as CreditStage, Penalty as Penalty, Shaping as Shaping
from .part import SurrogateStage as SurrogateStage, Weight as Weight
from .surrogate import ArithmeticSequence as ArithmeticSequence, GeometricSequence as GeometricSequence
from .surrogate import GeometricToken as GeometricToken, ProductSequence as ProductSequence, Ratio as Ratio
from .surrogate import RolloutRatio as RolloutRatio, TokenRatio as TokenRatio, WeightedRatio as WeightedRatio
from .selection import HighInBatch as HighInBatch, HighInResponse as HighInResponse, Selection as Selection
from .credit import GroupOverlong as GroupOverlong, SoftOverlong as SoftOverlong
from .surrogate import Bounds as Bounds, Clip as Clip, DetachedClip as DetachedClip, FixedBounds as FixedBounds
from .surrogate import LogLikelihood as LogLikelihood, Region as Region, SelectedBounds as SelectedBounds
from .surrogate import Unclipped as Unclipped
from .teacher import NoCredit as NoCredit, TeacherCredit as TeacherCredit, TeacherKl as TeacherKl
from .teacher import TeacherDivergence as TeacherDivergence
from .temperature import AdaptiveTemperature as AdaptiveTemperature
from .weights import BatchWeight as BatchWeight, Drop as Drop, Keep as Keep, NormalisedWeight as NormalisedWeight
from .weights import ProbabilityWeight as ProbabilityWeight, RowNormalised as RowNormalised
from .weights import SignalWeight as SignalWeight
# isort: on
