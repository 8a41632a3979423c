// Draws BOARD (the dashboard's JSON) with DATA (by panel: queries, each a list of series).
// A series is {legend, labels, points: [[seconds, value], ...]}; TIME is [first, last] in seconds.
"use strict";

const COLORS = ["#73bf69", "#f2cc0c", "#8ab8ff", "#ff780a", "#f2495c", "#5794f2", "#b877d9",
  "#705da0", "#37872d", "#fade2a"];
const NAMED = { green: "#73bf69", orange: "#ff9830", red: "#f2495c", "semi-dark-blue": "#3274d9",
  yellow: "#fade2a", purple: "#b877d9" };
const CELL = 30, GAP = 8, WIDTH = document.documentElement.clientWidth - 2 * GAP;

const html = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
};
const svg = (tag, attributes, text) => {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  return node;
};

// ---- numbers -------------------------------------------------------------------------------

const scaled = (value, step, units, digits) => {
  let power = 0;
  while (Math.abs(value) >= step && power < units.length - 1) { value /= step; power += 1; }
  return trim(value, digits) + units[power];
};
const trim = (value, digits) => {
  const places = digits ?? (Math.abs(value) >= 100 || Number.isInteger(value) ? 0
    : Math.abs(value) >= 10 ? 1 : 2);
  return value.toFixed(places);
};
const seconds = (value, digits) => {
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return trim(value * 1e6, digits) + " µs";
  if (size < 1) return trim(value * 1e3, digits) + " ms";
  if (size < 60) return trim(value, digits) + " s";
  if (size < 3600) return trim(value / 60, digits) + " min";
  if (size < 86400) return trim(value / 3600, digits) + " hours";
  return trim(value / 86400, digits) + " days";
};
const FORMATS = {
  bytes: (v, d) => scaled(v, 1024, [" B", " KiB", " MiB", " GiB", " TiB"], d),
  Bps: (v, d) => scaled(v, 1000, [" B/s", " kB/s", " MB/s", " GB/s"], d),
  s: seconds,
  percentunit: (v, d) => trim(v * 100, d ?? (Math.abs(v) < 0.1 && v ? 1 : 0)) + "%",
  short: (v, d) => scaled(v, 1000, ["", " K", " Mil", " Bil"], d),
  none: (v, d) => trim(v, d),
  ops: (v, d) => scaled(v, 1000, [" ops/s", "K ops/s", "M ops/s", "G ops/s"], d),
  reqps: (v, d) => trim(v, d) + " req/s",
  dateTimeAsIso: (v) => new Date(v).toISOString().slice(0, 19).replace("T", " "),
};
const show = (value, unit, digits) =>
  Number.isFinite(value) ? (FORMATS[unit] ?? FORMATS.short)(value, digits) : "–";

const last = (series) => series.points[series.points.length - 1][1];
const colorOf = (value, thresholds) => {
  let color = NAMED.green;
  for (const step of thresholds.steps)
    if (step.value === null || value >= step.value) color = NAMED[step.color] ?? step.color;
  return color;
};
const heat = (share) => {
  const stops = [[255, 255, 178], [254, 204, 92], [253, 141, 60], [240, 59, 32], [189, 0, 38]];
  const at = Math.min(Math.max(share, 0), 1) * (stops.length - 1), low = Math.floor(at);
  const high = Math.min(low + 1, stops.length - 1), part = at - low;
  return `rgb(${stops[low].map((c, i) => Math.round(c + (stops[high][i] - c) * part))})`;
};

// ---- axes ----------------------------------------------------------------------------------

const niceStep = (span, count, base) => {
  const rough = span / count, power = base ** Math.floor(Math.log(rough) / Math.log(base));
  const factors = base === 1024 ? [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024] : [1, 2, 2.5, 5, 10];
  return power * factors.find((factor) => factor * power >= rough * 0.999);
};
const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);

const timeAxis = (frame, x, height, width) => {
  const step = [1, 2, 5, 10, 15, 30, 60, 120, 300].find((s) => (TIME[1] - TIME[0]) / s <= width / 80);
  for (let t = Math.ceil(TIME[0] / step) * step; x(t) <= width - 24; t += step)
    frame.append(svg("text", { x: x(t), y: height - 3, "text-anchor": "middle" }, clock(t)));
};

const area = (body) => {
  const frame = svg("svg", {});
  body.append(frame);
  const { width, height } = frame.getBoundingClientRect();
  frame.setAttribute("viewBox", `0 0 ${width} ${height}`);
  return { frame, width, height };
};

// ---- kinds of panels -----------------------------------------------------------------------

