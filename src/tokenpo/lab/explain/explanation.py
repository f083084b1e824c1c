"""Methods on one recording: credit, weight and push of every token, shares of the push, cosines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from markupsafe import Markup
from torch import Tensor

from ...base.errors import NotFinite, TokenPOError
from ...base.jsonl import finite
from ...base.text import number
from ...core.culprit import SOUND, broken
from ...core.objective import Objective
from ...core.ops import masked
from ...core.parts import MemorySignal
from ...core.trial import evaluate
from ...core.types import FACTS
from ...methods.extensions import extended, rejected
from ...records import Recording
from ...train.recipe.command_line import Entry, toml_value
from ...train.recipe.objective import build_entry
from ..page.text import Cell, Row, Table, percent, shortened, visible

# Input -> its form in a file, if that is not a number per token or response.
_IN_A_FILE = {"rewards": "an object: the name of each reward function and what it gave"}


@dataclass(frozen=True, eq=False)
class MethodPush:
    """One method's numbers on N responses; all tensors are [N, T], 0 after the end of a response.

    Args:
        advantage, weight: the credit of phase one, and the factor on the surrogate.
        ratio: of the current to the old policy, as this method takes it.
        clipped: the trust region cuts this token's gradient.
        rejected: a correction for the sampling policy drops the token; None if no correction drops tokens.
        push: −M ∂L/∂lp, M the number of response tokens of the recording; > 0 makes the token more likely.
        notes: limits of the numbers.
    """

    label: str
    objective: Objective
    advantage: Tensor
    weight: Tensor
    ratio: Tensor
    clipped: Tensor
    rejected: Tensor | None
    push: Tensor
    notes: tuple[str, ...]


def missing(label: str, objective: Objective, recording: Recording) -> str:
    """A sentence on the inputs that the recording lacks for the method; "" if it has all."""
    lacking = sorted(objective.needs - recording.inputs)
    if not lacking:
        return ""
    fields = "; ".join(f"'{name}' ({_IN_A_FILE.get(name, FACTS[name].meaning)})" for name in lacking)
    odd = f"; fields that are not read: {', '.join(recording.unread)}" if recording.unread else ""
    per = "token" if any(FACTS[name].shape == "[N, T]" for name in lacking) else "response"
    return (
        f"{label} needs what {recording.source} does not hold: write {fields} into every response, one number for each "
        f"{per} (docs/rollouts.md{odd})"
    )


def push_of(label: str, objective: Objective, recording: Recording) -> MethodPush:
    """Evaluates the objective on the whole recording as one optimiser step, without memory of earlier batches."""
    rollouts, policy = recording.rollouts.only(objective.needs), recording.policy.only(objective.needs)
    result = evaluate(objective, rollouts, policy)
    terms, mask = result.loss.terms, result.batch.mask
    if not (result.gradient[mask].isfinite().all() and result.loss.value.isfinite()):
        cause = broken(objective, result.batch, result.totals) or SOUND
        raise NotFinite(f"{label} on this recording is not finite: {cause}")
    dropped = rejected(objective, result.batch.of(rollouts, result.batch.policy))
    weight, ratio = (torch.where(mask, terms[name], 0.0) for name in ("weight", "ratio"))
    push = torch.where(mask, -result.gradient * rollouts.mask.sum(), 0.0) + 0.0  # adding 0 turns -0 into 0
    notes = tuple(f"{label}: {note}" for note in _limits(objective, recording, dropped))
    clipped = terms["clipped"].bool() & mask
    return MethodPush(label, objective, terms["advantage"], weight, ratio, clipped, dropped, push, notes)


def _limits(objective: Objective, recording: Recording, dropped: Tensor | None) -> Iterator[str]:
    """Notes: parts of the method that the push leaves out, rejections in training, tokens that a correction drops."""
    if objective.entropy_gradient:
        yield "an entropy bonus pushes through the entropy too, which a push on log-probabilities leaves out."
    if objective.teacher_beta is not None:
        yield "it compares whole distributions with a teacher's, which a push on log-probabilities leaves out."
    if any(isinstance(memory, MemorySignal) for memory in objective.memories):
        yield "it remembers earlier batches; shown is a first batch, before which there was none."
    if objective.passes:
        yield f"it makes {len(objective.passes)} passes over a batch; shown is their sum, before the first."
    if objective.draws:
        yield "it draws tokens at random; shown is one draw (seed 0)."
    if objective.temperature is not None:
        yield "it also samples at a temperature of its own; these rollouts may have been sampled at another."
    if recording.lag is not None and objective.assumes_on_policy and not objective.corrects_rollout:
        part = objective.assumes_on_policy[0]
        yield f"{part} takes the policy for the one that sampled, so that training rejects tokens of older policies."
    if dropped is not None:
        mask = recording.rollouts.mask
        hit = dropped.any(1)
        whole = hit & (dropped == mask).all(1)
        share, partly = float(dropped.sum() / mask.sum()), int((hit & ~whole).sum())
        more = f" and tokens of {partly} more" if partly else ""
        yield (
            f"the correction for the policy that sampled rejects {percent(share)} of the tokens: {int(whole.sum())} of "
            f"{int(mask.any(1).sum()):,} responses whole{more}."
        )


@dataclass(frozen=True, eq=False)
class TokenKinds:
    """The kinds of tokens for the shares, each [N, T] bool inside the mask; None if the recording lacks its input.

    `high`: entropy at or above the `threshold` (nats); `low`: below it.
    """

    mask: Tensor
    right: Tensor | None
    wrong: Tensor | None
    high: Tensor | None
    low: Tensor | None
    threshold: float | None

    @staticmethod
    def of(recording: Recording, quantile: float) -> TokenKinds:
        """The kinds of a recording; the threshold is the nearest-rank quantile over all response tokens."""
        mask, entropy, correct = recording.rollouts.mask, recording.entropy, recording.correct
        right = wrong = high = low = threshold = None
        if any(verdict is not None for verdict in correct):
            right, wrong = (torch.tensor([x is answer for x in correct])[:, None] & mask for answer in (True, False))
        if entropy is not None:
            threshold = float(masked.quantile(entropy[mask], quantile))
            high = mask & (entropy >= threshold)
            low = mask & ~high
        return TokenKinds(mask, right, wrong, high, low, threshold)


@dataclass(frozen=True)
class Shares:
    """A row of the table; NaN if undefined. `size` is the mean |push| of a token. `silent` and `clipped` are fractions
    of the tokens; the others are fractions of Σ |push|, `up` that on tokens made more likely.
    """

    size: float
    up: float
    right: float
    wrong: float
    high: float
    low: float
    silent: float
    clipped: float


def shares(push: Tensor, clipped: Tensor, kinds: TokenKinds) -> Shares:
    """The shares of one method's push [N, T]."""
    size, count = push.abs(), kinds.mask.sum()

    def part(kind: Tensor | None) -> float:
        return math.nan if kind is None else _over(size[kind].sum(), size.sum())

    return Shares(
        size=_over(size.sum(), count), up=part(push > 0), right=part(kinds.right), wrong=part(kinds.wrong),
        high=part(kinds.high), low=part(kinds.low), silent=_over(((push == 0) & kinds.mask).sum(), count),
        clipped=_over(clipped.sum(), count),
    )  # fmt: skip


