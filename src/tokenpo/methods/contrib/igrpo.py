"""iGRPO: GRPO on responses to prompts that contain the best of several drafts.

    d_1, ..., d_drafts ~ π_old(· | x),   d* = the draft of the largest reward
    o_1, ..., o_G ~ π_old(· | x, d*),    the group that is compared and trained on
    A_i, J as in GRPO, every probability given x and d*

From the abstract and summaries: drafts are sampled, the best by the same reward is appended to the prompt, GRPO trains
on the refinements alone, and a test asks once, without drafts. Ours: 8 drafts; the words of the template; the first of
equal drafts; beta = 0 and clip 0.2/0.2 as in our GRPO; drafts have the responses' length limit and temperature.
Departures: unknown, as the paper's body was not read.
Note: drafts cost sampled tokens: `continued_tokens` of a run counts them. At equal budgets, as in the paper, drafts and
responses together are as many as the responses of GRPO.
Note: a second prompt without room for a response stops the run and names the problem. A loop of your own makes the
prompt by `objective.credit.by.prompt(prompt, draft)`.
Reductions: without a draft in the prompt it is GRPO; the loss itself is GRPO's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from torch import Tensor

from ...base.errors import TokenPOError
from ...core.facts import COUNT, Fact
from ...core.objective import Objective
from ...core.parts import GroupAdvantage, Sampler, Supplied
from ...core.ranges import Count
from ...core.types import Rollouts
from ..compositions import grpo
from ..options import Beta, High, Low
from ..paper import Paper

TEMPLATE = "{prompt}\n\nA draft of an answer:\n{draft}\n\nImprove it, or write a better one.\n"
Prompt = str | Sequence[Mapping[str, Any]]


class Drafts(Supplied):
    """How many drafts are sampled for a problem, and how the best draft is put into its prompt.

    The best draft has the largest reward; of equal ones the first sampled is taken. Drafts are not trained on.

    Args:
        count: number of drafts.
        template: text of the second prompt, in which {prompt} and {draft} are replaced by the first prompt and the
            best draft.
    """

    gives, unread = "drafts", True
    fact = Fact("number of drafts of which the prompt shows the best", COUNT, shape="[N]")
    count: Count = 8
    template: str = TEMPLATE

    def __post_init__(self) -> None:
        super().__post_init__()
        if "{draft}" not in self.template:
            raise TokenPOError(f"Drafts: the template {self.template!r:.80} names no {{draft}}: say where it stands")

    def supply(self, rollouts: Rollouts, sampler: Sampler) -> Tensor:
        return torch.full_like(rollouts.group, self.count)

    def prompt(self, prompt: Prompt, draft: str) -> str | list[dict[str, Any]]:
        """The second prompt, as text or chat messages; of messages, the template is applied to the last one."""
        if not isinstance(prompt, str):
            *before, last = prompt
            return [*map(dict, before), {**last, "content": self.prompt(last["content"], draft)}]
        values = {"{prompt}": prompt, "{draft}": draft}
        return re.sub("|".join(map(re.escape, values)), lambda match: values[match[0]], self.template)


class RefinedAdvantage(GroupAdvantage):
    """`GroupAdvantage` of responses to prompts that show a draft."""

    by: Drafts = Drafts()


@Paper(
    "iGRPO: Self-Feedback-Driven LLM Reasoning",
    "2602.09000",
    "second-hand + reconstructed",
    "only the abstract and summaries were read; the page names what is ours",
)
def igrpo(
    *,
    drafts: Annotated[Count, "number of drafts sampled for each problem; they are not trained on"] = 8,
    template: Annotated[str, "second prompt: {prompt} is the first, {draft} the draft of largest reward"] = TEMPLATE,
    low: Low = 0.2,
    high: High = 0.2,
    beta: Beta = 0.0,
) -> Objective:
    """GRPO on responses to prompts that contain the best of several drafts."""
    credit = RefinedAdvantage(by=Drafts(drafts, template))
    return dataclasses.replace(grpo(low=low, high=high, beta=beta), credit=credit)
