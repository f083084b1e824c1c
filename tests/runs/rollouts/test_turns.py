"""Rollouts of a task that answers its responses: the mask, and the facts of turns made of the scores."""

from __future__ import annotations

import pytest
import torch

from tokenpo.base.errors import TokenPOError
from tokenpo.models import load, locate
from tokenpo.models.sampler import Sampling
from tokenpo.runs.rollouts.draw import Called, Draw, draw
from tokenpo.runs.rollouts.experience import credited, facts
from tokenpo.tasks import Problem, Score, Turn
from tokenpo.tasks.dial_sum import DialCalculator

PROBLEM = Problem("3-9+6*6=", "0")


@pytest.fixture(scope="module")
def drawn() -> Draw:
    return draw(load(locate("tiny")), DialCalculator(call_reward=0.25), "train", 0, 4, 4, Sampling(48, seed=3))


def test_a_response_holds_the_answers_outside_the_mask(drawn):
    """The text is the whole of it, and every answer in it is what the calculator says of the text before it."""
    lm, task, inserted = load(locate("tiny")), DialCalculator(), 0
    for row, text in enumerate(drawn.completions):
        problem = drawn.problems[row // 4]
        ids, mask = drawn.token_ids[row].tolist(), drawn.mask[row].tolist()
        length = max(i for i, sampled in enumerate(mask) if sampled) + 1
        assert lm.decode(ids[:length]) == text
        for place in range(1, length):
            answer = task.reply(problem, lm.decode(ids[:place]))
            assert mask[place] == (answer is None)
            if answer is not None:
                inserted += 1
                assert lm.decode([ids[place]]) == answer
        assert (ids[length - 1] in lm.eos_ids) == bool(drawn.finished[row])
    assert inserted > 16
    assert Called(lm, task, drawn.problems).ends == frozenset(lm.inserted("="))


def test_the_facts_of_turns(drawn):
    """Turns are runs of the mask; a reward stands at the last token of its turn; equal states have one number."""
    rollouts = facts(drawn)
    found = credited(drawn, rollouts, frozenset())
    assert found.keys() == {"rewards", "turn", "anchor", "token_reward"}
    torch.testing.assert_close(found["token_reward"].sum(1), rollouts.reward)
    torch.testing.assert_close(found["rewards"].sum(1), rollouts.reward)
    states: dict[tuple[int, str], set[int]] = {}
    for row, score in enumerate(drawn.scores):
        places = drawn.mask[row].nonzero()[:, 0].tolist()
        turn = found["turn"][row]
        for k in range(int(turn.max()) + 1):
            mine = [place for place in places if turn[place] == k]
            assert mine == list(range(mine[0], mine[-1] + 1))
            assert not found["token_reward"][row, mine[:-1]].any()
            if k < int(turn.max()):
                assert float(found["token_reward"][row, mine[-1]]) == score.turns[k].reward
            states.setdefault((row // 4, score.turns[k].state), set()).update(found["anchor"][row, mine].tolist())
    assert all(len(numbers) == 1 for numbers in states.values())
    assert len({*map(tuple, states.values())}) == len(states)


def _drawn(*scores: Score) -> Draw:
    """Responses of three tokens; the second of the first one is a tool's."""
    mask = torch.tensor([[True, False, True]] + [[True] * 3] * (len(scores) - 1))
    zeros = torch.zeros(mask.shape)
    rows = dict.fromkeys(("logprob", "entropy", "rollout_logprob"), zeros)
    return Draw(
        start=0, problems=[PROBLEM], prompts=[[1]], token_ids=zeros.long(), mask=mask, temperature=zeros + 1, base=1.0,
        prompt=torch.zeros(len(scores)).long(), finished=mask.any(1), completions=[""] * len(scores),
        scores=list(scores), **rows,
    )  # fmt: skip


def test_a_task_without_a_tool_has_one_turn_and_one_reward():
    kept = _drawn(Score(0.5, True), Score(0.25, True))
    kept = Draw(**{**vars(kept), "mask": torch.ones(2, 3, dtype=torch.bool)})
    assert credited(kept, facts(kept), frozenset({"old_entropy"})) == {}
    found = credited(kept, facts(kept), frozenset({"rewards", "turn", "anchor", "token_reward"}))
    assert found["rewards"].tolist() == [[0.5], [0.25]]
    assert found["token_reward"].tolist() == [[0, 0, 0.5], [0, 0, 0.25]]
    assert not found["turn"].any() and not found["anchor"].any()


def test_turns_that_a_cut_response_never_had_arrive_with_its_last_and_scores_that_do_not_fit_are_refused():
    kept = _drawn(Score(1.0, True, turns=(Turn(0.25, "a"), Turn(0.25, "b"), Turn(0.5, "c"))))
    assert credited(kept, facts(kept), frozenset())["token_reward"].tolist() == [[0.25, 0, 0.75]]
    few = _drawn(Score(1.0, True, turns=(Turn(1.0, "a"),)))
    with pytest.raises(TokenPOError, match="response 0 has 2 turns, and the task told of 1: give one for each"):
        credited(few, facts(few), frozenset())
    odd = _drawn(Score(1.0, True, rewards={"a": 1.0}), Score(1.0, True, rewards={"b": 1.0}))
    with pytest.raises(TokenPOError, match="scored response 0 by a and response 1 by b: let it name the same rewards"):
        credited(odd, facts(odd), frozenset())