def of_tokens(kinds: TokenKinds) -> Shares:
    """The shares of a push that is equal on all tokens, as a reference for the methods' shares."""
    equal = shares(kinds.mask.double(), torch.zeros_like(kinds.mask), kinds)
    return replace(equal, size=math.nan, up=math.nan, silent=math.nan, clipped=math.nan)


def cosine(a: Tensor, b: Tensor) -> float:
    """The cosine of two pushes [N, T] as vectors over all tokens; NaN if one is 0 everywhere.

    >>> round(cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])), 6)
    0.707107
    """
    # Scaled first, so that squares of small numbers do not vanish.
    a, b = (x.double() / (x.abs().max() or 1.0) for x in (a, b))
    return _over((a * b).sum(), a.norm() * b.norm())


def _over(a: Tensor, b: Tensor) -> float:
    # As Python floats, because torch rounds a quotient of integers to float32.
    return float(a) / float(b) if b else math.nan


SHADES = 9  # number of shades for a cosine: colours d0..d8 of the style sheet
COLUMNS = {
    "right": "right", "wrong": "wrong", "high": "high H", "low": "low H", "up": "up", "silent": "no push",
    "clipped": "clipped",
}  # fmt: skip


def angle(x: float) -> str:
    """A cosine with three decimals; a dash if it is undefined.

    >>> angle(0.98765), angle(-0.5), angle(float("nan"))
    ('0.988', '−0.500', '–')
    """
    return "–" if math.isnan(x) else f"{x:.3f}".replace("-", "−")


def shade(cosine: float) -> str:
    """The CSS class of a cosine: orange for opposite pushes, blue for equal ones.

    >>> shade(-1.0), shade(0.0), shade(1.0), shade(float("nan"))
    ('m0', 'm4', 'm8', 'mn')
    """
    return "mn" if math.isnan(cosine) else f"m{min(SHADES - 1, max(0, int((cosine + 1) / 2 * SHADES)))}"


