"""Parts of an objective: signals, and the stages that fill its slots; each file holds one kind.

A part is a frozen value; stages that hold equal signals share one tensor. A part that only one paper uses is in that
method's file.
"""

# isort: off
from .correction import BinaryKl as BinaryKl, Criterion as Criterion, Distance as Distance, EachToken as EachToken
from .correction import Every as Every, Level as Level, Mean as Mean, Rejection as Rejection
from .correction import RolloutCorrection as RolloutCorrection, RolloutMean as RolloutMean, Strayed as Strayed
from .correction import Total as Total, TotalVariation as TotalVariation
from .credit import BehindToken as BehindToken, Continuations as Continuations, Cuts as Cuts
from .credit import EqualEntropy as EqualEntropy, EveryTokens as EveryTokens, GroupAdvantage as GroupAdvantage
from .credit import GroupOverlong as GroupOverlong, Improbable as Improbable, RewardToGo as RewardToGo
from .credit import RelativeAdvantage as RelativeAdvantage, SegmentGain as SegmentGain
from .credit import ShrunkAdvantage as ShrunkAdvantage, SoftOverlong as SoftOverlong, WhitenedGain as WhitenedGain
from .critic import Critic as Critic, Gae as Gae, LengthLambda as LengthLambda, RightLikelihood as RightLikelihood
from .critic import TokenRewards as TokenRewards
from .entropy import AdaptiveTemperature as AdaptiveTemperature, CurrentEntropyQuantile as CurrentEntropyQuantile
from .entropy import CurrentEntropyScore as CurrentEntropyScore, HighInBatch as HighInBatch
from .entropy import HighInResponse as HighInResponse, OldEntropyQuantile as OldEntropyQuantile
from .entropy import OldEntropyScore as OldEntropyScore
from .loss import K1 as K1, K2 as K2, K3 as K3, AbsoluteLogRatio as AbsoluteLogRatio, Anchor as Anchor
from .loss import ConstantLength as ConstantLength, EntropyBonus as EntropyBonus, Estimator as Estimator
from .loss import K3Within as K3Within, PromptMean as PromptMean, ReferenceKl as ReferenceKl, Reweighted as Reweighted
from .loss import SequenceMean as SequenceMean, StraightThrough as StraightThrough, TokenMean as TokenMean
from .loss import TokenSum as TokenSum
from .part import Aggregate as Aggregate, BatchSignal as BatchSignal, CreditStage as CreditStage, Look as Look
from .part import Memory as Memory, MemorySignal as MemorySignal, Part as Part, Penalty as Penalty, Sampler as Sampler
from .part import Selection as Selection, Shaping as Shaping, Signal as Signal, Supplied as Supplied
from .part import SurrogateStage as SurrogateStage, Tokens as Tokens, Weight as Weight, check_parts as check_parts
from .part import walk as walk
from .surrogate import ArithmeticSequence as ArithmeticSequence, Bounds as Bounds, Clip as Clip
from .surrogate import DetachedClip as DetachedClip, FixedBounds as FixedBounds
from .surrogate import GeometricSequence as GeometricSequence, GeometricToken as GeometricToken
from .surrogate import LogLikelihood as LogLikelihood, ProductSequence as ProductSequence, Ratio as Ratio
from .surrogate import Region as Region, RolloutRatio as RolloutRatio, SelectedBounds as SelectedBounds
from .surrogate import TokenRatio as TokenRatio, Unclipped as Unclipped, WeightedRatio as WeightedRatio
from .teacher import NoCredit as NoCredit, TeacherCredit as TeacherCredit, TeacherDivergence as TeacherDivergence
from .teacher import TeacherKl as TeacherKl
from .weights import BatchWeight as BatchWeight, Drop as Drop, Keep as Keep, NormalisedWeight as NormalisedWeight
from .weights import ProbabilityWeight as ProbabilityWeight, RowNormalised as RowNormalised
from .weights import SignalWeight as SignalWeight
# isort: on
