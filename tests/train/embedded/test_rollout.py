import dataclasses
import json
import math

import pytest
import torch

from run_views import lines, numbers
from tokenpo.core.head.kept import Cut
from tokenpo.core.parts import Continuations
from tokenpo.core.seeds import keyed_seed
from tokenpo.train.models import Sampling, sample
from tokenpo.train.run.loop import train
from tokenpo.train.run.rollout import _joined, draw, without_eos
from tokenpo.train.run.step import View

DYNAMIC = {"dynamic_sampling": True, "max_extra_batches": 2}


def test_a_rollout_batch_holds_the_facts_of_the_sampler(begin):
    engine, _, experience = begin(8)
    rollouts, kept = experience.rollouts, experience.kept
    assert rollouts.group.tolist() == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert [problem.prompt for problem in kept.problems] == ["8=", "9=", "10=", "11="]
    assert (experience.cursor, experience.discarded) == (12, 0.0)
    assert rollouts.mask.sum(1).unique().numel() > 2
    assert 0 < kept.finished.sum() < 16
    for row in range(16):
        ids = rollouts.token_ids[row][rollouts.mask[row]].tolist()
        assert rollouts.reward[row] == float(sum(ids) % 2 == 0)
        assert kept.completions[row] == engine.lm.decode([i for i in ids if i not in engine.lm.eos_ids])
    assert torch.equal(rollouts.old_logprob, kept.logprob)
    assert rollouts.old_entropy[rollouts.mask].min() > 0


def test_a_problem_gets_the_same_responses_in_any_batch(begin):
    early, late = (begin(cursor)[2].kept for cursor in (0, 2))
    assert early.completions[8:] == late.completions[:8]


def test_dynamic_sampling_refills_until_the_batch_is_full(begin, coin):
    coin.settled = 2
    _, _, experience = begin(rollout={**DYNAMIC, "max_extra_batches": 8})
    reward = experience.rollouts.reward.view(4, 4)
    assert all(row.unique().numel() == 2 for row in reward)
    assert experience.rollouts.group.unique().tolist() == [0, 1, 2, 3]
    drawn = [problem.answer for piece in experience.drawn for problem in piece.problems]
    assert drawn == list(range(experience.cursor))
    assert all(problem.answer % 2 for problem in experience.kept.problems)
    assert 0.5 <= experience.discarded < 1
    facts, place = experience.rollouts, {p.prompt: i for i, p in enumerate(experience.kept.problems)}
    for piece in experience.drawn:
        for i, problem in enumerate(piece.problems):
            if problem.prompt in place:
                rows = slice(4 * place[problem.prompt], 4 * place[problem.prompt] + 4)
                width = piece.mask.shape[1]
                assert torch.equal(facts.token_ids[rows, :width], piece.token_ids[4 * i : 4 * i + 4])
                assert torch.equal(facts.old_logprob[rows, :width], piece.logprob[4 * i : 4 * i + 4])


def test_a_step_with_nothing_to_learn_from_changes_nothing_and_is_logged(small, coin, tmp_path):
    coin.settled = 1
    config = small(tmp_path / "run", rollout=DYNAMIC, evaluate={"problems": 0}, train={"steps": 2})
    outcome = train(config, View())
    made = numbers(tmp_path / "run")
    assert [(line["discarded_groups"], line["groups"]) for line in made] == [(1.0, 0)] * 2
    assert (made[0]["reward"], made[0]["ratio_mean"]) == (1.0, None)
    state = json.loads((outcome.directory / "checkpoints" / "step-000002" / "state.json").read_text())
    assert (state["learner"]["updates"], state["cursor"]) == (0, 24)


