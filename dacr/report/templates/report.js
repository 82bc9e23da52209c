"use strict";
// Fills "Headroom" and "Machine and time" from provenance.js. Only textContent: the notes are data, never markup.
(() => {
  const bound = window.DACR_BOUND;
  const section = document.getElementById("headroom");
  const own = section ? JSON.parse(section.dataset.accuracies) : [];
  if (!bound || !Array.isArray(bound.by_session) || bound.by_session.length !== own.length) return;
  const add = (tag, parent, text) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const mean = (values) => values.reduce((total, value) => total + value, 0) / values.length;
  const signed = (value) => `${value > 0 ? "+" : ""}${value.toFixed(2)}`;
  const table = add("table", section.querySelector("div"));
  table.className = "numbers";
  const head = add("tr", add("thead", table));
  for (const name of ["session", "this run, %", `${bound.label}, %`, "headroom"]) add("th", head, name).scope = "col";
  const body = add("tbody", table);
  const row = (name, mine, most) => {
    const line = add("tr", body);
    for (const text of [name, mine.toFixed(2), most.toFixed(2), signed(most - mine)]) add("td", line, text);
  };
  own.forEach((value, i) => row(String(i + 1), value, bound.by_session[i]));
  row("average", mean(own), bound.average);
  add("p", section, `Seeds of joint training: ${bound.seeds.join(", ")}.`).className = "caption";
  section.hidden = false;
})();
(() => {
  const notes = Array.isArray(window.DACR_PROVENANCE) ? window.DACR_PROVENANCE : [];
  const place = document.getElementById("provenance");
  if (!place || notes.length === 0) return;

  const element = (tag, parent, text) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    parent.append(node);
    return node;
  };
  const shown = (value) => (value === undefined || value === null ? "–" : String(value));
  const duration = (seconds) => {
    if (typeof seconds !== "number") return "–";
    if (seconds < 90) return `${seconds.toFixed(1)} s`;
    const minutes = Math.round(seconds / 60);
    return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  };
  const distinct = (key) => [...new Set(notes.map((n) => n[key]).filter((v) => v !== undefined && v !== null))];
  const sum = (key) => notes.reduce((total, n) => total + (typeof n[key] === "number" ? n[key] : 0), 0);

  place.replaceChildren();
  const facts = element("dl", place);
  facts.className = "facts";
  const fact = (name, text) => {
    if (!text) return;
    const pair = element("div", facts);
    element("dt", pair, name);
    element("dd", pair, text);
  };
  fact("Time in learn and consolidate", duration(sum("seconds")));
  fact("Started", shown(distinct("started").sort()[0]));
  for (const [name, key] of [["Device", "device"], ["Processor", "processor"], ["Instruction set", "instructions"],
    ["Threads", "threads"], ["Platform", "platform"], ["Python", "python"], ["PyTorch", "torch"]]) {
    fact(name, distinct(key).join(", "));
  }
  fact("Images trained on", sum("images") && sum("images").toLocaleString("en"));
  fact("Work of training, estimated", sum("flops_estimate") &&
    `${(sum("flops_estimate") / 1e12).toPrecision(3)} TFLOP (per image 3 forward passes of the trained network ` +
    "and 1 of each frozen one; heads, losses and teachers not counted)");
  fact("Git revision", distinct("git_revision").map((r) => String(r).slice(0, 12)).join(", ") +
    (notes.some((n) => n.dirty) ? " with uncommitted changes" : ""));
  const packages = notes.flatMap((n) => Object.entries(n.packages ?? {})).map((entry) => entry.join(" "));
  fact("Packages", [...new Set(packages)].sort().join(", "));

  const details = element("details", place);
  element("summary", details, "Every session");
  const frame = element("div", details);
  frame.className = "scroll";
  const table = element("table", frame);
  table.className = "numbers";
  const head = element("tr", element("thead", table));
  for (const name of ["session", "stage", "time", "images", "images per second"]) element("th", head, name).scope = "col";
  const body = element("tbody", table);
  for (const note of notes) {
    const row = element("tr", body);
    const rate = typeof note.images_per_second === "number" ? note.images_per_second.toFixed(0) : "–";
    const cells = [shown(note.session), shown(note.stage), duration(note.seconds), shown(note.images), rate];
    for (const text of cells) element("td", row, text);
  }
})();
