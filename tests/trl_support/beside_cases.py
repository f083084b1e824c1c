"""The runs of `beside_run.py`: micro-batches of ours whose loss TRL evaluates too."""

from typing import Any

from .beside import schedule

# Two micro-batches of an update, four updates on the same rollout batch.
SCHEDULE = schedule(4, 2, iterations=4, max_steps=4)
# Two updates to a pass over the rollout batch, two passes; a second rollout batch.
STALE = schedule(4, 2, chunks=4, iterations=2, max_steps=8)
ROWS = {
    "per_device_train_batch_size": 8,
    "gradient_accumulation_steps": 1,
    "generation_batch_size": 16,
    "num_iterations": 2,
    "max_steps": 4,
}
# Three rows of each rank in a micro-batch: of three groups the second lies on both.
SPLIT = schedule(3, 2, iterations=4, max_steps=4)
GRPO = {"loss_type": "grpo"}
DAPO = {"high": 0.2, "dual": None}
# Two thirds of the ids end a response, so that a third of the responses is truncated.
ENDS = [3, 174]


def _trls(name: str, theirs: dict[str, Any], method: str = "grpo", **settings: Any) -> dict[str, Any]:
    """Ours beside TRL's own loss. Keywords are our settings, but for `options`, `schedule`, `ends` and `served`."""
    given = {key: settings.pop(key) for key in ("options", "rewards", "schedule", "ends", "served") if key in settings}
    usual = {"options": {}, "rewards": ["sums"], "schedule": SCHEDULE}
    return {**usual, **given, "name": f"trls-{name}", "method": method, "theirs": theirs, "settings": settings}


_BOUNDED = {"vllm_importance_sampling_clip_min": 0.1, "vllm_importance_sampling_clip_max": 1.5}
_TRUNCATED = {"method": "dapo", "options": DAPO, "mask_truncated_completions": True}
TRLS = [
    _trls("beta", GRPO, beta=0.3),
    _trls("beta-own-pass", GRPO, beta=0.3, fused_objective=False),
    _trls(
        "moving-reference", GRPO, beta=0.3, sync_ref_model=True, ref_model_sync_steps=1, ref_model_mixup_alpha=0.5,
        schedule=STALE,
    ),
    _trls("temperature", GRPO, temperature=1.3),
    _trls("two-rewards", GRPO, rewards=["sums", "lengths"]),
    _trls("stale", GRPO, schedule=STALE),
    _trls("rows", GRPO, schedule=ROWS),
    _trls("truncated", {}, **_TRUNCATED, ends=ENDS),
    _trls("all-truncated", {}, **_TRUNCATED, ends=[0, 1]),
    _trls("vllm", GRPO, served=True, **_BOUNDED),
    _trls("off-policy-mask-vllm", GRPO, schedule=STALE, served=True, off_policy_mask_threshold=1e-3),
]  # fmt: skip
TRLS_TWO = [
    _trls("dapo", {}, "dapo", options=DAPO, schedule=SPLIT),
    _trls("beta", GRPO, beta=0.3, schedule=SPLIT),
    _trls("truncated", {}, **_TRUNCATED, ends=ENDS, schedule=SPLIT),
    _trls("vllm", GRPO, served=True, schedule=SPLIT, **_BOUNDED),
]
# The fields that these cases set; `frozen_run.built` gives the size of a group, its longest response and weights.
SHOWN = {name for case in TRLS for name in (*case["settings"], *case["schedule"])}
SHOWN |= {"num_generations", "max_completion_length", "reward_weights"}
