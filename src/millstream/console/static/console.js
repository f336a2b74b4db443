// What the console's pages do beyond showing HTML: times in the reader's zone, keys, theme, charts.
"use strict";

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

// Times: written in UTC by the server, shown in the reader's zone.
// With 24 hours, and the date unless it is today's: they stand below each other, and are compared with logs.
const two = (number) => String(number).padStart(2, "0");
const clockOf = (moment) => [moment.getHours(), moment.getMinutes(), moment.getSeconds()].map(two).join(":");
const dateOf = (moment) => [moment.getFullYear(), two(moment.getMonth() + 1), two(moment.getDate())].join("-");
const otherDay = { format: (milliseconds) => `${dateOf(new Date(milliseconds))} ${clockOf(new Date(milliseconds))}` };
function localTimes(root) {
  for (const element of $$("time[datetime]", root)) {
    const moment = new Date(element.dateTime);
    if (Number.isNaN(moment.valueOf())) continue;
    const today = moment.toDateString() === new Date().toDateString();
    const precise = element.dataset.precise === undefined ? "" : `.${String(moment.getMilliseconds()).padStart(3, "0")}`;
    element.textContent = (today ? clockOf(moment) : otherDay.format(moment)) + precise;
    element.title = element.dateTime;
  }
}

// Theme: as the system has it until the reader chooses.
function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("theme", root.dataset.theme);
  charts.forEach((chart) => chart.draw());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts.forEach((chart) => chart.draw()));

// Charts: <div class="chart" data-chart="/api/..." data-names='{"in": "in"}' data-unit="/s">. The address gives
// {times, series}; points that come later stand in <data data-chart-point="id" value="[time, ...]">. Without names,
// every series is a line; which ones may change, so <data data-chart-fresh="id" value="..."> has it loaded again.
const charts = new Map();

function short(value, unit) {
  if (value == null) return "–";
  for (const prefix of ["", " k", " M", " G"]) {
    if (Math.abs(value) < 999.5) return `${+value.toPrecision(Math.abs(value) < 1 ? 2 : 3)}${prefix}${unit}`;
    value /= 1000;
  }
  return `${+value.toPrecision(3)} T${unit}`;
}

const BESIDE = 64, RIGHT = 12; // pixels: of the axis on the left, and of room on the right