def _cells(row: Shares) -> list[Cell]:
    cells = [Cell(number(row.size))]
    for share in (getattr(row, name) for name in COLUMNS):
        bar = '<svg class="share" viewBox="0 0 40 4" aria-hidden="true"><path class="ground" d="M0 2H40"/>'
        bar += f'<path class="part" d="M0 2H{round(40 * share, 1)}"/></svg>'
        cells.append(Cell(percent(share), picture=Markup("" if math.isnan(share) else bar)))
    return cells


@dataclass(frozen=True, eq=False)
class Explanation:
    """Every method on one recording.

    Args:
        quantile: tokens at or above this quantile of the entropy have high entropy.
        methods: the methods whose inputs the recording has, in the order given; `entries` and `table` belong to them.
        tokens: the shares of a push that is equal on all tokens.
        refused: (label, reason) of the other methods.
    """

    recording: Recording
    quantile: float
    kinds: TokenKinds
    entries: tuple[Entry, ...]
    methods: tuple[MethodPush, ...]
    table: tuple[Shares, ...]
    tokens: Shares
    cosines: tuple[tuple[float, ...], ...]
    refused: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(method.label for method in self.methods)

    @property
    def groups(self) -> int:
        return int(self.recording.rollouts.group.max()) + 1

    @property
    def title(self) -> str:
        rollouts, groups = self.recording.rollouts, self.groups
        step = "" if self.recording.step is None else f"step {self.recording.step}: "
        several, tokens = "" if groups == 1 else "s", int(rollouts.mask.sum())
        return f"{step}{len(rollouts):,} responses in {groups:,} group{several}, {tokens:,} tokens"

    @property
    def verdict(self) -> str:
        """A sentence: which methods push most and least alike, or for a single method on which tokens it pushes."""
        names, pairs = [shortened(label) for label in self.labels], []
        for i, row in enumerate(self.cosines):
            pairs += [(x, f"{names[j]} and {names[i]}") for j, x in enumerate(row[:i]) if not math.isnan(x)]
        if pairs:
            (least, apart), (most, alike) = min(pairs), max(pairs)
            if len(pairs) == 1:
                return f"The pushes of {alike} have cosine {angle(most)}."
            return f"{alike} push most alike (cosine {angle(most)}), {apart} least ({angle(least)})."
        where = {"right responses": "right", "tokens of high entropy": "high"}
        parts = [
            f"{percent(getattr(row, key))} of its push on {what}"
            for row in self.table[:1]
            for what, key in where.items()
            if not math.isnan(getattr(row, key))
        ]
        return f"{names[0]} puts {' and '.join(parts)}." if parts and len(names) == 1 else ""

    @property
    def tables(self) -> list[Table]:
        """The table of shares, of all tokens and of each method's push; with several methods also that of cosines."""
        names = [shortened(label) for label in self.labels]
        rows = [Row("(all tokens)", _cells(self.tokens), apart=True), *map(Row, names, map(_cells, self.table))]
        result = [Table(["method", "size", *COLUMNS.values()], rows, visible(self.title, limit=200))]
        if len(names) > 1:
            rows = [
                Row(f"{place} {name}", [Cell(angle(x), kind=shade(x)) for x in row])
                for place, (name, row) in enumerate(zip(names, self.cosines, strict=True), start=1)
            ]
            result.append(Table(["method", *map(str, range(1, len(names) + 1))], rows, "cosine"))
        return result

    @property
    def legend(self) -> list[str]:
        lines = [
            "push = −M ∂L/∂lp of a token, M = all response tokens; size: mean |push|; then the share of Σ|push| on "
            "tokens of right and wrong responses, of high and low entropy H, and on tokens pushed up; no push, "
            "clipped: share of the tokens."
        ]
        if len(self.methods) > 1:
            lines.append("cosine: of the pushes of two methods as vectors over all tokens; 1 is the same direction.")
        if self.kinds.threshold is not None:
            nats = number(self.kinds.threshold)
            lines.append(f"High H: at or above the {self.quantile:g} quantile of the entropy, {nats} nats.")
        return lines


def objectives(entries: Sequence[Entry], correction: str | None) -> list[Objective]:
    """The objectives of the entries, each with the correction for the sampling policy, if one is named."""
    built = [build_entry(entry) for entry in entries]
    return [extended(one, correction=correction, labels={"correction": "--correction"}) for one in built]


