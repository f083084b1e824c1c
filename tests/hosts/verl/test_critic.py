"""verl's critic is fitted to the method's returns, and its own loss on them is `Objective.value_loss`."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from verl.workers.utils.losses import value_loss

import tokenpo
from hosts.verl.support import batches
from hosts.verl.support.composed import composed
from tokenpo.base.errors import Unsupported, refuse
from tokenpo.core.types import Totals
from tokenpo.hosts.verl import lacking
from tokenpo.hosts.verl.configure import configure
from tokenpo.hosts.verl.layout import credit_fields, dealt


@pytest.mark.parametrize(("ranks", "micro", "padding"), [(1, 16, ()), (2, 3, (0, 5, 6, 17))])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("ppo", {"critic_lam": 0.8, "gamma": 0.9, "value_clip": 0.1}),
        ("ppo", {"value_clip": float("inf")}),
        ("vapo", {}),
    ],
)
def test_its_loss_is_ours(name: str, options: dict, ranks: int, micro: int, padding: tuple[int, ...]) -> None:
    objective, sample = tokenpo.method(name, **options), batches.both(seed=3, padding=padding)
    data = sample.data.copy()
    step, where = batches.begun(data, objective)
    rows = list(range(len(data)))
    data.update(credit_fields(objective, step.rollouts, step.credit, where, dealt(len(rows), ranks, len(rows))))
    # verl gives its own rows values too.
    data["values"] = batches.jagged([x.nan_to_num(0.5) for x in data["values"].unbind()])
    config = SimpleNamespace(cliprange_value=objective.critic.clip, loss_agg_mode="token-mean", loss_scale_factor=None)

    def loss(model_output: dict, data: object, dp_group: None) -> tuple[torch.Tensor, dict]:
        return value_loss(config, {"values": model_output["log_probs"]}, data, dp_group)[0], {}

    found, _ = batches.engine(sample, data, rows, loss, ranks, micro)
    value = sample.inputs.policy["logprob"].clone().requires_grad_()  # the engine's rows hold these numbers
    here, totals = step.rollouts, Totals.of(step.rollouts, batches.LENGTH)
    wanted = objective.value_loss(here, step.credit, value[:, : here.mask.shape[1]], totals).value
    wanted.backward()
    assert found == pytest.approx(wanted.item(), rel=1e-11)
    torch.testing.assert_close(batches.gradient(sample), value.grad, rtol=1e-11, atol=1e-14)


def test_settings_of_a_run_with_a_critic() -> None:
    """What is refused is in test_refusals.py."""
    from verl.trainer.ppo.utils import need_critic

    method = "+algorithm.tokenpo.method"
    config = composed(f"{method}=ppo", "+algorithm.tokenpo.options.value_clip=0.2")
    found = configure(config)
    assert need_critic(config) and config.critic.cliprange_value == 0.2
    assert {"set critic.enable=True (was None) for ppo", "set critic.cliprange_value=0.2 (was 0.5) for ppo"} <= {
        *found.notes
    }
    warm = composed(f"{method}=ppo", "trainer.critic_warmup=3")
    configure(warm)
    assert warm.trainer.critic_warmup == 3


def test_a_value_that_nothing_is_fitted_to_is_refused() -> None:
    unfitted = dataclasses.replace(tokenpo.method("ppo"), name="mine", critic=None)
    with pytest.raises(Unsupported, match=r"mine needs value.*Objective\(critic="):
        refuse(lacking(unfitted))
