"""The table of methods: names, papers, options and their words hold together, and mistakes are named."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import json
import pkgutil
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

import tokenpo
from tokenpo.core.parts import Clip, FixedBounds, GroupAdvantage, GroupOverlong, ReferenceKl, SoftOverlong
from tokenpo.methods import METHODS, gtpo, hapo, options_of, paper


@pytest.mark.parametrize("name", METHODS)
def test_a_method_has_one_name_and_says_what_its_options_mean(name: str) -> None:
    build = METHODS[name]
    assert name == build.__name__ == build().name == getattr(tokenpo.methods, name).__name__
    shown = inspect.getdoc(build) or ""
    for key, option in options_of(build).items():
        assert option.words and not option.words.endswith("."), key
        assert f"\n    {key}: {option.words}" in shown
        assert option.default is None or not option.choices or option.default in option.choices, key
        for choice in option.choices:
            assert f'"{choice}"' in shown, f"{key}={choice}"


def test_no_file_was_forgotten() -> None:
    """Every builder with a paper, in whichever file of the package, has its line in the table."""
    modules = [
        importlib.import_module(f"tokenpo.methods.{x.name}") for x in pkgutil.iter_modules(tokenpo.methods.__path__)
    ]
    found = {name for module in modules for name, x in vars(module).items() if hasattr(x, "paper")}
    assert found == set(METHODS)


CODE = """
import tokenpo
from tokenpo import Objective

known: Objective = tokenpo.methods.hapo(low=0.1)
misspelt = tokenpo.methods.hapo(lwo=0.1)
of_another_kind = tokenpo.methods.hapo(low="0.1")
no_choice = tokenpo.methods.hapo(entropy="present")
none: Objective = tokenpo.methods.dapo(dual=None)
by_name: Objective = tokenpo.method("hapo", low=0.1)
"""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("pyright") is None, reason="pyright is not installed")
def test_a_type_checker_knows_the_options(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(CODE)
    source = str(Path(tokenpo.__file__).parents[1])
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"include": ["code.py"], "extraPaths": [source]}))
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "--outputjson", "-p", str(tmp_path)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False, timeout=300).stdout)
    wrong = [CODE.splitlines()[x["range"]["start"]["line"]].partition(" ")[0] for x in found["generalDiagnostics"]]
    assert wrong == ["misspelt", "of_another_kind", "no_choice"]


def test_an_objective_without_a_name_gets_that_of_its_function(tmp_path: Path) -> None:
    made = "tokenpo.Objective(of.credit, of.surrogate, of.aggregate"
    lines = ["import tokenpo", "of = tokenpo.methods.grpo()", f"def mine(): return {made})"]
    lines += [f"def other(): return {made}, name='its own')", "def whole(): return of"]
    (tmp_path / "late.py").write_text("\n".join(lines))
    names = {x: tokenpo.method(f"{tmp_path}/late.py:{x}").name for x in ("mine", "other", "whole")}
    assert names == {"mine": "mine", "other": "its own", "whole": "grpo"}


def test_tepo_takes_gspos_clip() -> None:
    from tokenpo.methods.tepo import GSPO_CLIP

    assert tokenpo.method("tepo", **GSPO_CLIP).surrogate.bounds == FixedBounds(3e-4, 4e-4)


def test_tr_grpo_warns_only_where_its_weight_would_be_clipped_away(recwarn: pytest.WarningsRecorder) -> None:
    tokenpo.method("tr_grpo")
    tokenpo.method("tr_grpo", weight_placement="ratio", upper=1.2)
    assert not recwarn.list
    with pytest.warns(UserWarning, match=r"a weight above 1\.2 clips confident correct tokens, and it may be 1\.4"):
        tokenpo.method("tr_grpo", weight_placement="ratio")


def test_redistribution_may_be_nothing() -> None:
    """beta 0 is a factor of 1, and allowed; the builder leaves the stage out."""
    from tokenpo.methods.hapo import Redistribution

    score = tokenpo.method("hapo").weights[0].score
    assert Redistribution(0.0, score).beta == 0


@pytest.mark.parametrize("name", METHODS)
def test_a_method_is_a_value(name: str) -> None:
    """Frozen, equal to itself built again, hashable; its builder by name and by attribute are the same."""
    one, other = tokenpo.method(name), getattr(tokenpo.methods, name)()
    assert one == other
    assert hash(one) == hash(other)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.name = "another"


@pytest.mark.parametrize("name", METHODS)
def test_every_method_names_its_paper(name: str) -> None:
    source = paper(name)
    assert re.fullmatch(r"\d{4}\.\d{5}", source.arxiv)
    assert re.fullmatch(r"(v\d+(\.\.v\d+)?)?", source.version)
    assert source.reference.startswith(f"arXiv:{source.arxiv}")
    assert source.reference == source.reference.strip()


@pytest.mark.parametrize("name", METHODS)
def test_code_that_was_read_is_named(name: str) -> None:
    """Repository, commit and file, or package, version and file: for every provenance "code", and for no other."""
    source = paper(name)
    read = r"([\w.-]+/[\w.-]+@[0-9a-f]{7}|(trl|verl) \d+\.\d+\.\d+):[\w./-]+\.(py|sh)"
    wanted = rf"{read}(; {read})*" if source.provenance == "code" else ""
    assert re.fullmatch(wanted, source.code), f"{name}: {source.provenance}, {source.code!r}"


def test_a_version_under_an_identifier_of_its_own_is_named() -> None:
    source = paper("tepo")
    assert (source.version, source.later) == ("v1", ("v2", "2604.12736"))
    assert source.reference == "arXiv:2510.09369 v1; v2 is 2604.12736"


def test_unknown_names_name_the_nearest() -> None:
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'grop': did you mean 'grpo'\?$"):
        tokenpo.method("grop")
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'xyzzy': known: adv_reweight, "):
        paper("xyzzy")
    with pytest.raises(tokenpo.UnknownName, match=r"^no method is called 'gpro': did you mean 'grpo'\?$"):
        tokenpo.method("gpro")
    for build in (lambda: tokenpo.method("dapo", hihg=1), lambda: tokenpo.methods.dapo(hihg=1)):
        with pytest.raises(tokenpo.UnknownName, match=r"^method dapo has no option 'hihg'; did you mean 'high'\?$"):
            build()


def test_options_that_switch_a_stage_on() -> None:
    """Of each option that adds a stage: the stage is there, and its values are the option's."""
    assert tokenpo.method("dapo", overlong_length=20, overlong_cache=4).shaping == (SoftOverlong(20, 4),)
    assert tokenpo.method("grpo", beta=0.04).penalties == (ReferenceKl(0.04),)
    for name in ("gtpo", "grpo_s"):
        shaping = tokenpo.method(name, group_overlong=True, threshold=0.5).shaping
        assert shaping == (GroupOverlong(easy=0.5, scale=0.5, threshold=0.5),)
        assert tokenpo.method(name, threshold=0.5).credit.threshold == 0.5
    assert tokenpo.method("tr_grpo", beta=0.1).penalties == (ReferenceKl(0.1),)
    assert tokenpo.method("adv_reweight", beta=0.0).penalties == ()
    assert tokenpo.method("tepo", beta=0.0).penalties == ()