class Chart {
  constructor(element) {
    this.element = element;
    this.names = JSON.parse(element.dataset.names ?? "{}");
    this.data = [[], ...Object.keys(this.names).map(() => [])];
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
    this.load();
  }
  size() {
    const style = getComputedStyle(this.element);
    const inside = this.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    return { width: Math.max(200, inside), height: +(this.element.dataset.height ?? 200) };
  }
  async load() {
    const answer = await fetch(this.element.dataset.chart).catch(() => null);
    if (!answer?.ok) return;
    const { times, series } = await answer.json();
    const before = JSON.stringify(this.names);
    if (!this.element.dataset.names) this.names = Object.fromEntries(Object.keys(series).map((name) => [name, name]));
    const zoomed = this.plot && this.data[0].length > 1 && this.plot.scales.x.max < this.data[0].at(-1);
    this.data = [times, ...Object.keys(this.names).map((name) => series[name])];
    if (this.plot && before === JSON.stringify(this.names)) {
      this.plot.setData(this.data, !zoomed); // what the reader has zoomed into stays
      this.newest();
    } else this.draw();
  }
  draw() {
    const style = getComputedStyle(this.element);
    const color = (name) => style.getPropertyValue(name).trim();
    const unit = this.element.dataset.unit ?? "";
    const small = this.size().height < 150;
    const clock = (seconds) => ({ format: (milliseconds) => clockOf(new Date(milliseconds)).slice(0, seconds ? 8 : 5) });
    // At the edges a label would be cut off, or stand on one of the other axis. When it is drawn for the first time
    // the plot does not know its own width yet.
    const fits = (plot, value) => {
      const { min, max } = plot.scales.x;
      const wide = this.size().width - BESIDE - RIGHT;
      const at = ((value - min) / (max - min)) * wide;
      return at >= 26 && wide - at >= 26;
    };
    const times = (plot, values) => values.map((value) => (fits(plot, value) ? clock(plot.scales.x.max - plot.scales.x.min < 600).format(value * 1000) : ""));
    const axis = { stroke: color("--axis"), grid: { stroke: color("--grid"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    this.plot?.destroy();
    this.plot = new uPlot({
      ...this.size(),
      padding: [null, RIGHT, null, null],
      cursor: { drag: { x: true, y: false }, points: { size: 6 } },
      legend: { live: true },
      scales: { x: { range: (plot, low, high) => this.span(low, high) }, y: { range: (plot, low, high) => [0, this.top(high, unit)] } },
      axes: [{ ...axis, values: times, space: 80, size: small ? 24 : 32 }, { ...axis, size: BESIDE, space: small ? 24 : 30, values: (plot, values) => values.map((value) => short(value, unit)) }],
      series: [
        { label: "at", value: (plot, value) => (value == null ? "–" : otherDay.format(value * 1000)) },
        ...Object.values(this.names).map((label, at) => ({
          label,
          stroke: color(`--line-${at + 1}`),
          fill: at || Object.keys(this.names).length > 2 ? undefined : color("--area"),
          width: 2,
          points: { show: (plot) => plot.data[0].length < 3, size: 6 }, // of which there is no line yet
          value: (plot, value) => short(value, unit),
        })),
      ],
    }, this.data, this.element);
    this.plot.over.addEventListener("mouseleave", () => this.newest());
    this.newest();
  }
  // The legend tells the newest values while nobody points at others.
  newest() {
    requestAnimationFrame(() => { // after uPlot has drawn, which empties it
      if (this.data[0].length && !this.plot.over.matches(":hover")) this.plot.setLegend({ idx: this.data[0].length - 1 });
    });
  }
  // One spike does not flatten the rest: it is cut off, and its height told.
  top(high, unit) {
    const values = this.data.slice(1).flat().filter((value) => value > 0).sort((one, other) => one - other);
    const usual = values[Math.floor(values.length * 0.97)] ?? 0;
    const cut = values.length >= 30 && high > 5 * usual;
    if (cut) this.element.dataset.peak = `a peak of ${short(high, unit)} is cut off`;
    else delete this.element.dataset.peak;
    return cut ? usual * 2 : high > 0 ? high * 1.15 : 1;
  }
  // Two minutes at least, unless the reader has chosen less by dragging.
  span(low, high) {
    const times = this.data[0];
    if (!times.length) return [low, high];
    if (times.length === 1) return [times[0] - 120, times[0]]; // of which uPlot would make a day
    return [low <= times[0] ? Math.min(low, high - 120) : low, high];
  }
  refresh(version) {
    if (this.version !== undefined && this.version !== version) this.load();
    this.version = version;
  }
  add(point) {
    const times = this.data[0];
    if (!point.length || (times.length && point[0] <= times[times.length - 1])) return;
    point.forEach((value, at) => this.data[at].push(value));
    while (times.length > 3600) this.data.forEach((column) => column.shift());
    if (this.plot) {
      this.plot.setData(this.data);
      this.newest();
    } else this.draw();
  }
}

function startCharts(root) {
  for (const element of $$(".chart[data-chart]", root)) {
    if (!charts.has(element.id)) charts.set(element.id, new Chart(element));
  }
}

// What scrolls sideways can be reached by keys, and stays where the reader has moved it though its content is replaced
// every second. A drawing begins in its middle, where its first box is.
const moved = new WeakMap(); // of what is replaced: how far each of its parts was scrolled
const scrolling = ".scroll, pre.command";
const scrollers = (root) => [...(root.matches?.(scrolling) ? [root] : []), ...$$(scrolling, root)];
function remember(target) {
  moved.set(target, scrollers(target).map((part) => part.scrollLeft));
}
function settle(root) {
  const before = moved.get(root);
  scrollers(root).forEach((part, at) => {
    const wide = part.scrollWidth > part.clientWidth;
    part.toggleAttribute("data-wide", wide);
    if (wide) part.tabIndex = 0;
    else part.removeAttribute("tabindex");
    if (before?.[at] !== undefined) part.scrollLeft = before[at];
    else if (part.matches(".drawing")) part.scrollLeft = (part.scrollWidth - part.clientWidth) / 2;
  });
  moved.delete(root);
}
addEventListener("resize", () => settle(document));

// Everything that came new into the page.
function arrived(root) {
  settle(root);
  localTimes(root);
  localInputs(root);
  startCharts(root);
  for (const point of $$("[data-chart-point]", root)) {
    charts.get(point.dataset.chartPoint)?.add(JSON.parse(point.value));
  }
  for (const fresh of $$("[data-chart-fresh]", root)) charts.get(fresh.dataset.chartFresh)?.refresh(fresh.value);
  if ($("[data-away]") && $("#status [data-up]")) location.reload();
}

// A fragment that comes while a word in it is selected, or a link in it has the focus, would take that away: it
// waits until that is over.
const waiting = new Map();
function isInUse(target) {
  const selection = getSelection();
  const selected = selection && !selection.isCollapsed && target.contains(selection.anchorNode);
  return selected || (target !== document.activeElement && target.contains(document.activeElement));
}

document.addEventListener("htmx:sseBeforeMessage", (event) => {
  if (event.target.matches("[data-tail-rows]")) {
    event.preventDefault();
    tail.take(event.target, event.detail.data);
    return;
  }
  waiting.delete(event.target);
  if (!isInUse(event.target)) {
    remember(event.target);
    return;
  }
  waiting.set(event.target, event.detail.data);
  event.preventDefault();
});
function bringWaiting() {
  for (const [target, html] of waiting) {
    if (isInUse(target)) continue;
    waiting.delete(target);
    if (!target.isConnected) continue;
    remember(target);
    htmx.swap(target, html, { swapStyle: "innerHTML" });
    arrived(target);
  }
}
document.addEventListener("selectionchange", bringWaiting);
document.addEventListener("focusout", () => setTimeout(bringWaiting)); // once the focus is where it goes
document.addEventListener("htmx:sseMessage", (event) => arrived(event.target));
document.addEventListener("htmx:afterSwap", (event) => arrived(event.target));
document.addEventListener("htmx:sseError", () => { $("#lost").hidden = false; });
let opened = false;
document.addEventListener("htmx:sseOpen", () => {
  $("#lost").hidden = true;
  if (opened) charts.forEach((chart) => chart.load()); // what was missed meanwhile
  opened = true;
});

// Following a topic: what comes is put on top, unless the reader has paused or has something open in it; then it is
// held back, up to a bound. What came twice (a stream begins again where its page did) is known by its id.
const tail = {
  most: 500,
  held: [],
  paused: false,
  take(list, html) {
    const made = document.createElement("template");
    made.innerHTML = html;
    this.held.push(...[...made.content.children].reverse());
    this.lost = (this.lost ?? 0) + Math.max(0, this.held.length - this.most);
    this.held.splice(0, this.held.length - this.most);
    this.show(list);
  },
  show(list) {
    if (!this.paused && !$("details[open]", list)) {
      for (const row of this.held.splice(0)) {
        if (row.id && document.getElementById(row.id)) continue;
        list.prepend(row);
        htmx.process(row);
        arrived(row);
      }
      while (list.children.length > this.most) list.lastElementChild.remove();
      $(".empty", list.parentElement)?.remove();
      this.lost = 0;
    }
    const waits = this.held.length;
    const why = this.paused ? "Paused" : "Waiting until the message is closed";
    const more = this.lost ? `, ${this.lost} older ones are left out` : "";
    $("[data-tail-state]").textContent = waits || this.paused ? `${why}; ${waits} new${more}.` : "Following; the newest come on top.";
    $("[data-tail]").classList.toggle("paused", this.paused || waits > 0);
  },
  toggle(button) {
    this.paused = !this.paused;
    button.textContent = this.paused ? "Continue" : "Pause";
    button.setAttribute("aria-pressed", String(this.paused));
    this.show($("[data-tail-rows]"));
  },
};
document.addEventListener("toggle", (event) => {
  const list = event.target.closest("[data-tail-rows]");
  if (list) tail.show(list);
}, true);

// Times that are typed: in the reader's zone, and in UTC in the address, so that it means the same to others.
const typedTime = /^\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?)?$/;
function localInputs(root) {
  for (const input of $$("[data-time]", root)) {
    const moment = new Date(input.value);
    if (!/Z$/.test(input.value) || Number.isNaN(moment.valueOf())) continue;
    const local = new Date(moment - moment.getTimezoneOffset() * 60000).toISOString();
    input.value = local.slice(0, 19).replace("T", " ");
  }
  for (const zone of $$("[data-zone]", root)) zone.textContent = Intl.DateTimeFormat().resolvedOptions().timeZone;
}
document.addEventListener("formdata", (event) => {
  if (!event.target.matches("[data-tidy]")) return;
  for (const [name, value] of [...event.formData]) {
    const input = event.target.elements.namedItem(name);
    if (value === "") event.formData.delete(name);
    else if (input?.dataset?.time !== undefined && typedTime.test(value)) {
      event.formData.set(name, new Date(value.length === 10 ? `${value}T00:00` : value.replace(" ", "T")).toISOString());
    }
  }
});

async function copy(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch { // not allowed on pages that are not served safely
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  const label = button.textContent;
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = label; }, 1500);
}

// A stream that rests while its tab is hidden: a browser opens only six to one server, and tabs stay open.
class RestingStream {
  constructor(url) {
    this.url = url;
    this.listeners = [];
    this.look = () => (document.hidden ? this.rest() : this.wake());
    document.addEventListener("visibilitychange", this.look);
    this.wake();
  }
  get readyState() {
    return this.source ? this.source.readyState : EventSource.CONNECTING;
  }
  wake() {
    if (this.source) return;
    this.source = new EventSource(this.url);
    this.source.onopen = (event) => this.onopen?.(event);
    this.source.onerror = (event) => this.onerror?.(event);
    this.listeners.forEach(([name, listener]) => this.source.addEventListener(name, listener));
  }
  rest() {
    this.source?.close();
    this.source = null;
  }
  addEventListener(name, listener) {
    this.listeners.push([name, listener]);
    this.source?.addEventListener(name, listener);
  }
  removeEventListener(name, listener) {
    this.listeners = this.listeners.filter(([other, known]) => other !== name || known !== listener);
    this.source?.removeEventListener(name, listener);
  }
  close() {
    document.removeEventListener("visibilitychange", this.look);
    this.rest();
  }
}
htmx.createEventSource = (url) => new RestingStream(url);
// Keys.
let afterG = 0;
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "Enter" && event.target.matches("[data-run]")) {
    event.target.form.requestSubmit();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.closest("input, textarea, select, [contenteditable]");
  if (typing) {
    if (event.key === "Escape") typing.blur();
    return;
  }
  if (event.key === "/" && $("[data-search]")) {
    event.preventDefault();
    $("[data-search]").select();
    $("[data-search]").focus();
  } else if (event.key === "?") {
    $("#help").showModal();
  } else if (event.key === "d") {
    toggleTheme();
  } else if (event.key === "g" && Date.now() - afterG >= 1500) {
    afterG = Date.now();
    return;
  } else if (Date.now() - afterG < 1500) {
    $(`[data-shortcut="${CSS.escape(event.key)}"]`)?.click();
  }
  afterG = 0;
});

document.addEventListener("click", (event) => {
  if (event.target.closest("[data-theme-toggle]")) toggleTheme();
  if (event.target.closest("[data-help]")) $("#help").showModal();
  const pause = event.target.closest("[data-tail-pause]");
  if (pause) tail.toggle(pause);
  const copied = event.target.closest("[data-copy]");
  if (copied) copy(document.getElementById(copied.dataset.copy).textContent, copied);
  const linked = event.target.closest("[data-copy-link]");
  if (linked) copy(new URL(linked.dataset.copyLink, location.href).href, linked);
  const fold = event.target.closest(".fold");
  if (fold) {
    const open = document.body.classList.toggle("open");
    fold.setAttribute("aria-expanded", String(open));
  }
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

arrived(document);
$(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
