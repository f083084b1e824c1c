"""`tokenpo exact` as a user calls it: table, numbers, page; a method of one's own is one more row."""

from __future__ import annotations

import itertools
import json
import math
import re
from pathlib import Path

import pytest

from page_laws import stands_alone
from page_tree import read_html
from tokenpo.cli.main import main
from tokenpo.lab.exact import drawing, page, study
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.table import CATALOGUE
from tokenpo.lab.exact.worlds import LARGE, WORLDS
from tokenpo.methods import method


def test_numbers(made: Path) -> None:
    rows = study.load(made / "all.json")
    assert list(rows) == ["dapo", "exact credit", "still"]
    (cell,) = rows["still"].cells.values()
    assert set(cell.numbers) == {key for key in CATALOGUE if not key.endswith("sound")} | {
        f"{where}/{key}"
        for where in ("small", "middle", "large", "noisy")
        for key in ("batches", "J", "entropy", "length")
    } | {f"{p}/{key}" for p in ("late", "stuck") for key in ("single", "snr", "entropy", "length", "deciding")}
    # On policy the clip does nothing; after a drift toward the gradient it leaves less than DAPO's.
    assert cell.numbers["init/captured"].value == pytest.approx(0, abs=1e-9)
    assert cell.numbers["drift/toward"].value < rows["dapo"].cells["two_modes"].numbers["drift/toward"].value
    assert rows["exact credit"].cells["two_modes"].numbers["init/captured"].value == 1
    assert cell.curve[0] == pytest.approx(0.4)


def test_goes_on_and_keeps_what_is_there(made: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    """Only what is named and not known is run: a method of one's own always, as its code may have changed."""
    monkeypatch.chdir(made)
    runs: list[str] = []
    made_by = study.study
    monkeypatch.setattr(study, "study", lambda c, *given: runs.append(c.label) or made_by(c, *given))
    before = study.load(Path("all.json"))
    assert main(["exact", "mine.py:still", "gspo", "--world", "two_modes", "--json", "all.json"]) == 0
    assert runs == ["still", "gspo"]
    assert main(["exact", "gspo", "--world", "two_modes", "--json", "all.json"]) == 0
    assert runs == ["still", "gspo"] and list(study.load(Path("all.json"))) == ["dapo", "exact credit", "gspo", "still"]
    after = study.load(Path("all.json"))["dapo"].cells["two_modes"]
    assert after.numbers["init/useful"] == before["dapo"].cells["two_modes"].numbers["init/useful"]
    out = capsys.readouterr().out
    assert "captured" in out and "still" in out and "gspo" in out


def test_a_method_of_ones_own_is_run_before_the_table(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake in it is told at once, and not after minutes."""
    monkeypatch.chdir(made)
    runs: list[str] = []
    result = study.load(Path("all.json"))["still"].cells["two_modes"]
    monkeypatch.setattr(study, "study", lambda c, *given: runs.append(c.label) or result)
    assert main(["exact", "gtpo", "mine.py:still", "--world", "two_modes"]) == 0
    assert runs == ["dapo", "exact credit", "still", "gtpo"]


def test_another_program_or_objective_is_another_study(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[str] = []

    def quick(contestant: Contestant, *given: object) -> study.Cell:
        runs.append(contestant.label)
        return study.Cell({"init/useful": study.Number(0.5, 0.1)}, study.Estimate(0.5, (0.4, 0.6)))

    monkeypatch.setattr(study, "study", quick)
    world = WORLDS["two_modes"]()

    def again(known: dict[str, study.Row], low: float = 0.2) -> list[str]:
        runs.clear()
        known |= {row.label: row for row in study.all_rows([Contestant("x", method("grpo", low=low))], [world], known)}
        return list(runs)

    known: dict[str, study.Row] = {}
    assert again(known) == ["dapo", "exact credit", "x"]
    assert again(known) == []
    assert again(known, low=0.1) == ["x"]
    monkeypatch.setattr(study, "program", lambda objective: "another")
    assert again(known, low=0.1) == ["dapo", "exact credit", "x"]


def test_page(made: Path) -> None:
    html = (made / "x.html").read_text(encoding="utf-8")
    stands_alone(html, (page.HERE / "exact.js").read_text(encoding="utf-8"))
    tree = read_html(html)
    assert "1 world" in tree.one("h1").text
    assert [node.all("h3")[0].text for node in tree.all("article")] == ["two_modes", "still"]


@pytest.mark.parametrize("name", LARGE)
def test_a_large_world_is_drawn_in_the_room_of_a_card(name: str) -> None:
    """Eleven columns of states at most as wide as usual; circles of radius 6 that do not touch."""
    svg = drawing.draw(LARGE[name]())
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+)', svg)
    columns = sorted({float(x) for x in re.findall(r'cx="([\d.]+)"', svg)})
    assert float(width) <= 2 * drawing.MARGIN + drawing._LONGER * drawing.COLUMN
    assert min(b - a for a, b in itertools.pairwise(columns)) > 2 * drawing.RADIUS


def test_a_hostile_label_is_text(made: Path) -> None:
    rows = study.load(made / "all.json")
    rows["still"].label = "<script>alert(1)</script>\u202e"
    html = page.render(list(rows.values()), [WORLDS["two_modes"]()])
    stands_alone(html, (page.HERE / "exact.js").read_text(encoding="utf-8"))
    assert "alert(1)&lt;/script&gt;" in html


def test_file_is_json_with_null_for_what_is_not_there(tmp_path: Path) -> None:
    numbers = {"middle/batches": study.Number(math.inf), "middle/entropy": study.Number(math.nan)}
    row = study.Row("x", "text", {"two_modes": study.Cell(numbers, study.Estimate(0.5, (0.4, 0.6)), [0.1], "code")})
    found = study.load(study.save([row], tmp_path / "x.json"))["x"].cells["two_modes"]
    assert found.numbers["middle/batches"].value == math.inf
    assert math.isnan(found.numbers["middle/entropy"].value)
    assert (found.useful, found.curve, found.code) == (study.Estimate(0.5, (0.4, 0.6)), [0.1], "code")
    json.loads((tmp_path / "x.json").read_text(), parse_constant=lambda name: pytest.fail(name))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grpo", "--world", "two_mode"], "did you mean 'two_modes'"),
        (["grpo", "--measure", "useful"], "measure='useful' is no choice"),
        (["grppo"], "did you mean 'grpo'"),
        (["grpo", "--json", "junk.json"], "junk.json is no file of `tokenpo exact --json`"),
    ],
)
def test_mistakes(arguments: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("junk.json").write_text("[1]")
    assert main(["exact", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
