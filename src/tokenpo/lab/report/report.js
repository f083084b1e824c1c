"use strict";
// Shows steps, prompts and responses. Everything it shows is in the page's data, and it becomes text (textContent), never
// markup. Colours are style rules that depend on the chosen radio button; no script.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = ["left", "right"];
  const parts = ["step", "prompt", "response"];
  const said = document.querySelector(".said");
  const both = document.getElementById("both");
  const pattern = document.getElementById("card").content.firstElementChild;

  // A view is an index for each of `parts`; response -1 is all responses to the prompt. First are the first and the last
  // step, at a prompt with an advantage; of a single step its first two prompts.
  const last = data.steps.length - 1;
  const views = [0, last].map((step) => ({ step, prompt: data.steps[step].live, response: -1 }));
  if (last === 0) views.forEach((at, side) => (at.prompt = Math.min(side, data.steps[0].prompts.length - 1)));

  function prompts(at) {
    return data.steps[at.step].prompts;
  }

  function cards(at) {
    return prompts(at)[at.prompt].cards;
  }

  function within(index, list) {
    return Math.min(Math.max(index, 0), list.length - 1);
  }

  // The view after a menu's choice; at another step the same prompt, or the same place.
  function changed(old, part, index) {
    const at = { ...old, [part]: index };
    if (part === "step") {
      const text = prompts(old)[old.prompt].text;
      const same = prompts(at).findIndex((prompt) => prompt.text === text);
      at.prompt = same < 0 ? within(old.prompt, prompts(at)) : same;
    }
    if (at.response >= 0) at.response = within(at.response, cards(at));
    return at;
  }

  function element(tag, text, name) {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  }

  function row(card, i, position) {
    const made = element("tr");
    const classes = data.scales.map((scale, k) => scale.key + (card.levels[k].length === 1 ? card.levels[k] : card.levels[k][i]));
    made.className = classes.join(" ") + (card.breaks.includes(i) ? " br" : "");
    const number = element("td", position);
    number.append(element("i", card.tokens[i])); // at the foot of the window
    made.append(element("th", card.tokens[i]), number);
    for (const values of card.split) made.append(element("td", values.length === 1 ? values[0] : values[i]));
    made.tabIndex = i === 0 ? 0 : -1;
    return made;
  }

  function drawn(card) {
    const made = pattern.cloneNode(true);
    const meta = made.querySelector(".meta");
    meta.replaceChildren(element("span", card.verdict, "verdict " + card.tone), " " + card.before);
    if (card.answer) meta.append(" · expected ", element("code", card.answer));
    meta.append(card.after);
    made.querySelector(".tokens").setAttribute("aria-label", "Tokens of " + card.label);
    made.querySelector("input").checked = false;
    const rows = made.querySelector("tbody");
    rows.replaceChildren();
    card.split ??= card.values.map((values) => values.split(" "));
    let position = 0;
    for (let i = 0; i < card.tokens.length; i++) {
      position += 1;
      const gap = card.gaps[i];
      if (gap) {
        position = gap[0];
        const left = element("tr", undefined, "gap");
        left.append(element("th", "… " + gap[1] + " tokens left out …"));
        rows.append(left);
      }
      rows.append(row(card, i, position));
    }
    return made;
  }

  function fill(select, labels, chosen) {
    select.replaceChildren(...labels.map((label, i) => new Option(label[1], label[0], false, label[0] === chosen)));
  }

  function menus(side, at) {
    const everyone = cards(at).length > 1 ? [[-1, "all " + cards(at).length]] : [];
    const labels = {
      step: data.steps.map((step, i) => [i, String(step.number)]),
      prompt: prompts(at).map((prompt, i) => [i, prompt.label]),
      response: [...everyone, ...cards(at).map((card, i) => [i, card.label])],
    };
    const chosen = { ...at, response: cards(at).length > 1 ? at.response : 0 };
    for (const part of parts) {
      fill(document.getElementById(names[side] + "-" + part), labels[part], chosen[part]);
    }
  }

  function show(side) {
    const at = views[side];
    const pane = document.getElementById(names[side]);
    pane.hidden = side === 1 && !both.checked;
    if (pane.hidden) return;
    menus(side, at);
    const step = data.steps[at.step];
    pane.querySelector("h3").textContent = "Step " + step.number;
    pane.querySelector(".remark").textContent = step.remark;
    pane.querySelector(".prompt").textContent = prompts(at)[at.prompt].text;
    const list = at.response < 0 ? cards(at) : [cards(at)[at.response]];
    for (const old of pane.querySelectorAll(".card")) old.remove();
    pane.querySelector(".view").append(...list.map(drawn));
  }

  function chosenScale() {
    return data.scales.findIndex((_, i) => document.getElementById("q" + i).checked);
  }

  function tell(token) {
    const cells = token.querySelectorAll("td");
    const scale = data.scales[chosenScale()];
    const number = scale ? ": " + scale.label + " " + cells[chosenScale() + 1].textContent : "";
    said.textContent = "token " + cells[0].firstChild.textContent + ", " + token.querySelector("th").textContent + number;
  }

  // Arrow keys go from token to token, Home and End to the first and last; one token of a response is in the tab order.
  function walk(event) {
    const token = event.target.closest(".tokens tbody tr");
    if (!token || event.ctrlKey || event.altKey || event.metaKey) return;
    const listed = token.closest(".card").querySelector(".more input").checked;
    const by = { ArrowRight: 1, ArrowLeft: -1, ...(listed && { ArrowDown: 1, ArrowUp: -1 }), Home: -Infinity, End: Infinity };
    if (!(event.key in by)) return;
    event.preventDefault();
    const all = [...token.parentNode.querySelectorAll("tr:not(.gap)")];
    const next = all[within(all.indexOf(token) + by[event.key], all)];
    token.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  names.forEach((name, side) => {
    for (const part of parts) {
      const select = document.getElementById(name + "-" + part);
      select.addEventListener("change", () => {
        views[side] = changed(views[side], part, Number(select.value));
        show(side);
      });
    }
  });
  both.checked = last > 0 || views[1].prompt > 0;
  both.addEventListener("change", () => show(1));
  document.addEventListener("keydown", walk);
  document.addEventListener("focusin", (event) => {
    const token = event.target.closest(".tokens tbody tr");
    if (token) tell(token);
  });
  for (const hidden of document.querySelectorAll(".choose, .sides")) hidden.hidden = false;
  names.forEach((_, side) => show(side));
})();
