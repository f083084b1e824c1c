"""`tokenpo.trl`: TRL's own documented script with one changed import, and the settings of TRL's loss."""

import json
import re
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from host_settings import TRANSLATED, Translated

import tokenpo.trl
from random_models import random_qwen
from tokenpo.base.errors import Unsupported
from tokenpo.hosts.trl.objective import chosen
from trl_support import run_python

MODEL, DATA = "Qwen/Qwen2.5-0.5B-Instruct", "trl-lib/DeepMath-103K"
# What stands in for a GPU, and for a reward that wants a package which the engines' environment lacks.
RUN = """
import json, sys
import transformers, trl.rewards

def on_cpu(self, check=transformers.TrainingArguments._validate_args):
    self.use_cpu, self.bf16, self.logging_steps = True, False, 1
    check(self)

transformers.TrainingArguments._validate_args = on_cpu
trl.rewards.accuracy_reward = lambda completions, **columns: [float(len(c[0]["content"]) % 2 == 0) for c in completions]
for name in sys.argv[1:]:
    script = {}
    exec(compile(open(name).read(), name, "exec"), script)
    json.dump(script["trainer"].state.log_history, open(name + ".json", "w"))
"""


def config(**settings: Any) -> Any:
    return tokenpo.trl.GRPOConfig("unused", use_cpu=True, bf16=False, report_to="none", **settings)


def documented() -> str:
    """The script for GRPO in the description of the TRL that is installed."""
    scripts = re.findall(r"^```python\n(.*?)^```$", metadata("trl").json["description"], re.MULTILINE | re.DOTALL)
    [script] = [one for one in scripts if "from trl import GRPOTrainer\n" in one]
    assert MODEL in script and DATA in script
    return script


def test_its_documented_script_trains_with_one_changed_import(tmp_path: Path) -> None:
    """As TRL's own: the same responses, losses and gradients, but for the 1e-4 that TRL adds to a deviation of 1/2.

    A model and data stand under the names of the script, so that nothing is downloaded and no line changed.
    """
    random_qwen(tmp_path / MODEL)
    config = tmp_path / MODEL / "config.json"  # positions for the script's 512 new tokens
    config.write_text(json.dumps(json.loads(config.read_text()) | {"max_position_embeddings": 1024}))
    (tmp_path / DATA).mkdir(parents=True)
    rows = [{"prompt": [{"role": "user", "content": f"{i}+{i}="}], "solution": str(2 * i)} for i in range(2)]
    (tmp_path / DATA / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.py").write_text(RUN)
    changed = documented().replace("trl import GRPOTrainer\n", "tokenpo.trl import GRPOTrainer\n")
    for name, script in {"theirs": documented(), "ours": changed}.items():
        (tmp_path / name).write_text(script)
    run_python("run.py", "theirs", "ours", cwd=tmp_path, timeout=550)
    theirs, ours = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("theirs", "ours"))
    steps = [step for step in ours if "reward" in step and "loss" in step]
    assert len(steps) == 6 and any(step["grad_norm"] > 0.01 for step in steps)
    for mine, step in zip(ours, theirs, strict=True):
        for name in {"reward", "num_tokens", "completions/mean_length"} & {*step}:
            assert mine[name] == step[name]
        for name in {"loss", "grad_norm", "entropy"} & {*step}:
            assert mine[name] == pytest.approx(step[name], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("row", [row for row in TRANSLATED if not row.apart], ids=lambda row: row.method)
def test_without_a_method_it_is_the_one_with_trls_loss(row: Translated) -> None:
    """`tests/foreign/test_trl_settings.py` compares the numbers of these pairs."""
    named = config(method=row.method, method_options=dict(row.options), max_completion_length=9)
    translated = config(**row.theirs, max_completion_length=9)
    assert chosen(translated) == chosen(named)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"loss_type": "bnpo"}, "loss_type = 'bnpo'"),
        ({"loss_type": "grpo", "scale_rewards": "batch"}, "scale_rewards = 'batch'"),
        ({"loss_type": "grpo", "delta": 10.0}, "delta = 10.0"),
        ({"loss_type": "dapo", "importance_sampling_level": "sequence"}, "importance_sampling_level = 'sequence'"),
        ({"top_entropy_quantile": 0.2}, "top_entropy_quantile = 0.2"),
        ({"method": "dapo", "epsilon": 0.1}, "epsilon = 0.1"),
    ],
    ids=lambda given: "-".join(given) if isinstance(given, dict) else "",
)
def test_what_no_method_computes_is_refused(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(Unsupported, match=re.escape(named)):
        config(**settings)
