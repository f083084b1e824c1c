"""The charts of a report: their metrics, units, and a sentence on how to read each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...records.metrics import LAGS, LOGGED, NOTE, Number
from ...records.run import Run
from ..page.chart import Chart, Line
from ..page.text import visible

MOST_OTHER = 12


@dataclass(frozen=True)
class Curve:
    """A metric as a line of a chart; `ends` are the metrics that bound it, drawn as a band if `shade` describes it."""

    metric: str
    label: str
    colour: int = 0
    ends: tuple[str, str] | None = None
    shade: str = ""
    dashed: bool = False
    dots: bool = False


def _by_lag(what: str) -> list[Curve]:
    return [
        Curve(f"lag_{least}_{what}", label, place % 3, dashed=place > 2)
        for place, (least, label) in enumerate(LAGS.items())
    ]


CHARTS: tuple[tuple[Chart, list[Curve]], ...] = (
    (Chart("Accuracy", "share of answers", fraction=True, high=1.0, always=True,
           help="Share of right answers; the whiskers are the interval of the held-out evaluation."), [
        Curve("eval/accuracy", "held-out, greedy", 1, ("eval/low", "eval/high"), dots=True),
        Curve("eval/avg", "held-out, sampled", 2, ("eval/avg_low", "eval/avg_high"), dots=True),
        Curve("accuracy", "training, sampled"),
    ]),
    (Chart("Reward", "mean", "Mean reward of the responses, before shaping."), [
        Curve("reward", "training"),
        Curve("eval/reward", "held-out, greedy", 1, ("eval/reward_low", "eval/reward_high"), dots=True),
        Curve("eval/avg_reward", "held-out, sampled", 2, ("eval/avg_reward_low", "eval/avg_reward_high"), dots=True),
    ]),
    (Chart("Entropy", "nats per token", "How undecided the policy is. A fall to zero early on is the entropy collapse: "
           "nothing left to explore."), [
        Curve("entropy", "mean", ends=("entropy_q10", "entropy_q90"), shade="10 % to 90 % of tokens"),
        Curve("entropy_q50", "median", 2, dashed=True),
    ]),
    (Chart("Ratio", "new / old probability, log scale", low=None, log=True,
           help="As the method forms it, of a token or of its response: how far the policy moved within one step."), [
        Curve("ratio_mean", "mean", ends=("ratio_min", "ratio_max"), shade="smallest to largest"),
    ]),
    (Chart("Clipped tokens", "share of tokens", fraction=True,
           help="Tokens whose gradient the trust region cut off, and on which side."), [
        Curve("clip_fraction", "all"),
        Curve("clip_high_fraction", "above", 1),
        Curve("clip_low_fraction", "below", 2),
    ]),
    (Chart("Ratio by lag", "mean, log scale", low=None, log=True,
           help="Tokens by the number of updates between the policy that sampled them and the one that learns."),
     _by_lag("ratio_mean")),
    (Chart("Clipped by lag", "share of the lag's tokens", fraction=True,
           help="Share of a lag's tokens whose gradient the trust region cut off."), _by_lag("clip_fraction")),
    (Chart("Tokens by lag", "share of tokens", fraction=True, high=1.0,
           help="How old the tokens in training are; equal shares are the minibatches of a batch."), _by_lag("share")),
    (Chart("KL moved", "nats per token",
           "Distance between the policy before and after a step; spikes mean steps too large."),
     [Curve("kl", "new against old (k3)")]),
    (Chart("Gradient norm", "before clipping", "Spikes come before collapses."), [Curve("grad_norm", "norm")]),
    (Chart("Explained variance", "of the returns, by the critic", low=None, high=1.0,
           help="1: the value foresees every return; 0: no better than a constant; below: it misleads."),
     [Curve("explained_variance", "before the updates")]),
    (Chart("KL from the teacher", "nats per token", "How far the policy is from its teacher; it falls as it learns."),
     [Curve("teacher_kl", "before the updates")]),
    (Chart("Value loss", "squared units of the reward", "How far the critic's values lie from the returns."),
     [Curve("value_loss", "mean over the updates")]),
    (Chart("Skipped updates", "per step",
           "Updates left out because a loss or a gradient was not finite; the log says which."),
     [Curve("skipped_updates", "skipped")]),
    (Chart("Response length", "tokens", "Growth with rising accuracy is reasoning; growth without it is padding."), [
        Curve("length", "mean"),
        Curve("length_max", "longest", 2),
        Curve("eval/length", "held-out, mean", 1, dots=True),
    ]),
    (Chart("Truncated", "share of responses", "Responses that hit the limit before they ended.", fraction=True),
     [Curve("truncated", "without an end")]),
    (Chart("Learning signal", "share", fraction=True, high=1.0,
           help="Groups whose rewards are all equal teach nothing; effective tokens are those with a coefficient."), [
        Curve("effective_tokens", "effective tokens"),
        Curve("zero_advantage_groups", "zero-advantage groups", 1),
        Curve("discarded_groups", "discarded groups", 2),
    ]),
    (Chart("Time", "seconds per step", "Where a step's time goes; the parts are stacked.", stacked=True), [
        Curve("seconds_rollout", "rollout"),
        Curve("seconds_update", "update", 1),
        Curve("seconds_other", "other", 2),
    ]),
    (Chart("Loss", "objective's own unit", low=None, help="Its value says little about learning: at the first update "
           "of a rollout it is near zero by construction."), [Curve("loss", "loss")]),
    (Chart("Learning rate", "per step", "The schedule as it ran.", low=None), [Curve("lr", "learning rate")]),
    (Chart("Sampling temperature", "mean over tokens", "Moves only when the method adapts it.", low=None),
     [Curve("temperature_mean", "sampling temperature")]),
)  # fmt: skip


def charts(run: Run) -> tuple[list[Chart], list[str]]:
    """The charts for which this run has numbers, and the names of metrics that no chart draws."""
    chosen = [*CHARTS]
    if run.series("reward") == run.series("accuracy"):
        chart, (*held_out, training) = chosen[0]
        chosen[0] = chart, [*held_out, replace(training, label=f"{training.label} (= reward)")]
        if not _has(run, "eval/reward"):
            del chosen[1]
    others = [name for name in run.names if name not in LOGGED and _has(run, name)]
    for name in others[:MOST_OTHER]:
        title = visible(name.removeprefix(NOTE), limit=60)
        if name.startswith(NOTE):
            text = (
                "Responses of which the verifier noted this; timeouts and crashes that stay are the verifier's fault."
            )
            chart = Chart(f"Verifier: {title}", "share of responses", text, fraction=True)
        else:
            chart = Chart(title, "", "Not a metric this report knows; drawn as it was logged.", low=None)
        chosen.append((chart, [Curve(name, title)]))
    drawn = []
    for chart, curves in chosen:
        if lines := [_line(run, curve, chart.stacked) for curve in curves if _has(run, curve.metric)]:
            drawn.append(replace(chart, lines=lines))
    return drawn, others[MOST_OTHER:]


def _has(run: Run, name: str) -> bool:
    return any(y is not None for _, y in run.series(name))


def _line(run: Run, curve: Curve, stacked: bool) -> Line:
    points, shade = run.series(curve.metric), curve.shade
    span: Sequence[tuple[float, Number, Number]] = ()
    if curve.ends and all(_has(run, end) for end in curve.ends):
        low = {x: bottom for x, bottom, _ in run.extremes(curve.ends[0])}
        high = {x: top for x, _, top in run.extremes(curve.ends[1])}
        span = [(x, low.get(x), high.get(x)) for x, _ in points]
    elif run.thinned(curve.metric) and not stacked:
        span, shade = run.extremes(curve.metric), f"{curve.label}, lowest to highest"
    return Line(curve.label, points, curve.colour, curve.dashed, curve.dots, span, bool(shade), shade)
