"use strict";
// Shows other steps, prompts and responses in place of the first view. Everything it shows is in the page's data, and it
// becomes text (textContent), never markup. Colours are style rules that depend on the chosen radio button; no script.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = ["left", "right"];
  const parts = ["run", "step", "prompt", "response"];
  const single = data.runs.length === 1;
  const said = document.querySelector(".said");
  const both = document.getElementById("both");
  const together = document.getElementById("together");
  const pattern = document.querySelector(".card").cloneNode(true);

  // A view is an index for each of `parts`; response -1 is all responses to the prompt.
  const first = names.map((_, side) => view(data.views[side] ?? data.views[0]));
  let views = first;

  function view([run, step, prompt, response]) {
    return { run, step, prompt, response };
  }

  function steps(at) {
    return data.runs[at.run].steps;
  }

  function prompts(at) {
    return steps(at)[at.step].prompts;
  }

  function cards(at) {
    return prompts(at)[at.prompt].cards;
  }

  function within(index, list) {
    return Math.min(Math.max(index, 0), list.length - 1);
  }

  // The view with every index inside its list.
  function valid(at) {
    const run = within(at.run, data.runs);
    const step = within(at.step, data.runs[run].steps);
    const prompt = within(at.prompt, data.runs[run].steps[step].prompts);
    const list = data.runs[run].steps[step].prompts[prompt].cards;
    return { run, step, prompt, response: at.response < 0 ? -1 : within(at.response, list) };
  }

  // The view of another step or run that is nearest to `old`: the same step number, the same prompt, or the same place.
  function nearest(old, run, step) {
    const text = prompts(old)[old.prompt].text;
    const same = data.runs[run].steps[step].prompts.findIndex((prompt) => prompt.text === text);
    return valid({ run, step, prompt: same < 0 ? old.prompt : same, response: old.response });
  }

  function changed(old, part, index) {
    if (part === "step") return nearest(old, old.run, index);
    if (part === "run") {
      const number = steps(old)[old.step].number;
      const same = data.runs[index].steps.findIndex((step) => step.number === number);
      return nearest(old, index, same < 0 ? within(old.step, data.runs[index].steps) : same);
    }
    return valid({ ...old, [part]: index });
  }

  // The view of `run` at the same step number and prompt, or null where it has none.
  function counterpart(at, run) {
    const number = steps(at)[at.step].number;
    const step = data.runs[run].steps.findIndex((other) => other.number === number);
    if (step < 0) return null;
    const text = prompts(at)[at.prompt].text;
    const prompt = data.runs[run].steps[step].prompts.findIndex((other) => other.text === text);
    return prompt < 0 ? null : valid({ run, step, prompt, response: at.response });
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
      run: data.runs.map((run, i) => [i, run.label]),
      step: steps(at).map((step, i) => [i, String(step.number)]),
      prompt: prompts(at).map((prompt, i) => [i, prompt.label]),
      response: [...everyone, ...cards(at).map((card, i) => [i, card.label])],
    };
    const chosen = { ...at, response: cards(at).length > 1 ? at.response : 0 };
    for (const part of parts) {
      const select = document.getElementById(names[side] + "-" + part);
      if (select) fill(select, labels[part], chosen[part]);
    }
  }

  function show(side) {
    const at = views[side];
    const pane = document.getElementById(names[side]);
    pane.hidden = side === 1 && !both.checked;
    if (pane.hidden) return;
    menus(side, at);
    const step = steps(at)[at.step];
    pane.querySelector("h3").textContent = (single ? "Step " : data.runs[at.run].label + ", step ") + step.number;
    pane.querySelector(".remark").textContent = step.remark;
    pane.querySelector(".prompt").textContent = prompts(at)[at.prompt].text;
    const list = at.response < 0 ? cards(at) : [cards(at)[at.response]];
    for (const old of pane.querySelectorAll(".card")) old.remove();
    pane.querySelector(".view").append(...list.map(drawn));
  }

  // One side was moved to `at`; with "together" the other goes along, as far as its run has that step and prompt.
  function move(side, at) {
    views = views.map((old, i) => (i === side ? at : old));
    const other = 1 - side;
    if (together?.checked && both.checked && at.run !== views[other].run) {
      const there = counterpart(at, views[other].run);
      if (there) views = views.map((old, i) => (i === other ? there : old));
      said.textContent = there ? "" : "The other side has no response to this prompt at this step and stays where it was.";
      if (there) show(other);
    }
    show(side);
    write();
  }

  // The address of the page names what is shown: #by=entropy&left=0.10.1.all&right=none; run, step, prompt, response.
  function place(at) {
    return [at.run, steps(at)[at.step].number, at.prompt + 1, at.response < 0 ? "all" : at.response + 1].join(".");
  }

  function write() {
    const right = both.checked ? place(views[1]) : "none";
    const address = new URLSearchParams({ by: data.scales[chosenScale()]?.name ?? "", left: place(views[0]), right });
    history.replaceState(null, "", "#" + address);
  }

  function placed(text, otherwise) {
    const found = /^(\d{1,3})\.(-?\d{1,9})\.(\d{1,4})\.(all|\d{1,4})$/.exec(text ?? "");
    const step = (data.runs[found?.[1]]?.steps ?? []).findIndex((one) => one.number === Number(found[2]));
    if (step < 0) return otherwise;
    const response = found[4] === "all" ? -1 : Number(found[4]) - 1;
    return valid({ run: Number(found[1]), step, prompt: Number(found[3]) - 1, response });
  }

  function read() {
    const address = new URLSearchParams(location.hash.slice(1));
    const scale = data.scales.findIndex((one) => one.name === address.get("by"));
    if (scale >= 0) document.getElementById("q" + scale).checked = true;
    if (address.has("right")) both.checked = address.get("right") !== "none";
    views = names.map((name, side) => placed(address.get(name), first[side]));
    names.forEach((_, side) => show(side));
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

  function listen() {
    names.forEach((name, side) => {
      for (const part of parts) {
        const select = document.getElementById(name + "-" + part);
        select?.addEventListener("change", () => move(side, changed(views[side], part, Number(select.value))));
      }
    });
    both.addEventListener("change", () => {
      names.forEach((_, side) => show(side));
      write();
    });
    together?.addEventListener("change", () => move(0, views[0]));
    for (const radio of document.getElementsByName("quantity")) radio.addEventListener("change", write);
    document.addEventListener("keydown", walk);
    document.addEventListener("focusin", (event) => {
      const token = event.target.closest(".tokens tbody tr");
      if (token) tell(token);
    });
    window.addEventListener("hashchange", read);
  }

  for (const hidden of document.querySelectorAll(".choose, .sides")) hidden.hidden = false;
  listen();
  read();
})();