def test_hapos_parts_switch_off_alone() -> None:
    full = tokenpo.method("hapo")
    plain = Clip(FixedBounds(0.2, 0.2), dual=10.0)
    assert tokenpo.method("hapo", tau=0.0) == dataclasses.replace(full, temperature=None)
    assert tokenpo.method("hapo", beta=0.0) == dataclasses.replace(full, weights=())
    assert tokenpo.method("hapo", alpha=0.0) == dataclasses.replace(full, surrogate=plain)
    assert tokenpo.method("hapo", token_mean_advantage=False) == dataclasses.replace(full, credit=GroupAdvantage())


def test_stages_of_one_paper_have_its_defaults() -> None:
    """For who mixes them by hand."""
    assert gtpo(a1=2.0, a2=0.3).credit == type(gtpo().credit)(2.0, 0.3)
    assert tokenpo.methods.grpo_s(b1=2.0, b2=0.3).credit == type(tokenpo.methods.grpo_s().credit)(2.0, 0.3)
    assert hapo().credit == type(hapo().credit)()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("dapo", {"overlong_length": 8}, "dapo: the soft overlong penalty needs both overlong_length and"),
        ("dapo", {"overlong_cache": 8}, "dapo: the soft overlong penalty needs both overlong_length and"),
        (
            "dapo",
            {"overlong_length": 4, "overlong_cache": 8},
            "dapo: cache of SoftOverlong is 8, expected a whole number in 1..4, the length",
        ),
        ("gtpo", {"entropy_clamp": (0.3, 0.2)}, "gtpo: entropy_clamp is (0.3, 0.2), expected (low, high) with"),
        ("gtpo", {"entropy_clamp": (-0.1, 0.2)}, "gtpo: entropy_clamp is (-0.1, 0.2), expected (low, high) with"),
        (
            "gtpo",
            {"entropy_clamp": (0.1, 0.2, 0.3)},
            "gtpo: option entropy_clamp = (0.1, 0.2, 0.3) must be two numbers",
        ),
        ("hapo", {"beta": 1.01}, "hapo: beta is 1.01, expected a number in [0, 1], or advantages would change sign"),
        ("hapo", {"beta": -0.1}, "hapo: beta is -0.1, expected a number in [0, 1], or advantages would change sign"),
        (
            "hapo",
            {"low": 0.6, "alpha": 1.0},
            "hapo: low · (1 + alpha) of AdaptiveBounds is 1.2, expected a number in [0, 1]",
        ),
    ],
)
def test_options_out_of_range_are_refused(name: str, options: dict, message: str) -> None:
    with pytest.raises(tokenpo.TokenPOError, match=re.escape(message)):
        tokenpo.method(name, **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("gtpo", {"entropy_clamp": (0.0, 0.0)}),
        ("gtpo", {"entropy_clamp": (0.2, 0.28)}),
        ("hapo", {"low": 0.5}),
        ("hapo", {"high": 0.0, "low": 0.0}),
        ("hapo", {"low": 0.8, "alpha": 0.25}),
        ("gtpo", {"entropy_clamp": (0.0, 0.3)}),
        ("gmpo", {"low": 0.0, "high": 0.0}),
        ("s_grpo", {"fraction": 1.0, "always": 0}),
        ("sent", {"strong": 0.0, "weak": 0.0, "fraction": 1.0, "low_entropy": 1.0}),
        ("skywork_entropy", {"delta": 0.0, "start": 0.005}),
    ],
)
def test_options_on_the_edge_are_accepted(name: str, options: dict) -> None:
    assert tokenpo.method(name, **options).name == name


def test_a_length_of_zero_is_not_ignored() -> None:
    with pytest.raises(tokenpo.TokenPOError, match="dapo: overlong_length is 0, expected a whole number >= 1"):
        tokenpo.method("dapo", overlong_length=0, overlong_cache=4)
