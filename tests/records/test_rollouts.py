"""Recorded rollouts as JSON lines: what is read, and each mistake in one sentence.

Turns of a task with a tool.
"""

import json

import pytest
import torch

from oracle_support import ragged, tensors
from tokenpo.base.errors import MissingInput, TokenPOError
from tokenpo.core.types import Policy, Rollouts
from tokenpo.records import read, responses, step_file, write_lines
from tokenpo.train.models import load, locate
from tokenpo.train.models.sampler import Sampling
from tokenpo.train.run.rollout import Draw, credit_inputs, draw, facts
from tokenpo.train.tasks import Problem, Score, Turn
from tokenpo.train.tasks.generated import DialCalculator
from written_rollouts import FOUR, lines_of, write


def spoilt(**fields):
    """The third line with other fields; None takes one away."""
    line = {name: value for name, value in (FOUR[2] | fields).items() if value is not None}
    return [FOUR[0], FOUR[1], line, FOUR[3]]


def test_ten_lines_of_a_user(tmp_path):
    found = read(write(tmp_path / "r.jsonl"))
    facts = found.rollouts
    assert facts.mask.tolist() == [[True, True], [True, False], [True, True], [True, False]]
    assert facts.group.tolist() == [0, 0, 1, 1]
    assert facts.reward.tolist() == [1, 0, 1, 1]
    assert facts.old_logprob.tolist() == [[-0.1, -0.2], [-2.0, 0], [-0.1, -0.3], [-0.5, 0]]
    assert found.policy.logprob is facts.old_logprob or torch.equal(found.policy.logprob, facts.old_logprob)
    assert facts.old_entropy.tolist() == [[0.3, 0.1], [0.9, 0], [0.2, 0.4], [0.6, 0]]
    assert torch.equal(found.policy.entropy, facts.old_entropy)
    assert [r.prompt for r in found.responses] == ["1+1=", "1+1=", "1+2=", "1+2="]
    assert found.correct == [True, False, True, True]
    assert (found.moved, found.step, found.unread, found.notes) == (False, None, (), ())
    assert facts.old_logprob.dtype == torch.float64


def test_every_input_survives(tmp_path):
    sample = ragged(0)
    found = read(write(tmp_path / "r.jsonl", lines_of(sample)))
    field = tensors(sample, padding=0.0)
    assert found.moved
    for owner in (found.rollouts, found.policy):
        for name, x in owner.known().items():
            # Groups are numbered anew, in the order in which they appear.
            if name == "group":
                pairs = set(zip(x.tolist(), sample.group.tolist(), strict=True))
                assert len(pairs) == len(set(sample.group.tolist()))
            elif name in ("token_ids", "turn", "anchor", "version"):
                assert torch.equal(x[found.rollouts.mask], field[name][field["mask"]])
            else:
                assert torch.equal(x, field[name]), name
    # A rollout without a token stays a row: it counts in no group, but it is there.
    assert not found.rollouts.mask.any(1).all()


def test_float32_survives_as_short_decimals(tmp_path):
    n, t = 3, 4
    generator = torch.Generator().manual_seed(0)
    old = -torch.rand(n, t, generator=generator)
    facts = Rollouts(torch.ones(n, t, dtype=torch.bool), torch.tensor([0.1, 0.2, 0.3]), torch.tensor([0, 0, 0]), old)
    policy = Policy(logprob=old.double() * 1.1)
    tokens = [["a"] * t] * n
    path = write_lines(tmp_path / "new" / "r.jsonl", responses(facts, tokens, policy=policy, step=7))
    assert '"reward": 0.1,' in path.read_text()
    for line in map(json.loads, path.read_text().splitlines()):
        assert all(float(f"{x:.9g}") == x for x in line["old_logprob"])
    found = read(path)
    assert torch.equal(found.rollouts.old_logprob.float(), old)
    assert torch.equal(found.policy.logprob, policy.logprob)
    assert found.step == 7
    again = write_lines(tmp_path / "again.jsonl", found.responses)
    assert again.read_bytes() == path.read_bytes()
    assert not list(tmp_path.glob("**/.writing-*"))


def test_a_version_is_one_number_or_one_for_each_token(tmp_path):
    """Updates that the policy had had: the second response was begun by an older one than it was ended by."""
    versions = [7, [5], [5, 7], 7]
    lines = [line | {"version": version} for line, version in zip(FOUR, versions, strict=True)]
    found = read(write(tmp_path / "r.jsonl", lines))
    assert found.rollouts.version.tolist() == [[7, 7], [5, 0], [5, 7], [7, 0]]
    assert found.lag.tolist() == [[0, 0], [2, 0], [2, 0], [0, 0]]
    path = write_lines(tmp_path / "again.jsonl", found.responses)
    assert [json.loads(line)["version"] for line in path.read_text().splitlines()] == [7, 5, [5, 7], 7]
    made = responses(found.rollouts, [response.tokens for response in found.responses])
    assert [json.loads(x)["version"] for x in write_lines(path, made).read_text().splitlines()] == [7, 5, [5, 7], 7]
    alike = read(write(tmp_path / "alike.jsonl", [line | {"version": 3} for line in FOUR]))
    assert alike.lag is None and alike.rollouts.version is not None