def explain_all(
    recording: Recording, entries: Sequence[Entry], quantile: float = 0.8, correction: str | None = None
) -> Explanation:
    """Explains every method whose inputs the recording has; the others are rejected with the reason.

    Tokens at or above `quantile` of the entropy have high entropy; `correction` is applied to every method.
    """
    if not 0 <= quantile <= 1:
        raise TokenPOError(f"--entropy-quantile {quantile:g} lies outside [0, 1]: give a fraction such as 0.8")
    built, refused = [], []
    for entry, objective in zip(entries, objectives(entries, correction), strict=True):
        if reason := missing(entry.label, objective, recording):
            refused.append((entry.label, reason))
        else:
            built.append((entry, objective))
    if not built:
        raise TokenPOError("; ".join(reason for _, reason in refused))
    methods = tuple(push_of(entry.label, objective, recording) for entry, objective in built)
    kinds = TokenKinds.of(recording, quantile)
    return Explanation(
        recording, quantile, kinds, entries=tuple(entry for entry, _ in built), methods=methods,
        table=tuple(shares(method.push, method.clipped, kinds) for method in methods), tokens=of_tokens(kinds),
        cosines=tuple(tuple(cosine(a.push, b.push) for b in methods) for a in methods), refused=tuple(refused),
        notes=tuple(_notes(recording, kinds, methods, correction)),
    )  # fmt: skip


def _notes(
    recording: Recording, kinds: TokenKinds, methods: Sequence[MethodPush], correction: str | None
) -> Iterator[str]:
    yield from recording.notes
    if recording.moved:
        yield (
            "The policy has moved since it sampled: shown is what an update would do now. --first-update shows the "
            "first one, at ratio 1."
        )
    else:
        yield (
            "The policy is the one that sampled: ratios to it are 1, and no clip acts. With what a later policy says "
            "of the same tokens (`logprob`) clips show."
        )
    if kinds.right is None or kinds.wrong is None:
        yield "No response says whether it is `correct`: shares on right and wrong ones are unknown."
    elif not (kinds.right | kinds.wrong).equal(kinds.mask):
        yield "Some responses do not say whether they are `correct`: they are neither right nor wrong here."
    if kinds.threshold is None:
        yield "No entropy is recorded: shares on tokens of high and low entropy are unknown."
    if (lag := recording.lag) is not None:
        behind = lag[kinds.mask]
        share, most = percent(float((behind > 0).double().mean())), int(behind.max())
        yield f"Several policies sampled: {share} of the tokens are older than the newest, by {most} updates at most."
    if correction is not None:
        facts = recording.rollouts
        distance = (facts.old_logprob - facts.need("rollout_logprob"))[facts.mask].abs()
        mean, most = number(float(distance.mean())), number(float(distance.max()))
        yield (
            f"The policy that sampled is {mean} nats a token from the old one, and {most} at most."
            if distance.any()
            else "The policy that sampled is the old one on every token: a correction has nothing to act on."
        )
    if still := [method.label for method in methods if not method.push.any()]:
        several = "push" if len(still) > 1 else "pushes"
        yield f"{', '.join(still)} {several} no token: shares and cosines are undefined."
    for method in methods:
        yield from method.notes


def to_json(result: Explanation) -> str:
    """explain.json: the numbers of table and page; null if undefined."""
    recording, facts = result.recording, result.recording.rollouts
    of_each = zip(result.entries, result.methods, result.table, result.cosines, strict=True)
    methods = [
        {
            "label": method.label,
            "method": entry.method,
            "options": {key: toml_value(value) for key, value in entry.options},
            "objective": str(method.objective),
            **vars(row),
            "cosines": dict(zip(result.labels, cosines, strict=True)),
        }
        for entry, method, row, cosines in of_each
    ]
    record = {
        "format": 1, "title": result.title, "source": recording.source, "step": recording.step,
        "responses": len(facts), "groups": result.groups, "tokens": int(facts.mask.sum()), "moved": recording.moved,
        "entropy_quantile": result.quantile, "entropy_threshold": result.kinds.threshold,
        "share_of_tokens": {name: getattr(result.tokens, name) for name in ("right", "wrong", "high", "low")},
        "methods": methods, "refused": [{"label": label, "reason": reason} for label, reason in result.refused],
        "notes": result.notes,
    }  # fmt: skip
    return json.dumps(finite(record), indent=1, ensure_ascii=False) + "\n"


def token_lines(result: Explanation) -> Iterator[dict[str, Any]]:
    """tokens.jsonl: each method's numbers for every token, one line per response, in the order of the file."""
    for row, response in enumerate(result.recording.responses):
        inside = slice(len(response.tokens))
        methods = {
            method.label: {
                "advantage": method.advantage[row][inside].tolist(),
                "weight": method.weight[row][inside].tolist(),
                **({} if method.rejected is None else {"rejected": method.rejected[row][inside].int().tolist()}),
                "clipped": method.clipped[row][inside].int().tolist(),
                "push": method.push[row][inside].tolist(),
            }
            for method in result.methods
        }
        yield {"row": row, "group": response.group, "tokens": response.tokens, "methods": methods}
