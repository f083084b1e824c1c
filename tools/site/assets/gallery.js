// A card stays where, for every kind of fact with a box ticked, it has one of the ticked values, and the text is in it.
const form = document.querySelector(".filters");
const cards = [...document.querySelectorAll(".method")];

function choose() {
  const wanted = new Map();
  for (const box of form.querySelectorAll("input:checked")) wanted.set(box.name, [...(wanted.get(box.name) ?? []), box.value]);
  const text = form.elements.text.value.trim().toLowerCase();
  for (const card of cards) {
    const facts = new Set(card.dataset.facts.split("\n"));
    const fits = [...wanted].every(([kind, values]) => values.some(value => facts.has(`${kind}=${value}`)));
    card.hidden = !(fits && card.textContent.toLowerCase().includes(text));
  }
  const left = cards.filter(card => !card.hidden).length;
  form.querySelector("output").textContent = `${left} method${left === 1 ? "" : "s"}`;
}

form.addEventListener("input", choose);
form.addEventListener("reset", () => setTimeout(choose));
form.addEventListener("submit", event => event.preventDefault());
choose();
