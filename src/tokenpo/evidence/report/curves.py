"""Which metrics share a chart, in which unit, and what a reader should look for in it."""

from __future__ import annotations

from collections.abc import Sequence

from ...runs.read import METRICS, NOTE, Number, Run
from ..page.chart import Chart, Line
from ..page.text import visible

MOST_OTHER = 12


def charts(run: Run) -> tuple[list[Chart], list[str]]:
    """The charts that this run has numbers for, and the names of metrics that none of them draws."""
    drawn = [*_outcome(run), _entropy(run), *_update(run), *_rollouts(run), _time(run), *_rest(run)]
    others = [name for name in run.names if name not in METRICS and _has(run, name)]
    drawn += [_other(run, name) for name in others[:MOST_OTHER]]
    return [chart for chart in drawn if chart.lines], others[MOST_OTHER:]


def _has(run: Run, name: str) -> bool:
    return any(y is not None for _, y in run.series(name))


def _line(
    run: Run,
    name: str,
    label: str,
    colour: int,
    *,
    span: tuple[str, str] | None = None,
    shade: str = "",
    dashed: bool = False,
    dots: bool = False,
) -> Line:
    ends: Sequence[tuple[float, Number, Number]] = ()
    if span and all(_has(run, end) for end in span):
        low, high = (dict(run.series(end)) for end in span)
        ends = [(x, low.get(x), high.get(x)) for x, _ in run.series(name)]
    return Line(label, run.series(name), colour, dashed=dashed, dots=dots, span=ends, shaded=bool(shade), shade=shade)


def _chart(
    run: Run,
    title: str,
    unit: str,
    text: str,
    metrics: Sequence[tuple[str, str, int]],
    *,
    fraction: bool = False,
    low: float | None = 0.0,
    high: float | None = None,
    log: bool = False,
    stacked: bool = False,
) -> Chart:
    lines = [_line(run, name, label, colour) for name, label, colour in metrics if _has(run, name)]
    return Chart(title, unit, text, lines, fraction=fraction, low=low, high=high, log=log, stacked=stacked)


def _outcome(run: Run) -> list[Chart]:
    lines = []
    same = run.series("reward") == run.series("accuracy")
    if _has(run, "eval/accuracy"):
        lines.append(_line(run, "eval/accuracy", "held-out, greedy", 1, span=("eval/low", "eval/high"), dots=True))
    if _has(run, "eval/avg"):
        ends = ("eval/avg_low", "eval/avg_high")
        lines.append(_line(run, "eval/avg", "held-out, sampled", 2, span=ends, dots=True))
    if _has(run, "accuracy"):
        lines.append(_line(run, "accuracy", "training, sampled" + (" (= reward)" if same else ""), 0))
    text = "Share of right answers; the whiskers are the interval of the held-out evaluation."
    accuracy = Chart("Accuracy", "share of answers", text, lines, fraction=True, high=1.0, always=True)
    if same and lines and not _has(run, "eval/reward"):
        return [accuracy]
    rewards = [_line(run, "reward", "training", 0)] if _has(run, "reward") else []
    for name, label, colour in (("eval/reward", "held-out, greedy", 1), ("eval/avg_reward", "held-out, sampled", 2)):
        if _has(run, name):
            rewards.append(_line(run, name, label, colour, span=(f"{name}_low", f"{name}_high"), dots=True))
    return [accuracy, Chart("Reward", "mean", "Mean reward of the responses, before shaping.", rewards)]


def _entropy(run: Run) -> Chart:
    text = "How undecided the policy is. A fall to zero early on is the entropy collapse: nothing left to explore."
    lines = []
    if _has(run, "entropy"):
        lines.append(
            _line(run, "entropy", "mean", 0, span=("entropy_q10", "entropy_q90"), shade="10 % to 90 % of tokens")
        )
    if _has(run, "entropy_q50"):
        lines.append(_line(run, "entropy_q50", "median", 2, dashed=True))
    return Chart("Entropy", "nats per token", text, lines)


def _update(run: Run) -> list[Chart]:
    ratio = _line(run, "ratio_mean", "mean", 0, span=("ratio_min", "ratio_max"), shade="smallest to largest")
    return [
        Chart(
            "Ratio",
            "new / old probability, log scale",
            "As the method forms it, of a token or of its response: how far the policy moved within one step.",
            [ratio] if _has(run, "ratio_mean") else [],
            low=None,
            log=True,
        ),
        _chart(
            run,
            "Clipped tokens",
            "share of tokens",
            "Tokens whose gradient the trust region cut off, and on which side.",
            [("clip_fraction", "all", 0), ("clip_high_fraction", "above", 1), ("clip_low_fraction", "below", 2)],
            fraction=True,
        ),
        _chart(
            run,
            "KL moved",
            "nats per token",
            "Distance between the policy before and after a step; spikes mean steps too large.",
            [("kl", "new against old (k3)", 0)],
        ),
        _chart(run, "Gradient norm", "before clipping", "Spikes come before collapses.", [("grad_norm", "norm", 0)]),
        _chart(
            run,
            "Skipped updates",
            "per step",
            "Updates left out because a loss or a gradient was not finite; the log says which.",
            [("skipped_updates", "skipped", 0)],
        ),
    ]


def _rollouts(run: Run) -> list[Chart]:
    return [
        _chart(
            run,
            "Response length",
            "tokens",
            "Growth with rising accuracy is reasoning; growth without it is padding.",
            [("length", "mean", 0), ("length_max", "longest", 2), ("eval/length", "held-out, mean", 1)],
        ),
        _chart(
            run,
            "Truncated",
            "share of responses",
            "Responses that hit the limit before they ended.",
            [("truncated", "without an end", 0)],
            fraction=True,
        ),
        _chart(
            run,
            "Learning signal",
            "share",
            "Groups whose rewards are all equal teach nothing; effective tokens are those with a coefficient.",
            [
                ("effective_tokens", "effective tokens", 0),
                ("zero_advantage_groups", "zero-advantage groups", 1),
                ("discarded_groups", "discarded groups", 2),
            ],
            fraction=True,
            high=1.0,
        ),
    ]


def _other(run: Run, name: str) -> Chart:
    shown = visible(name.removeprefix(NOTE), limit=60)
    if name.startswith(NOTE):
        text = "Responses of which the verifier noted this; timeouts and crashes that stay are the verifier's fault."
        return _chart(run, f"Verifier: {shown}", "share of responses", text, [(name, shown, 0)], fraction=True)
    text = "Not a metric this report knows; drawn as it was logged."
    return _chart(run, shown, "", text, [(name, shown, 0)], low=None)


def _time(run: Run) -> Chart:
    return _chart(
        run,
        "Time",
        "seconds per step",
        "Where a step's time goes; the parts are stacked.",
        [("seconds_rollout", "rollout", 0), ("seconds_update", "update", 1), ("seconds_other", "other", 2)],
        stacked=True,
    )


def _rest(run: Run) -> list[Chart]:
    text = "Its value says little about learning: at the first update of a rollout it is near zero by construction."
    return [
        _chart(run, title, unit, text, [(name, title.lower(), 0)], low=None)
        for name, title, unit, text in (
            ("loss", "Loss", "objective's own unit", text),
            ("lr", "Learning rate", "per step", "The schedule as it ran."),
            ("temperature_mean", "Sampling temperature", "mean over tokens", "Moves only when the method adapts it."),
        )
    ]