def test_the_adaptive_temperature_follows_the_previous_batch(small, coin, tmp_path):
    output = {"trace_every": 1, "trace_rollouts": 8}
    config = small(tmp_path / "run", method={"name": "hapo", "tau": 0.5}, evaluate={"problems": 0}, output=output)
    train(config, View())
    heat: dict[int, list[float]] = {}
    for line in lines(tmp_path / "run", "trace.jsonl"):
        heat.setdefault(line["step"], []).extend(line["terms"]["temperature"])
    assert set(heat[1]) == {1.0}
    assert 0.5 <= min(heat[2]) < max(heat[2]) - 0.05 <= 1.45


def test_rescoring_replaces_what_the_sampler_said(small, coin, tmp_path):
    base = {"evaluate": {"problems": 0}, "train": {"steps": 1}}
    for name, rescore in (("a", False), ("b", True)):
        train(small(tmp_path / name, rollout={"rescore": rescore}, **base), View())
    (a,), (b,) = (lines(tmp_path / name) for name in "ab")
    assert a["kl"] == pytest.approx(b["kl"], rel=1e-3)
    assert a["ratio_max"] != b["ratio_max"]


LENGTH = 6


def one_by_one(engine, experience, plan: Continuations, cursor: int) -> tuple[torch.Tensor, int]:
    """Value [N, T] at the cuts and tokens drawn: a call of the sampler for each prefix, the coin's rule by hand."""
    facts, kept = experience.rollouts, experience.kept
    value, tokens, known = torch.zeros_like(facts.old_logprob), 0, {}
    seed = keyed_seed(engine.config.seed, "continuations", cursor)
    for row, t in plan.at(facts).nonzero().tolist():
        said = facts.token_ids[row, :t].tolist()
        key = (int(facts.group[row]), tuple(said))
        if key not in known:
            prompt = kept.prompts[key[0]] + said
            drawn = sample(engine.lm, [prompt], plan.count, Sampling(LENGTH - t, 1.0, seed), streams=[len(known)])
            sums = (drawn.token_ids * drawn.mask).sum(1) + sum(said)
            known[key] = float((sums % 2 == 0).double().mean())
            tokens += int(drawn.mask.sum())
        value[row, t] = known[key]
    return value, tokens


@pytest.mark.parametrize("count", [1, 3])
def test_what_is_drawn_is_what_one_call_for_each_prefix_draws(count, begin) -> None:
    """Whatever stands beside it; shared prefixes once; gains are made of these values."""
    engine, _, seen = begin(8, method={"name": "vineppo", "every": 2, "continuations": count})
    (plan,) = engine.objective.supplied
    value, tokens = one_by_one(engine, seen, plan, 8)
    facts = dataclasses.replace(seen.rollouts, extra={})
    gain = plan.gain(facts, plan.at(facts), value).float()
    assert torch.equal(seen.rollouts.extra["gain"], gain * facts.mask)
    assert seen.continued == tokens > 0
    assert value.unique().numel() > 1
    prefixes = {
        (int(facts.group[row]), tuple(facts.token_ids[row, :t].tolist()))
        for row, t in plan.at(facts).nonzero().tolist()
    }
    assert len(prefixes) < int(plan.at(facts).sum()), "the prompt of a group is a prefix that all share"


@pytest.mark.parametrize("union", [1, 2])
def test_parts_of_a_response_are_scored_by_the_task(union, begin) -> None:
    """Halves of a response of the coin, which pays an even sum: φ is half of R + v(own half) − v(other) − v(nothing).

    Two segments are one union or two, and both are Shapley's value.
    """
    engine, _, seen = begin(8, method={"name": "ospo", "segments": 2, "union": union})
    facts, even = seen.rollouts, lambda ids: float(sum(ids) % 2 == 0)
    for row in range(len(facts)):
        ids = facts.token_ids[row, facts.mask[row]].tolist()
        half = math.ceil(len(ids) / 2)
        first, last = (even(without_eos(x, engine.lm.eos_ids)) for x in (ids[:half], ids[half:]))
        whole = float(facts.reward[row])
        if len(ids) > 1:
            expected = [(whole + first - last - 1) / 2] * half + [(whole + last - first - 1) / 2] * (len(ids) - half)
        else:
            expected = [whole - 1]
        assert facts.extra["gain"][row, facts.mask[row]].tolist() == expected
    assert facts.extra["gain"].unique().numel() > 1 and seen.continued == 0


