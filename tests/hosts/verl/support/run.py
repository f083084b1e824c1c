"""A whole run of verl's main program on the CPU; importable without verl."""

import contextlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import tokenpo
from tokenpo.train.models.directory import ASSETS
from tokenpo.train.tasks import make_task

SEEN = "sampling.jsonl"  # the sampling settings of every batch that the server answered
# Of the trainer in turns.py: its methods, the variable that names others, and its log.
METHODS = "grpo dr_grpo dapo gspo tepo gtpo grpo_s tr_grpo clip_cov kl_cov lopti hapo".split()
CHOSEN, LOG = "TOKENPO_TEST_METHODS", "turns.jsonl"
TESTS = Path(__file__).parents[3]
SOURCE = Path(tokenpo.__file__).parents[1]


def model(directory: Path) -> Path:
    """The package's tiny model with <|im_end|>, which verl's agent loop asks of every Qwen3."""
    shutil.copytree(ASSETS, directory)
    file = directory / "tokenizer.json"
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    last = dict(tokenizer["added_tokens"][-1])
    tokenizer["added_tokens"].append({**last, "id": 259, "content": "<|im_end|>", "special": True})
    file.write_text(json.dumps(tokenizer), encoding="utf-8")
    return directory


def environment() -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), str(SOURCE)]),
        "VERL_PLATFORM": "cpu",
        "VERL_USE_EXTERNAL_MODULES": "hosts.verl.support.cpu",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "HYDRA_FULL_ERROR": "1",
        # A busy machine imports slowly: Ray gives its agents 15 seconds and then gives up.
        "RAY_agent_register_timeout_ms": "120000",
        "RAY_worker_niceness": "0",  # its own 15 starves a run beside other work
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
        "GLOO_SOCKET_IFNAME": "lo",
        "PYTHONUNBUFFERED": "1",
    }


# What a CPU run needs beyond the settings of the experiment.
CPU = {
    "trainer.device": "cpu",
    "actor_rollout_ref.rollout.name": "cpu",
    "actor_rollout_ref.rollout.free_cache_engine": False,
    "actor_rollout_ref.rollout.load_format": "auto",
    "actor_rollout_ref.rollout.agent.num_workers": 1,
    "actor_rollout_ref.actor.use_torch_compile": False,
    "actor_rollout_ref.actor.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.ref.fsdp_config.use_torch_compile": False,
    "actor_rollout_ref.model.use_remove_padding": False,
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    "reward.num_workers": 1,
    "data.dataloader_num_workers": 0,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "+ray_kwargs.ray_init.address": "local",  # never a cluster that happens to be there
    "ray_kwargs.ray_init.num_cpus": 16,
    "+ray_kwargs.ray_init.num_gpus": 3,  # one for a teacher
    "+ray_kwargs.ray_init.object_store_memory": 200000000,
    "+ray_kwargs.ray_init.include_dashboard": False,
}
# The same of a critic, whose model is one more.
CRITIC = {
    "critic.strategy": "fsdp2",
    "critic.fsdp.use_torch_compile": False,
    "critic.model.use_remove_padding": False,
    "critic.model.enable_gradient_checkpointing": False,
    "+critic.model.override_config.attn_implementation": "sdpa",
}
# verl computes in bf16 where nothing is said.
FLOAT32 = {
    f"+actor_rollout_ref.{role}.fsdp_config.mixed_precision.{kind}_dtype": "fp32"
    for role in ("actor", "ref")
    for kind in ("param", "reduce", "buffer")
}


def problems(folder: Path, train: int, test: int) -> dict[str, Any]:
    """Writes sums on a dial in verl's columns; the settings that name the files, and the reward function below."""
    import pyarrow
    import pyarrow.parquet

    folder.mkdir(parents=True)
    with closing(make_task("dial_sum", {}, 0)) as task:
        for split, count in (("train", train), ("test", test)):
            rows = [
                {
                    "data_source": "dial_sum",
                    "prompt": [{"role": "user", "content": problem.prompt}],
                    "reward_model": {"style": "rule", "ground_truth": problem.reference},
                    "extra_info": {"index": index},
                }
                for index, problem in enumerate(task.problems(split, 0, count))
            ]
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / f"{split}.parquet")
    files = {"data.train_files": folder / "train.parquet", "data.val_files": folder / "test.parquet"}
    return {**files, "reward.custom_reward_function.path": __file__}


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: Any = None) -> dict[str, float]:
    right = float(solution_str.rpartition("#")[2] == ground_truth)
    return {"score": right, "acc": right}


def documented() -> dict[str, str]:
    """The settings of the command in docs/verl.md."""
    page = (TESTS.parent / "docs" / "verl.md").read_text(encoding="utf-8")
    (command,) = (
        block for block in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "+algorithm.tokenpo.report" in block
    )
    _, _, given = command.partition("verl.trainer.main_ppo")
    return dict(word.split("=", 1) for word in shlex.split(given.replace("\\\n", " ")))


def main_ppo(
    settings: Mapping[str, Any], directory: Path, timeout: float, server: str = "cpu", env: Mapping[str, str] = {}
) -> str:
    """Runs the main program in `directory`; its output."""
    given = {**CPU, **FLOAT32, **settings, "actor_rollout_ref.rollout.name": server}
    words = [f"{key}={value}" for key, value in given.items()]
    return as_given([sys.executable, "-m", "verl.trainer.main_ppo", *words], directory, timeout, env)


def as_given(command: list[str], directory: Path, timeout: float, env: Mapping[str, str] = {}) -> str:
    """Runs a command in `directory`; its output. A Ray that did not come up is started once more.

    Args:
        env: variables beside `environment()`.

    Raises:
        AssertionError: it failed; the message ends with its last lines.
    """
    log = directory / "output.txt"
    for _ in range(2):
        with log.open("w") as stream:
            done = _to_the_end(command, directory, stream, timeout, env)
        text = log.read_text(errors="replace")
        if "timed out during startup" not in text:
            break
    assert done == 0, f"exit code {done}: {text[-6000:]}"
    return text


def _to_the_end(command: list[str], directory: Path, stream: Any, timeout: float, env: Mapping[str, str]) -> int | None:
    """The exit code, None where time ran out; nothing that the process started lives on."""
    settings = {**environment(), **env, "TOKENPO_TEST_SEEN": str(directory / SEEN)}
    started = subprocess.Popen(
        command, cwd=directory, env=settings, stdout=stream, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        return started.wait(timeout)
    except subprocess.TimeoutExpired:
        return None
    finally:
        kill(session(started.pid))


def session(leader: int) -> list[int]:
    """The processes of the session that the leader began, Ray's included, from /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(fields[3]) == leader:
                    found.append(int(entry.name))
    return sorted(found)


def kill(processes: list[int]) -> None:
    for number in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)


def plain(text: str) -> str:
    """Output without the names that Ray puts before the lines of its processes."""
    return re.sub(r"\x1b\[\d+m|\([A-Za-z]\w* pid=\d+\) ?", "", text)
