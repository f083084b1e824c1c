"""`tokenpo exact` as a user calls it: table, numbers, page; a method of one's own is one more row."""

import errno
import itertools
import json
import math
import re
from pathlib import Path

import pytest

from counted_studies import EXACT, counted
from page_laws import stands_alone
from page_tree import read_html
from tokenpo.base import files
from tokenpo.cli.main import main
from tokenpo.lab.estimate import Estimate, Number
from tokenpo.lab.exact import page, study, table
from tokenpo.lab.exact.contestant import Contestant
from tokenpo.lab.exact.table import CATALOGUE
from tokenpo.lab.exact.worlds import LARGE, WORLDS
from tokenpo.methods import method


def test_numbers(made):
    rows = study.load(made / "all.json")
    assert list(rows) == ["dapo", "exact credit", "still"]
    (cell,) = rows["still"].cells.values()
    assert set(cell.numbers) == {key for key in CATALOGUE if not key.endswith("sound")} | {
        f"{where}/{key}" for where in ("train", "noisy") for key in ("batches", "J", "entropy", "length")
    } | {f"{p}/{key}" for p in ("late", "stuck") for key in ("single", "snr", "entropy", "length", "deciding")}
    # On policy the clip does nothing; after a drift toward the gradient it leaves less than DAPO's.
    assert cell.numbers["init/captured"].value == pytest.approx(0, abs=1e-9)
    assert cell.numbers["drift/toward"].value < rows["dapo"].cells["two_modes"].numbers["drift/toward"].value
    assert rows["exact credit"].cells["two_modes"].numbers["init/captured"].value == 1
    assert cell.curve[0] == pytest.approx(0.4)


def test_goes_on_and_keeps_what_is_known(made, tmp_path, monkeypatch, capsys):
    """A method of one's own is always run, as its code may have changed, and first: its mistakes are found at once."""
    monkeypatch.chdir(made)
    runs, file = counted(monkeypatch, made / "all.json"), tmp_path / "all.json"
    file.write_bytes(Path("all.json").read_bytes())
    before = study.load(file)["dapo"].cells["two_modes"]
    command = ["exact", "gspo", "--world", "two_modes", "--json", str(file)]
    assert main([*command, "mine.py:still"]) == 0
    both = capsys.readouterr().out
    assert main(command) == 0
    assert runs == ["still", "gspo"] and list(study.load(file)) == ["dapo", "exact credit", "gspo", "still"]
    assert study.load(file)["dapo"].cells["two_modes"].numbers["init/useful"] == before.numbers["init/useful"]
    alone = capsys.readouterr().out
    assert all("useful progress" in out and "gspo" in out and "dapo" in out for out in (both, alone))
    assert "still" in both and "still" not in alone, "of a file with many methods, those that were asked for"


def row(label: str, **values: float) -> study.Row:
    cells = {world: study.Cell({"init/useful": Number(x, 0.01), "train/batches": Number(x, 0.01)}, Estimate(x))
             for world, x in values.items()}  # fmt: skip
    return study.Row(label, "", cells)


def test_a_sentence_says_in_how_many_worlds_a_method_is_better_than_dapo():
    base, perfect = row("dapo", a=0.5, b=0.5, c=0.5), row("exact credit", a=1, b=1, c=1)
    late, other = row("late", a=0.6, b=0.4, c=0.51), row("other", a=0.6, b=0.6, c=math.inf)
    useful, batches = table.CATALOGUE["init/useful"], table.CATALOGUE["train/batches"]
    assert table.verdict([base, perfect, late], "abc", useful) == (
        "useful progress, at the initial policy: late is better than DAPO in 1 and worse in 1 of 3 worlds."
    )
    assert (
        "late is better than DAPO in 1 and worse in 1 of 3 worlds; other is better than DAPO in 0 and worse in 3"
        in (table.verdict([base, perfect, late, other], "abc", batches))
    )
    many = [base, *(row(f"m{i}", a=0.6, b=0.5 + 0.1 * (i > 1), c=0.5) for i in range(4)), other]
    assert "3 of 5 methods are better than DAPO in most of 3 worlds; most often other, in 3." in (
        table.verdict(many, "abc", useful)
    )
    assert table.verdict([base, late], "abc", table.CATALOGUE["init/entropy"]) == ""
    assert table.verdict([base, perfect], "abc", useful) == ""


def test_on_a_full_disk_the_table_is_printed(made, tmp_path, monkeypatch, capsys):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.chdir(made)
    monkeypatch.setattr(files, "sync", full)
    file = tmp_path / "all.json"
    assert main(["exact", "mine.py:still", "--world", "two_modes", "--json", str(file)]) == 2
    said = capsys.readouterr()
    assert "useful progress" in said.out and "still" in said.out and not list(tmp_path.iterdir())
    last = said.err.splitlines()[-1]
    assert last == f"tokenpo: cannot write {file}: No space left on device; give another place"


def test_another_program_or_objective_is_another_study(monkeypatch):
    world, known, runs = WORLDS["two_modes"](), {}, counted(monkeypatch, EXACT)

    def again(low: float = 0.2) -> list[str]:
        runs.clear()
        made = study.all_rows([Contestant("x", method("grpo", low=low))], [world], known)
        known.update({row.label: row for row in made})
        return list(runs)

    assert again() == ["dapo", "exact credit", "x"]
    assert again() == []
    assert again(low=0.1) == ["x"]
    monkeypatch.setattr(study, "program", lambda objective: "another")
    assert again(low=0.1) == ["dapo", "exact credit", "x"]


def test_page(made):
    html, script = (made / "x.html").read_text(encoding="utf-8"), (page.HERE / "exact.js").read_text(encoding="utf-8")
    stands_alone(html, script)
    tree = read_html(html)
    assert "1 world" in tree.one("h1").text
    assert [node.all("h3")[0].text for node in tree.all("article")] == ["two_modes"]
    rows = study.load(made / "all.json")
    rows["still"].label = "<script>alert(1)</script>\u202e"
    html = page.render(list(rows.values()), [WORLDS["two_modes"]()])
    stands_alone(html, script)
    assert "alert(1)&lt;/script&gt;" in html


@pytest.mark.parametrize("name", LARGE)
def test_a_large_world_is_drawn_in_the_room_of_a_card(name):
    """Eleven columns of states at most as wide as usual; circles of radius 6 that do not touch."""
    svg = page.draw(LARGE[name]())
    (width,) = re.findall(r'viewBox="0 0 ([\d.]+)', svg)
    columns = sorted({float(x) for x in re.findall(r'cx="([\d.]+)"', svg)})
    assert float(width) <= 2 * page.MARGIN + 10 * page.COLUMN
    assert min(b - a for a, b in itertools.pairwise(columns)) > 2 * page.RADIUS


def test_file_is_json_with_null_for_what_is_not_finite(tmp_path):
    numbers = {"train/batches": study.Number(math.inf), "train/entropy": study.Number(math.nan)}
    row = study.Row("x", "text", {"two_modes": study.Cell(numbers, study.Estimate(0.5, (0.4, 0.6)), [0.1], "code")})
    found = study.load(study.save([row], tmp_path / "x.json"))["x"].cells["two_modes"]
    assert found.numbers["train/batches"].value == math.inf
    assert math.isnan(found.numbers["train/entropy"].value)
    assert (found.useful, found.curve, found.code) == (study.Estimate(0.5, (0.4, 0.6)), [0.1], "code")
    json.loads((tmp_path / "x.json").read_text(), parse_constant=lambda name: pytest.fail(name))
