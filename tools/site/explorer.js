"use strict";
// Draws the pushes of the chosen methods along one fact, the others where the sliders stand.
(() => {
  const at = (id) => document.getElementById(id);
  const { facts, methods, scale } = JSON.parse(at("data").textContent);
  const [wide, tall, left, right, top, bottom, most] = [640, 400, 52, 12, 12, 44, 6];
  const usual = { accuracy: 0.5, entropy: 0.35, probability: 0.1, response_ratio: 1, ratio: 1 };
  const places = facts.map((fact) => fact.values.indexOf(usual[fact.key]));
  const boxes = [...document.querySelectorAll("#names input")];
  let along = facts.length - 1;

  for (const method of Object.values(methods)) {
    const bytes = Uint8Array.from(atob(method.pushes), (c) => c.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    method.numbers = Array.from({ length: bytes.length / 2 }, (_, i) => view.getInt16(2 * i, true) / scale);
  }

  // The push at these places of the facts; a fact that is not kept changes nothing. No ratio leads beyond p = 1.
  function push(method, where, sign) {
    const value = (key) => facts.find((f) => f.key === key).values[where[facts.findIndex((f) => f.key === key)]];
    if (value("ratio") * value("probability") > 1.0001) return NaN;
    let index = 0;
    method.shape.forEach((size, dim) => {
      const place = dim === facts.length ? sign : where[dim];
      index = index * size + (size === 1 ? 0 : place);
    });
    return method.numbers[index];
  }

  function element(name, attributes, text = "") {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  function html(name, text, className = "") {
    const made = document.createElement(name);
    made.textContent = text;
    made.className = className;
    return made;
  }

  function lines() {
    const signs = [["right", 0], ["wrong", 1]].filter(([id]) => at(id).checked);
    return boxes.filter((box) => box.checked).slice(0, most).flatMap((box, colour) =>
      signs.map(([id, sign]) => ({
        name: box.value, colour, id,
        ys: facts[along].values.map((_, i) => push(methods[box.value], places.map((p, d) => (d === along ? i : p)), sign)),
      })));
  }

  function draw() {
    const drawn = lines();
    const xs = facts[along].values.map((x) => (facts[along].key === "accuracy" ? x : Math.log(x)));
    const largest = Math.max(0.5, ...drawn.flatMap((line) => line.ys.filter((y) => !Number.isNaN(y)).map(Math.abs)));
    const limit = [0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32].find((nice) => nice >= Math.min(largest, 32) - 1e-9);
    const px = (x) => left + ((x - xs[0]) / (xs.at(-1) - xs[0])) * (wide - left - right);
    const py = (y) => top + ((1 - y / limit) / 2) * (tall - top - bottom);
    const parts = [];
    for (const y of [-limit, -limit / 2, 0, limit / 2, limit]) {
      parts.push(element("path", { class: "grid", d: `M${left} ${py(y)}H${wide - right}` }));
      parts.push(element("text", { class: "tick y", x: left - 6, y: py(y) + 4 }, String(+y.toFixed(2))));
    }
    let last = -Infinity;
    facts[along].values.forEach((value, i) => {
      if (px(xs[i]) - last < 34) return;
      last = px(xs[i]);
      parts.push(element("text", { class: "tick x", x: last, y: tall - bottom + 16 }, String(value)));
    });
    parts.push(element("text", { class: "axis", x: (left + wide) / 2, y: tall - 6 }, facts[along].title));
    for (const line of drawn) {
      let path = "", pen = "M";
      line.ys.forEach((y, i) => {
        if (Number.isNaN(y)) pen = "M";
        else [path, pen] = [`${path}${pen}${px(xs[i]).toFixed(1)} ${py(y).toFixed(1)}`, "L"];
      });
      parts.push(element("path", { class: `line c${line.colour}${line.id === "wrong" ? " dashes" : ""}`, d: path }));
    }
    at("chart").replaceChildren(...parts);
    keys(drawn);
    table(drawn);
  }

  function keys(drawn) {
    const named = new Map(drawn.map((line) => [line.name, line.colour]));
    at("keys").replaceChildren(...[...named].map(([name, colour]) => {
      const item = html("li", name), key = element("svg", { class: "key", viewBox: "0 0 22 10", "aria-hidden": "true" });
      key.append(element("path", { class: `line c${colour}`, d: "M0 5H22" }));
      item.prepend(key);
      return item;
    }));
    const chosen = boxes.filter((box) => box.checked).length;
    const all = `${chosen} of ${boxes.length} methods chosen`;
    at("remark").textContent = chosen > most ? `${all}; the first ${most} are drawn.` : `${all}.`;
    at("chart").setAttribute("aria-label", `Push along ${facts[along].title}: ${[...named.keys()].join(", ")}`);
  }

  function table(drawn) {
    const head = document.createElement("thead"), body = document.createElement("tbody"), row = head.insertRow();
    for (const text of ["method", "response", ...facts[along].values]) row.append(html("th", String(text)));
    for (const line of drawn) {
      const cells = body.insertRow();
      cells.append(html("th", line.name), html("td", line.id));
      for (const y of line.ys) cells.append(html("td", Number.isNaN(y) ? "–" : String(+y.toFixed(2))));
    }
    at("table").replaceChildren(head, body);
  }

  facts.forEach((fact, i) => {
    at("along").append(new Option(fact.title, String(i), i === along, i === along));
    const box = html("label", "", "slider"), slider = document.createElement("input"), shown = html("output", "");
    const say = () => {
      shown.textContent = String(fact.values[places[i]]);
      slider.setAttribute("aria-valuetext", shown.textContent);
    };
    Object.assign(slider, { type: "range", min: 0, max: fact.values.length - 1, step: 1, value: places[i], id: `at-${fact.key}` });
    slider.addEventListener("input", () => { places[i] = Number(slider.value); say(); draw(); });
    say();
    box.append(html("span", fact.title), shown, slider);
    box.hidden = i === along;
    at("sliders").append(box);
  });
  at("along").addEventListener("change", () => {
    along = Number(at("along").value);
    [...at("sliders").children].forEach((box, i) => { box.hidden = i === along; });
    draw();
  });
  for (const box of [...boxes, at("right"), at("wrong")]) box.addEventListener("change", draw);
  at("find").addEventListener("input", () => {
    const part = at("find").value.trim().toLowerCase();
    for (const box of boxes) box.parentElement.hidden = !box.value.includes(part);
  });
  at("explorer").hidden = false;
  draw();
})();