def test_entropy_of_a_policy_that_moved_is_not_the_old_one(tmp_path):
    now = [line | {"logprob": line["old_logprob"]} for line in FOUR]
    found = read(write(tmp_path / "r.jsonl", now))
    assert found.rollouts.old_entropy is None
    assert found.policy.entropy is not None


@pytest.mark.parametrize(
    ("fields", "kind", "message"),
    [
        ({"reward": None}, MissingInput, r"no field 'reward' \(fields: group, prompt, .*\): give the number that the"),
        ({"old_logprob": None, "old_logprobs": [-1, -1]}, MissingInput, "'old_logprob' .*did you mean 'old_logprobs'"),
        ({"tokens": None}, MissingInput, "no field 'tokens' .* give one string for each response token, or token_ids"),
        ({"reward": "1"}, TokenPOError, "'reward' is '1': it should be a valid number"),
        ({"group": 1.5}, TokenPOError, "'group' is 1.5: it should be a valid integer"),
        ({"token_ids": [1]}, TokenPOError, "'token_ids' has 1 values for 2 tokens"),
        ({"kept_ids": [[1], [2, -1]]}, TokenPOError, r"'kept_ids\[1\]\[1\]' is -1: it should be greater than or equal"),
        ({"old_logprob": [-1.0]}, TokenPOError, "'old_logprob' has 1 values for 2 tokens: give one for each"),
        ({"entropy": [0.1, float("inf")]}, TokenPOError, r"'entropy\[1\]' is inf: it should be a finite number"),
        ({"old_logprob": [-1.0, 0.5]}, TokenPOError, r"'old_logprob\[1\]' is 0.5, but log-probabilities are <= 0"),
        ({"temperature": 0}, TokenPOError, r"'temperature\[0\]' is 0, but it must be > 0"),
        ({"entropy": None}, TokenPOError, "no field 'entropy', which .*line 1 has: write it for every response"),
    ],
)
def test_a_mistake_is_named_with_line_field_and_remedy(tmp_path, fields, kind, message):
    path = write(tmp_path / "r.jsonl", spoilt(**fields))
    with pytest.raises(kind, match=message) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path} line 3: ")


def test_broken_lines_are_left_out_counted_and_told(tmp_path):
    path = write(tmp_path / "r.jsonl")
    whole = path.read_text()
    path.write_text(whole[:-30])
    found = read(path)
    assert len(found.responses) == 3
    assert (
        found.notes[0] == "r.jsonl: 1 line was left out (line 4: not valid JSON, cut off while it was being written)."
    )
    assert "group b has 1" in found.notes[1]
    assert "the credit of their group is not that of the training" in found.notes[1]
    path.write_text("[1]\n" + whole + "nonsense\n")
    found = read(path)
    assert len(found.responses) == 4
    assert "2 lines were left out (line 1: a list, not an object; line 6: not valid JSON)" in found.notes[0]


def test_steps_of_one_file(tmp_path):
    lines = [line | {"step": step} for step in (10, 20) for line in FOUR]
    path = write(tmp_path / "r.jsonl", lines)
    assert (read(path).step, len(read(path).responses)) == (20, 4)
    assert read(path, 10).step == 10
    assert read(path).notes == ("r.jsonl holds 2 steps; shown is step 20.",)
    path.write_text(path.read_text() + "{")
    assert [note[:9] for note in read(path).notes] == ["r.jsonl: ", "r.jsonl h"]
    odd = read(write(path, lines[:-1])).notes[1]
    assert "if responses are missing" in odd
    with pytest.raises(TokenPOError, match=r"holds no rollouts of step 15 \(steps: 10, 20\)"):
        read(path, 15)
    with pytest.raises(TokenPOError, match=r"line 5: no field 'step'"):
        read(write(path, [*lines[:4], *FOUR]))
    with pytest.raises(TokenPOError, match=r"holds no rollouts of step 1 \(steps: none is named\)"):
        read(write(path), 1)


def test_a_run_of_trl_has_its_rollouts_one_directory_down(tmp_path):
    for step in (10, 20):
        write_lines(step_file(tmp_path / "tokenpo", step), [line | {"step": step} for line in FOUR])
    assert read(tmp_path).step == 20
    assert read(tmp_path, 10).step == 10