def test_the_best_draft_stands_in_the_prompt(begin) -> None:
    """The first of the best, by draws of their own; discarded groups had drafts, too, and the task sees the problem."""
    method = {"name": "igrpo", "drafts": 3, "template": "{draft}+{prompt}"}
    engine, _, seen = begin(16, method=method, rollout=DYNAMIC)
    count, seed = seen.cursor - 16, engine.config.seed
    early = Sampling(LENGTH, 1.0, keyed_seed(seed, "drafts"))
    drafts = draw(engine.lm, engine.task, "train", 16, count, 3, early)
    rewards = drafts.reward().view(count, 3).tolist()
    best = [3 * group + of.index(max(of)) for group, of in enumerate(rewards)]
    asked = [f"{drafts.completions[row]}+{problem.prompt}" for row, problem in zip(best, drafts.problems, strict=True)]
    assert [piece.asked[group] for piece in seen.drawn for group in range(len(piece.problems))] == asked
    assert 0 < sum(map(sum, rewards)) < 3 * count and any(of[0] < max(of) for of in rewards)
    assert seen.continued == int(drafts.mask.sum())
    assert seen.kept.prompts == [engine.lm.encode(prompt) for prompt in seen.kept.asked]
    assert {problem.prompt for problem in seen.kept.problems} <= {problem.prompt for problem in drafts.problems}
    place = asked.index(seen.kept.asked[0])
    late = Sampling(LENGTH, 1.0, keyed_seed(seed, "sampling"))
    again = sample(engine.lm, [seen.kept.prompts[0]], 4, late, streams=[16 + place])
    assert torch.equal(again.token_ids[again.mask], seen.kept.token_ids[:4][seen.kept.mask[:4]])


def test_the_baseline_is_the_reward_of_a_greedy_response(begin) -> None:
    """One greedy response to each kept problem, whatever else is drawn; `continued` counts its tokens too."""
    engine, _, seen = begin(8, method={"name": "remax"})
    _, _, plain = begin(8)
    assert not plain.rollouts.extra and plain.continued == 0
    assert torch.equal(seen.rollouts.token_ids, plain.rollouts.token_ids)
    tokens, rewards = 0, []
    for prompt in seen.kept.prompts:
        drawn = sample(engine.lm, [prompt], 1, Sampling(LENGTH, 0.0))
        tokens += int(drawn.mask.sum())
        rewards.append(float((drawn.token_ids * drawn.mask).sum() % 2 == 0))
    assert seen.rollouts.extra["baseline"].tolist() == [rewards[group] for group in seen.rollouts.group.tolist()]
    assert seen.continued == tokens


def test_groups_of_several_draws_keep_their_own_sets(begin) -> None:
    """Of other widths and lengths; -1 fills both up."""
    engine, _, _ = begin(rollout={"prompts": 1, "group_size": 2})

    def draws(start: int, count: int):
        sampling = Sampling(6 if start == 1 else 3, 1.0, 5, Cut(top_k=2 if start == 1 else 4))
        return draw(engine.lm, engine.task, "train", start, count, 2, sampling)

    one, two = draws(0, 1), draws(1, 1)
    joined = _joined([(one, 0), (two, 0)])
    kept, (narrow, long) = joined.kept_ids, (two.kept_ids.shape[2], two.mask.shape[1])
    assert kept.shape[1:] == (max(long, one.mask.shape[1]), max(4, narrow)) and narrow == 2
    assert torch.equal(kept[:2, : one.mask.shape[1]], one.kept_ids) and (kept[:2, one.mask.shape[1] :] == -1).all()
    assert torch.equal(kept[2:, :long, :2], two.kept_ids) and (kept[2:, :, 2:] == -1).all()
