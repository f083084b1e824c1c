"""Several methods on one recording: credit, weight and push of every token, shares of the push, cosines."""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from ...base.errors import TokenPOError
from ...base.jsonl import finite
from ...base.text import number
from ...core.objective import Objective
from ...methods.extensions import extended
from ...records import Recording
from ...train.recipe.command_line import Entry, toml_value
from ...train.recipe.objective import build_entry
from ..page.text import Cell, Row, Table, percent, shortened, visible
from .push import MethodPush, Shares, TokenKinds, cosine, missing, of_tokens, push_of, shares

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
    """Cells for the size and for each share, with a bar."""
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
        """The meaning of the columns."""
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
    """Explains every method whose inputs the recording has; the others are refused with the reason.

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
