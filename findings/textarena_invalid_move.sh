#!/usr/bin/env bash
# Package: textarena 0.7.4.
# Expectation: an invalid move that ends a game earns the least there is, in games for one as in games for two.
# Behaviour: in a game for two the offender gets -1 and the other 1. In a game for one the second invalid move in a row
#   ends the game with the share reached so far: walk towards the goal and then into the wall, or guess once and then
#   repeat the guess, and keep more than half. A policy that cannot finish learns to break off.
# Output seen: FrozenLake 0.5, Mastermind 0.375, GuessTheNumber 0.63, each with invalid_move True; TicTacToe -1 and 1.
# In tokenpo: it plays no games; docs/verifiers.md says to pay a game only where info["invalid_move"] is False.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install -q --no-compile --disable-pip-version-check textarena==0.7.4
"$folder/venv/bin/python" - <<'PY'
import textarena


def play(name, moves, players):
    game = textarena.make(name)
    game.reset(num_players=players, seed=3)
    for move in moves:
        game.get_observation()
        done, _ = game.step(action=move)
        if done:
            break
    rewards, info = game.close()
    offenders = [x for x in info if info[x]["invalid_move"]]
    print(f"{name}: rewards {rewards}, invalid move by {offenders}")
    assert len(offenders) == 1
    return rewards


assert play("TicTacToe-v0", ["[4]", "[4]", "[4]"], 2) == {0: 1, 1: -1}
share = {"FrozenLake-v0": ["[right]"] * 9, "Mastermind-v0": ["[1 2 3 4]"] * 9, "GuessTheNumber-v0": ["[1]"] * 9}
seen = {name: play(name, moves, 1)[0] for name, moves in share.items()}
assert seen["FrozenLake-v0"] == 0.5 and seen["Mastermind-v0"] == 0.375 and seen["GuessTheNumber-v0"] > 0.5, seen
PY