const timeseries = (panel, queries, body) => {
  const defaults = panel.fieldConfig.defaults, custom = defaults.custom;
  const lines = queries.flat();
  const fixed = Object.fromEntries(panel.fieldConfig.overrides.map((o) =>
    [o.matcher.options, o.properties.find((p) => p.id === "color")?.value.fixedColor]));
  const colorFor = (n) => NAMED[fixed[lines[n].legend]] ?? fixed[lines[n].legend] ?? COLORS[n % COLORS.length];
  const legend = html("div", { class: "legend" });
  lines.forEach((line, n) => {
    const dot = html("i", { style: `background:${colorFor(n)}` });
    legend.append(html("span", {}, dot, `${line.legend}  ${show(last(line), defaults.unit, defaults.decimals)}`));
  });
  const holder = html("div", { style: "flex:1;min-height:0;display:flex" });
  body.append(holder, legend);
  const { frame, width, height } = area(holder);
  const stacked = custom.stacking.mode === "normal", base = new Map();
  const drawn = lines.map((line) => line.points.filter(([, v]) => Number.isFinite(v)).map(([t, v]) => {
    const under = stacked ? base.get(t) ?? 0 : 0;
    base.set(t, under + v);
    return [t, under + v, under];
  }));
  const values = drawn.flat().map((point) => point[1]);
  const low = Math.min(defaults.min ?? Infinity, ...values), peak = Math.max(...values, low);
  const top = defaults.max ?? (peak > low ? peak : low + 1);
  const step = niceStep(top - low, Math.max(2, height / 45), defaults.unit === "bytes" ? 1024 : 10);
  const high = Math.ceil(top / step - 1e-9) * step;
  const left = 66, x = (t) => left + (t - TIME[0]) / (TIME[1] - TIME[0]) * (width - left - 10);
  const y = (v) => height - 20 - (v - low) / (high - low) * (height - 28);
  for (let v = low; v <= high + step / 2; v += step) {
    frame.append(svg("line", { x1: left, x2: width - 10, y1: y(v), y2: y(v), stroke: "#26282f" }));
    frame.append(svg("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, show(v, defaults.unit)));
  }
  timeAxis(frame, x, height, width);
  drawn.forEach((points, n) => {
    const color = colorFor(n);
    for (const part of connected(points)) {
      const path = part.map(([t, v], i) => `${i ? "L" : "M"}${x(t)},${y(v)}`).join("");
      const back = part.slice().reverse().map(([t, , u]) => `L${x(t)},${y(stacked ? u : low)}`).join("");
      frame.append(svg("path", { d: `${path}${back}Z`, fill: color, opacity: custom.fillOpacity / 100 }));
      frame.append(svg("path", { d: path, fill: "none", stroke: color, "stroke-width": 1.5 }));
      if (part.length === 1) frame.append(svg("circle", { cx: x(part[0][0]), cy: y(part[0][1]), r: 2, fill: color }));
    }
  });
};

const connected = (points) => {
  const parts = [];
  points.forEach((point, n) => {
    if (n && point[0] - points[n - 1][0] <= 2.5 * STEP) parts[parts.length - 1].push(point);
    else parts.push([point]);
  });
  return parts;
};

const stat = (panel, queries, body) => {
  const { unit, decimals, thresholds } = panel.fieldConfig.defaults;
  const numbers = html("div", { class: "numbers" });
  for (const one of queries.flat()) {
    const text = panel.options.textMode === "name" ? one.legend : show(last(one), unit, decimals);
    const color = panel.options.colorMode === "value" ? colorOf(last(one), thresholds) : "#f0f0f5";
    const size = text.length > 12 ? 20 : 30;
    numbers.append(html("div", { class: "number", style: `color:${color};font-size:${size}px` }, text));
  }
  body.append(numbers);
};

const bargauge = (panel, queries, body) => {
  const { unit, decimals, thresholds, color, max } = panel.fieldConfig.defaults;
  const bars = queries.flat(), top = max ?? Math.max(...bars.map(last));
  for (const one of bars) {
    const fill = color.mode === "fixed" ? NAMED[color.fixedColor] : colorOf(last(one), thresholds);
    const share = Math.min(100, 100 * last(one) / (top || 1));
    const track = html("div", { class: "track" }, html("i", { style: `width:${share}%;background:${fill}` }));
    const number = html("span", { class: "right" }, show(last(one), unit, decimals));
    body.append(html("div", { class: "bar" }, html("span", {}, one.legend), track, number));
  }
};

const matrix = (panel, queries, options, body) => {
  const { unit, decimals } = panel.fieldConfig.defaults, series = queries.flat();
  const ranks = (name) => [...new Set(series.map((one) => one.labels[name]))].sort((a, b) => a - b);
  const all = series.map(last), low = Math.min(...all), high = Math.max(...all);
  const head = html("tr", {}, html("th", {}, "p \\ m"));
  for (const column of ranks(options.columnField)) head.append(html("th", {}, column));
  const shown = html("table", { class: "matrix" }, head);
  for (const row of ranks(options.rowField)) {
    const line = html("tr", {}, html("th", {}, row));
    for (const column of ranks(options.columnField)) {
      const one = series.find((s) => s.labels[options.rowField] === row && s.labels[options.columnField] === column);
      const value = one ? last(one) : NaN, share = high > low ? (value - low) / (high - low) : 0.3;
      const ink = share > 0.6 ? "#fff" : "#16171c";
      line.append(html("td", { style: `background:${heat(share)};color:${ink}` }, show(value, unit, decimals)));
    }
    shown.append(line);
  }
  body.append(shown);
};

const table = (panel, queries, body) => {
  const found = panel.transformations.find((step) => step.id === "groupingToMatrix");
  if (found) return matrix(panel, queries, found.options, body);
  const { indexByName, renameByName } = panel.transformations.find((t) => t.id === "organize").options;
  const units = Object.fromEntries(panel.fieldConfig.overrides.map((o) =>
    [o.matcher.options, o.properties.find((p) => p.id === "unit").value]));
  const names = Object.keys(indexByName).sort((a, b) => indexByName[a] - indexByName[b]);
  const labels = names.filter((name) => !name.startsWith("Value #"));
  // Rows of later queries join those that agree in all labels that both have.
  const rows = [];
  queries.forEach((series, n) => series.forEach((one) => {
    const given = labels.filter((name) => name in one.labels);
    const fits = rows.filter((row) => given.every((name) => !(name in row) || row[name] === one.labels[name]));
    const joined = n && fits.length ? fits : [{}];
    if (joined !== fits) rows.push(joined[0]);
    for (const row of joined) {
      given.forEach((name) => { row[name] = one.labels[name]; });
      row[`Value #${String.fromCharCode(65 + n)}`] = last(one);
    }
  }));
  const text = (row, name) => typeof row[name] === "number" ? show(row[name], units[renameByName[name]]) : row[name] ?? "";
  const side = (name) => ({ class: name.startsWith("Value #") ? "right" : "" });
  const shown = html("table", {}, html("tr", {}, ...names.map((name) => html("th", side(name), renameByName[name]))));
  for (const row of rows)
    shown.append(html("tr", {}, ...names.map((name) => html("td", side(name), text(row, name)))));
  body.append(shown);
};

const heatmap = (panel, queries, body) => {
  const { frame, width, height } = area(body);
  const bound = (one) => one.labels.le === "+Inf" ? Infinity : Number(one.labels.le);
  const buckets = queries.flat().sort((a, b) => bound(a) - bound(b));
  const counts = buckets.map((one, n) => {
    const below = new Map(n ? buckets[n - 1].points : []);
    return new Map(one.points.map(([t, v]) => [t, Math.max(0, v - (below.get(t) ?? 0))]));
  });
  const high = Math.max(...counts.flatMap((column) => [...column.values()]));
  const left = 66, x = (t) => left + (t - TIME[0]) / (TIME[1] - TIME[0]) * (width - left - 10);
  const tall = (height - 22) / buckets.length;
  counts.forEach((column, n) => {
    const y = height - 20 - (n + 1) * tall;
    const name = bound(buckets[n]) === Infinity ? "longer" : `≤ ${seconds(bound(buckets[n]))}`;
    frame.append(svg("text", { x: left - 6, y: y + tall / 2 + 4, "text-anchor": "end" }, name));
    for (const [t, v] of column)
      if (v > 1e-9) frame.append(svg("rect", { x: x(t), y: y + 0.5, height: tall - 1,
        width: Math.max(2, x(t + STEP) - x(t) + 0.3), fill: heat(Math.sqrt(v / high)) }));
  });
  timeAxis(frame, x, height, width);
};

const timeline = (panel, queries, body) => {
  const { frame, width, height } = area(body);
  const bands = queries.flat().sort((a, b) => a.points[0][0] - b.points[0][0]);
  const left = 80, x = (t) => left + (t - TIME[0]) / (TIME[1] - TIME[0]) * (width - left - 10);
  const tall = Math.min(34, (height - 22) / bands.length);
  bands.forEach((band, n) => {
    frame.append(svg("text", { x: left - 6, y: n * tall + tall / 2 + 4, "text-anchor": "end" }, band.legend));
    for (const part of connected(band.points))
      frame.append(svg("rect", { x: x(part[0][0]), y: n * tall + 2, height: tall - 4, fill: "#3274d9",
        width: Math.max(2, x(part[part.length - 1][0] + STEP) - x(part[0][0])) }));
  });
  timeAxis(frame, x, height, width);
};

const KINDS = { timeseries, stat, bargauge, table, heatmap, "state-timeline": timeline };

// ---- the page ------------------------------------------------------------------------------

document.title = BOARD.title;
document.body.prepend(html("h1", {}, BOARD.title), html("p", {}, BOARD.description));
const board = document.getElementById("board");
let bottom = 0;
for (const panel of BOARD.panels) {
  const { x, y, w, h } = panel.gridPos, column = (WIDTH - GAP) / 24;
  const place = `left:${GAP + x * column}px;top:${y * (CELL + GAP)}px;width:${w * column - GAP}px;` +
    `height:${h * (CELL + GAP) - GAP}px`;
  bottom = Math.max(bottom, (y + h) * (CELL + GAP));
  if (panel.type === "row") {
    board.append(html("div", { class: "row", style: place }, panel.title));
    continue;
  }
  const body = html("div", { class: "body" });
  board.append(html("div", { class: "panel", style: place, title: panel.description },
    html("h2", {}, panel.title), body));
  const queries = DATA[panel.id];
  if (queries.flat().length) KINDS[panel.type](panel, queries, body);
  else body.append(html("div", { class: "empty" }, "No data"));
}
board.style.height = `${bottom + GAP}px`;
