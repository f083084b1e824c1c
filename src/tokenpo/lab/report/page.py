"""The report: one HTML file that loads nothing and can be mailed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...base.jsonl import whole_lines, with_step
from ...base.text import duration, flat, number
from ...methods import METHODS, paper
from ...records.metrics import LOGGED, NOTE, Number
from ...records.run import Run, Trace, in_words, read_run, read_trace
from ..page import frame
from ..page.chart import Chart, Line, draw
from ..page.text import paragraph, percent, visible
from .browser import browse, embed

MOST_OTHER = 12
UPDATE, REWARD = "update", "rewards/"  # TRL's number of the last update, and a mean for each reward function


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
    (Chart("KL moved", "nats per token",
           "How far a step's updates moved the policy (0 with one update); spikes mean steps too large. "
           "No line where no token was evaluated, as when all groups have equal rewards."),
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
           help="Effective tokens have a gradient. Zero-advantage groups teach nothing. Dynamic sampling leaves out "
           "discarded groups, because their rewards are all equal."), [
        Curve("effective_tokens", "effective tokens"),
        Curve("zero_advantage_groups", "zero-advantage groups", 1),
        Curve("discarded_groups", "discarded groups", 2),
    ]),
    (Chart("Time", "seconds per step", "Where a step's time goes."), [
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
    others = [name for name in run.names if name not in LOGGED and name != UPDATE and _has(run, name)]
    for name in others[:MOST_OTHER]:
        title = visible(name.removeprefix(NOTE), limit=60)
        if name.startswith(NOTE):
            text = (
                "Responses of which the verifier noted this; timeouts and crashes that stay are the verifier's fault."
            )
            chart = Chart(f"Verifier: {title}", "share of responses", text, fraction=True)
        elif name.startswith(REWARD):
            chart = Chart(f"Reward: {title.removeprefix(REWARD)}", "mean", "Mean of this reward function.", low=None)
        else:
            chart = Chart(title, "", "Not a metric this report knows; drawn as it was logged.", low=None)
        chosen.append((chart, [Curve(name, title)]))
    drawn = []
    for chart, curves in chosen:
        if lines := [_line(run, curve) for curve in curves if _has(run, curve.metric)]:
            drawn.append(replace(chart, lines=lines))
    return drawn, others[MOST_OTHER:]


MOST_POINTS = 1_000  # of a curve; no chart is as wide


def _has(run: Run, name: str) -> bool:
    return any(y is not None for _, y in run.series(name))


def _line(run: Run, curve: Curve) -> Line:
    points = run.series(curve.metric)
    every = -(-len(points) // MOST_POINTS)
    points = [*points[:-1:every], points[-1]]
    span: Sequence[tuple[float, Number, Number]] = ()
    if curve.ends and all(_has(run, end) for end in curve.ends):
        low, high = map(dict, map(run.series, curve.ends))
        span = [(x, low.get(x), high.get(x)) for x, _ in points]
    return Line(curve.label, points, curve.colour, curve.dashed, curve.dots, span, bool(curve.shade), curve.shade)


HERE = Path(__file__).parent
FIRST, MOST_REWARDED = 3, 12  # steps and responses of the list of rewarded ones
WIDE, NARROW = 8, 3  # numbers per row of the readout


def write_report(run_dir: Path | str, out: Path | str | None = None) -> Path:
    """Draws a run directory as one self-contained HTML file: `out`, or report.html in the directory.

    A Content-Security-Policy allows its only script by hash and forbids everything else. Parts that could not be read
    (a cut line, a missing trace) are named on the page. Equal runs give equal bytes.

    Raises:
        TokenPOError: no run directory, no metrics, or `out` cannot be written.
    """
    run = read_run(run_dir)
    target = Path(out) if out is not None else run.path
    return frame.write(render(run, read_trace(run.path)), target / "report.html" if target.is_dir() else target)


def render(run: Run, trace: Trace) -> str:
    task = _setting(run, "task.name") or "an unnamed task"
    browser = browse(trace)
    drawn, undrawn = charts(run)
    outcomes, held_out = _outcomes(run)
    # The places of the readout's numbers, which need more rows in a narrow window.
    rules = [rule for i, scale in enumerate(browser.scales) for rule in scale.rules(i)] if browser else []
    if browser:
        columns = len(browser.scales) + 1
        rules += [*_readout(columns, WIDE), "@media (max-width:50rem){", *_readout(columns, NARROW), "}"]
    notes = [*run.notes, *trace.notes, *(browser.notes if browser else ())]
    return frame.render(
        HERE / "report.html", f"{_setting(run, 'method.name') or 'A run'} on {task}", rules=rules,
        script=(HERE / "report.js").read_text(encoding="utf-8") if browser else "",
        facts=[(name, text) for name, text in _facts(run) if text],
        outcomes=outcomes, held_out=held_out,
        notes=[*notes, *_undrawn(run, undrawn)],
        rewarded=_rewarded(run.path / "samples.jsonl"),
        objective=paragraph(run.objective.strip("\n"), limit=20_000),
        moving=[(chart, draw(chart)) for chart in drawn if not chart.constant],
        constant=[(chart, draw(chart)) for chart in drawn if chart.constant], browser=browser,
        data=embed(browser) if browser else "",
        software=[(_short(k), _short(v)) for k, v in list(run.versions.items())[:40]],
        config=paragraph(json.dumps(run.config, indent=2, ensure_ascii=False), limit=20_000),
    )  # fmt: skip


def _facts(run: Run) -> Iterator[tuple[str, str]]:
    """(name, value) for the head of the page; "" if unknown."""
    method, steps = _setting(run, "method.name"), run.metrics.trained
    planned = _setting(run, "train.steps")
    seconds = [run.total(name) for name in run.names if name.startswith("seconds_")]
    yield "method", method
    yield "model", _setting(run, "model.path")
    yield "task", _setting(run, "task.name")
    yield "seed", _setting(run, "seed")
    yield "steps", f"{steps:,}" if planned in ("", str(steps)) else f"{steps:,} of {planned}"
    yield "time", duration(sum(seconds)) if seconds else ""
    for label, name in (("entropy, nats", "entropy"), ("length, tokens", "length")):
        values = [y for _, y in run.series(name) if y is not None]
        yield label, f"{number(values[0])} → {number(values[-1])}" if values else ""
    if method in METHODS:
        source = paper(method)
        yield "paper", f"{source.title}, {source.reference} ({source.provenance})"


def _setting(run: Run, path: str) -> str:
    """A setting of config.json as text; "" if there is none."""
    return _short(flat(run.config).get(path))


def _short(value: Any) -> str:
    return "" if value is None else visible(str(value), limit=120)


def _rewarded(path: Path) -> list[tuple[str, str, str, str, str]]:
    """(step, reward, prompt, response, expected) of the rewarded responses in samples.jsonl, in the first steps."""
    rows = []
    for line in whole_lines(path, with_step, []) if path.is_file() else ():
        step, reward, said = line.value["step"], line.value.get("reward"), line.value.get("completion")
        if step > FIRST or len(rows) == MOST_REWARDED:
            break
        if isinstance(reward, (int, float)) and reward > 0 and isinstance(said, str):
            texts = in_words(line.value.get("prompt")), said, in_words(line.value.get("answer"))
            rows.append((number(step), number(reward), *(visible(text, limit=300) for text in texts)))
    return rows


def _undrawn(run: Run, names: Sequence[str]) -> Iterator[str]:
    if any(len(run.series(name)) > MOST_POINTS for name in run.names):
        yield f"Points of curves that have more than {MOST_POINTS:,}: every n-th is drawn."
    if names:
        more = f" and {len(names) - 40:,} more" if len(names) > 40 else ""
        yield f"Metrics that no chart shows: {', '.join(visible(name, limit=60) for name in names[:40])}{more}."


def _outcomes(run: Run) -> tuple[list[tuple[str, str, str]], bool]:
    """(step, accuracy, interval) first and last; and whether it is held-out: greedy, else sampled, else in training."""
    for name, below, above in (
        ("eval/accuracy", "eval/low", "eval/high"),
        ("eval/avg", "eval/avg_low", "eval/avg_high"),
        ("accuracy", "", ""),
    ):
        if points := [(x, y) for x, y in run.series(name) if y is not None]:
            low, high = dict(run.series(below)), dict(run.series(above))
            ends = dict((points[0], points[-1])).items()
            found = [(f"step {number(x)}", percent(y), _interval(low.get(x), high.get(x))) for x, y in ends]
            return found, name != "accuracy"
    return [], False


def _interval(low: Number, high: Number) -> str:
    return "" if low is None or high is None else f"{100 * low:.3g}–{percent(high)}"


def _readout(columns: int, per_row: int) -> Iterator[str]:
    """Style rules that place the numbers of the token under the pointer at the foot of the window."""
    rows = -(-columns // per_row)
    yield f".readout{{height:{2.7 * rows + 0.3:.1f}rem}}.tokens td,.readout b{{width:{100 / per_row:.2f}%}}"
    for i in range(columns):
        left, bottom = 100 * (i % per_row) / per_row, 2.7 * (rows - 1 - i // per_row) + 0.4
        both = f".tokens td:nth-of-type({i + 1}),.readout b:nth-of-type({i + 1})"
        yield f"{both}{{left:{left:.2f}%;bottom:{bottom:.1f}rem}}"
