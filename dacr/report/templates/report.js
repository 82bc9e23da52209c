"use strict";
// Fills "Machine and time" from provenance.js. Only textContent: the notes are data, never markup.
(() => {
  const notes = Array.isArray(window.DACR_PROVENANCE) ? window.DACR_PROVENANCE : [];
  const place = document.getElementById("provenance");
  if (!place || notes.length === 0) return;

  const element = (tag, text, parent) => {
    const node = document.createElement(tag);
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
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

  place.replaceChildren();
  const facts = element("dl", undefined, place);
  facts.className = "facts";
  const fact = (name, text) => {
    if (text === "") return;
    const pair = element("div", undefined, facts);
    element("dt", name, pair);
    element("dd", text, pair);
  };
  const total = notes.reduce((sum, n) => sum + (typeof n.seconds === "number" ? n.seconds : 0), 0);
  fact("Time in learn and consolidate", duration(total));
  fact("Started", shown(distinct("started").sort()[0]));
  fact("Device", distinct("device").join(", "));
  fact("Processor", distinct("processor").join(", "));
  fact("Instruction set", distinct("instructions").join(", "));
  fact("Threads", distinct("threads").join(", "));
  fact("Platform", distinct("platform").join(", "));
  fact("Python", distinct("python").join(", "));
  fact("PyTorch", distinct("torch").join(", "));
  const images = notes.reduce((sum, n) => sum + (typeof n.images === "number" ? n.images : 0), 0);
  if (images > 0) fact("Images trained on", images.toLocaleString("en"));
  const flops = notes.reduce((sum, n) => sum + (typeof n.flops_estimate === "number" ? n.flops_estimate : 0), 0);
  if (flops > 0) {
    fact("Work of training, estimated", `${(flops / 1e12).toPrecision(3)} TFLOP (3 forward passes of the trained ` +
      "network and 1 of each frozen one an image; heads, losses and teachers not counted)");
  }
  fact("Git revision", distinct("git_revision").map((r) => String(r).slice(0, 12)).join(", ") +
    (notes.some((n) => n.dirty) ? " with uncommitted changes" : ""));

  const packages = new Map(notes.flatMap((n) => Object.entries(n.packages ?? {})).map(([name, version]) => [`${name} ${version}`, 0]));
  if (packages.size > 0) fact("Packages", [...packages.keys()].sort().join(", "));

  const details = element("details", undefined, place);
  element("summary", "Every session", details);
  const frame = element("div", undefined, details);
  frame.className = "scroll";
  const table = element("table", undefined, frame);
  table.className = "numbers";
  const head = element("tr", undefined, element("thead", undefined, table));
  for (const name of ["session", "stage", "time", "images", "images a second"]) {
    element("th", name, head).scope = "col";
  }
  const body = element("tbody", undefined, table);
  for (const note of notes) {
    const row = element("tr", undefined, body);
    const rate = typeof note.images_per_second === "number" ? note.images_per_second.toFixed(0) : "–";
    for (const text of [shown(note.session), shown(note.stage), duration(note.seconds), shown(note.images), rate]) {
      element("td", text, row);
    }
  }
})();