PARTLY = {"step": 4, "rewards": {"right": 0.5, "short": None}}
# The sampled token is among its kept ones, except where the whole vocabulary was kept.
KEPT = [
    line | {"token_ids": [7, 8][: len(line["tokens"])], "kept_ids": [[9, 7], []][: len(line["tokens"])]}
    for line in FOUR
]


@pytest.mark.parametrize("lines", [FOUR, lines_of(ragged(1)), [line | PARTLY for line in FOUR], KEPT])
def test_tensors_survive_as_lines(tmp_path, lines):
    """Every input of a batch, its texts and the numbers of a later policy, written from tensors and read again."""
    one = read(write(tmp_path / "r.jsonl", lines))
    texts = {name: [getattr(r, name) for r in one.responses] for name in ("tokens", "prompt", "group")}
    made = responses(
        one.rollouts,
        texts["tokens"],
        groups=texts["group"],
        prompts=texts["prompt"],
        correct=one.correct,
        step=one.step,
        policy=one.policy if one.moved else None,
        reward_names=one.reward_names,
    )
    two = read(write_lines(tmp_path / "again.jsonl", made))
    for owner in ("rollouts", "policy"):
        first, second = (getattr(recording, owner).known() for recording in (one, two))
        assert first.keys() == second.keys()
        for name, x in first.items():
            torch.testing.assert_close(x, second[name], rtol=0, atol=0, equal_nan=True, msg=name)
    for a, b in zip(one.responses, two.responses, strict=True):
        assert (a.tokens, a.prompt, a.group, a.correct) == (b.tokens, b.prompt, b.group, b.correct)
    assert (one.moved, one.step, one.correct) == (two.moved, two.step, two.correct)
    assert one.reward_names == two.reward_names


PROBLEM = Problem("3-9+6*6=", "0")


@pytest.fixture(scope="module")
def drawn() -> Draw:
    return draw(load(locate("tiny")), DialCalculator(call_reward=0.25), "train", 0, 4, 4, Sampling(48, seed=3))


def test_the_facts_of_turns(drawn):
    """Turns are runs of the mask; a reward stands at the last token of its turn; equal states have one number."""
    rollouts = facts(drawn)
    found = credit_inputs(drawn, rollouts, frozenset())
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
        prompt=torch.zeros(len(scores)).long(), kept_ids=None, finished=mask.any(1), completions=[""] * len(scores),
        scores=list(scores), **rows,
    )  # fmt: skip


def test_a_task_without_a_tool_has_one_turn_and_one_reward():
    kept = _drawn(Score(0.5, True), Score(0.25, True))
    kept = Draw(**{**vars(kept), "mask": torch.ones(2, 3, dtype=torch.bool)})
    assert credit_inputs(kept, facts(kept), frozenset({"old_entropy"})) == {}
    found = credit_inputs(kept, facts(kept), frozenset({"rewards", "turn", "anchor", "token_reward"}))
    assert found["rewards"].tolist() == [[0.5], [0.25]]
    assert found["token_reward"].tolist() == [[0, 0, 0.5], [0, 0, 0.25]]
    assert not found["turn"].any() and not found["anchor"].any()


def test_turns_that_a_cut_response_never_had_arrive_with_its_last():
    kept = _drawn(Score(1.0, True, turns=(Turn(0.25, "a"), Turn(0.25, "b"), Turn(0.5, "c"))))
    assert credit_inputs(kept, facts(kept), frozenset())["token_reward"].tolist() == [[0.25, 0, 0.75]]


def test_lines_of_one_trajectory(tmp_path):
    """Text or numbers, apart from each other; groups of two trajectories each are even, though one has more lines."""
    lines = [{**line, "group": "q", "trajectory": name} for line, name in zip(FOUR, ("a", 0, "a", 0), strict=True)]
    lines = [{**line, "reward": reward} for line, reward in zip(lines, (1.0, 0.0, 1.0, 0.0), strict=True)]
    more = [{**FOUR[0], "group": "r", "trajectory": i, "reward": 0.0} for i in (1, 2)]
    found = read(write(tmp_path / "r.jsonl", [*lines, *more]))
    assert found.rollouts.trajectory is not None and found.rollouts.trajectory.tolist() == [0, 1, 0, 1, 2, 3]
    assert found.notes == ()
    tokens = [response.tokens for response in found.responses]
    again = read(write_lines(tmp_path / "s.jsonl", responses(found.rollouts, tokens)))
    assert torch.equal(again.rollouts.trajectory, found.rollouts.trajectory)
    lines[2]["reward"] = 0.5
    with pytest.raises(TokenPOError, match=r"Rollouts\.reward differs in rows 0 and 2 of trajectory 0"):
        read(write(tmp_path / "t.jsonl", lines))
