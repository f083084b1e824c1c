"""Top-p, top-k and min-p in TRL's trainer: what is recorded is what transformers would keep. Imports TRL."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

from tokenpo.hosts.trl import TokenPOTrainer
from tokenpo.hosts.trl.forward import ROW, base_of, texts
from trl_support.small import config, even, prompts

HEAT, CUT = 0.7, {"top_p": 0.8, "top_k": 30, "min_p": 0.02}


class Watched(TokenPOTrainer):
    """Keeps the first rollout batch with transformers' logits for it, and the ratios of every micro-batch."""

    first: Any = None

    def drawn(self, inputs: Any, size: int) -> Any:
        batch = super().drawn(inputs, size)
        if self.first is None:
            length = batch.output["completion_ids"].shape[1]
            with torch.no_grad():
                logits = base_of(self)(**texts(batch.output)).logits[:, -length - 1 : -1]
            self.first, self.ratios = (batch, logits / HEAT), []
        return batch

    def _compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        value = super()._compute_loss(model, inputs)
        update = self.current.update
        rollouts, _ = update.of(inputs[ROW])
        length = inputs["completion_ids"].shape[1]
        policy = self.forward_passes.policy(model, inputs)
        apart = policy.logprob.detach() - rollouts.old_logprob[:, :length]
        self.ratios.append(float(apart[rollouts.mask[:, :length]].abs().max()))
        return value


@pytest.mark.parametrize("fused", [True, False])
def test_ratios_are_over_what_transformers_keeps(fused: bool, model_dir: Path, tmp_path: Path) -> None:
    settings = {"num_iterations": 2, "fused_objective": fused, "temperature": HEAT, "kept_tokens": True, **CUT}
    trainer = Watched(str(model_dir), even, config(tmp_path, method="dr_grpo", **settings), train_dataset=prompts())
    assert trainer.forward_passes.in_head is fused
    generate, asked = trainer.model.generate, []

    def watched(*given: Any, generation_config: Any, **named: Any) -> Any:
        asked.append([getattr(generation_config, name) for name in CUT])
        return generate(*given, generation_config=generation_config, **named)

    trainer.model.generate = watched
    trainer.train()
    assert asked and all(x == [1.0, 0, 0.0] for x in asked)  # transformers must not cut what is left again
    assert trainer.generation_config.top_p == CUT["top_p"]
    batch, logits = trainer.first
    mask, kept, ids = (batch.rows[name] for name in ("mask", "kept_ids", "token_ids"))
    flat = logits.flatten(0, 1)
    for warper in (TopKLogitsWarper(CUT["top_k"]), TopPLogitsWarper(CUT["top_p"]), MinPLogitsWarper(CUT["min_p"])):
        flat = warper(None, flat)  # pyright: ignore[reportArgumentType]
    passed = flat.view_as(logits)
    assert ((kept == ids[..., None]).any(2) | ~mask).all()
    for row, place in mask.nonzero().tolist():
        own = {i for i in kept[row, place].tolist() if i >= 0}
        assert own == set(passed[row, place].isfinite().nonzero()[:, 0].tolist())
    wanted = passed.log_softmax(-1).gather(2, ids[..., None])[..., 0]
    torch.testing.assert_close(batch.rows["old_logprob"][mask], wanted[mask], rtol=1e-5, atol=1e-5)
    assert trainer.ratios[0] < 1e-5 < 1e-3 < trainer.ratios[1]  # the second update of the same rows has moved
