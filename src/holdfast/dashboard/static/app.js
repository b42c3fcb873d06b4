// Keeps a page true while it is looked at. Every page works without this; it only saves reloads.
//
// The server tells once a second what has changed. The overview comes along as HTML; any other page
// asks for itself again, and its parts marked `data-refresh` are exchanged.

const REFRESH_TICKS = 5; // What changes without an event (workers, waits) is seen after so many ticks.
const REST = 8; // After a slow answer, rest this many times as long as it took.

const page = document.documentElement;
const sign = document.getElementById("live");
const overview = document.getElementById("overview");
let ahead = Number(page.dataset.now) - Date.now(); // The server's clock before ours, in ms.

// -- times ----------------------------------------------------------------------------------------

function span(s) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (s >= size * 2) return `${Math.round(s / size)} ${unit}`;
  }
  return s >= 10 ? `${Math.round(s)} s` : `${s.toFixed(1)} s`;
}

function retime() {
  const now = Date.now() + ahead;
  for (const one of document.querySelectorAll("time[data-at]")) {
    const s = (now - Number(one.dataset.at)) / 1000;
    const text = "plain" in one.dataset ? span(Math.abs(s)) : Math.abs(s) < 1 ? "now" : s > 0 ? `${span(s)} ago` : `in ${span(-s)}`;
    if (one.textContent !== text) one.textContent = text;
  }
}

// -- exchange of parts ----------------------------------------------------------------------------

// Where the keyboard is, in words that find it again after an exchange.
function place(part) {
  const at = document.activeElement;
  if (!at || at === document.body || !part.contains(at)) return null;
  const name = at.getAttribute("href") ?? at.form?.getAttribute("action") ?? at.id;
  return { name, tag: at.tagName };
}

function regain(part, was) {
  if (!was) return;
  for (const one of part.querySelectorAll(was.tag)) {
    const name = one.getAttribute("href") ?? one.form?.getAttribute("action") ?? one.id;
    if (name === was.name) return one.focus({ preventScroll: true });
  }
}

// A part that is being read by selection or typed into stays as it is.
function busy(part) {
  const chosen = document.getSelection();
  if (chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode)) return true;
  return ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement?.tagName) &&
    part.contains(document.activeElement);
}

// -- the list under the mouse ----------------------------------------------------------------------

// Its entries stay where they are, or a click would hit another one than was aimed at.
const LISTS = "tbody, ul.facts";
let list = null;
let entry = null;
let held = false;

function pointAt(element) {
  const before = list;
  list = element?.closest(LISTS) ?? null;
  entry = element?.closest("tr, li") ?? null;
  if (!held || list === before) return;
  held = false;
  say("live");
  if (document.querySelector("[data-refresh]")) refresh();
}

function names(rows) {
  return rows.map((one) => one.querySelector("a")?.getAttribute("href")).join(" ");
}

// Exchanges what is around the list; inside it, all but the entry under the mouse, if none moves.
function around(part, fresh) {
  const [ours, theirs] = [[...part.children], [...fresh.children]];
  if (ours.length !== theirs.length || (part === list && names(ours) !== names(theirs))) {
    held = true;
    return say("live; held under the mouse");
  }
  ours.forEach((one, n) => one === entry || exchange(one, theirs[n]));
}

addEventListener("pointerover", (event) => pointAt(event.target));
document.documentElement.addEventListener("pointerleave", () => pointAt(null));

// What was unfolded stays so.
function unfold(part, fresh) {
  const open = new Set([...part.querySelectorAll("details[open]")].map((one) => one.dataset.key));
  for (const one of fresh.querySelectorAll("details")) one.toggleAttribute("open", open.has(one.dataset.key));
}

function exchange(part, fresh) {
  unfold(part, fresh);
  if (busy(part) || part.innerHTML === fresh.innerHTML) return;
  if (list && part.contains(list)) return around(part, fresh);
  const was = place(part);
  part.replaceChildren(...fresh.childNodes);
  if (part.hasAttribute("data-refresh")) {
    part.toggleAttribute("data-alive", fresh.hasAttribute("data-alive"));
  }
  regain(part, was);
}

function parsed(text) {
  return new DOMParser().parseFromString(text, "text/html"); // Inert: nothing in it runs.
}

let asking = false;
let notBefore = 0;
let owed = false;

async function refresh() {
  if (asking || Date.now() < notBefore) {
    owed = true;
    return;
  }
  asking = true;
  owed = false;
  const started = Date.now();
  try {
    const answer = await fetch(location.href, { headers: { accept: "text/html" } });
    if (answer.redirected) return location.reload();
    if (!answer.ok) return say(answer.status === 404 ? "gone" : "no answer", true);
    const fresh = parsed(await answer.text());
    for (const part of document.querySelectorAll("[data-refresh]")) {
      const other = fresh.getElementById(part.id);
      if (other) exchange(part, document.importNode(other, true));
    }
    ahead = Number(fresh.documentElement.dataset.now) - Date.now();
    retime();
  } catch {
    say("no answer", true);
  } finally {
    asking = false;
    notBefore = Date.now() + (Date.now() - started) * REST;
  }
}

// -- the stream -----------------------------------------------------------------------------------

let stream = null;
let last = 0;
let quiet = 0;

function say(words, bad = false) {
  if (!sign) return;
  sign.hidden = false;
  sign.classList.toggle("bad", bad);
  if (sign.textContent !== words) sign.textContent = words;
}

function concerns(told, missed) {
  const parts = [...document.querySelectorAll("[data-refresh]")];
  if (!parts.length) return false;
  quiet += 1;
  const jobs = new Set(parts.map((one) => one.dataset.refresh).filter(Boolean));
  if (!jobs.size) return owed || told.any || missed || quiet >= REFRESH_TICKS;
  const alive = document.querySelector("[data-alive]") !== null;
  const named = told.more || told.jobs.some((one) => jobs.has(one));
  return owed || named || missed || (alive && quiet >= REFRESH_TICKS);
}

function onTick(event) {
  const told = JSON.parse(event.data);
  const number = Number(event.lastEventId);
  const missed = last === 0 || number !== last + 1;
  last = number;
  ahead = told.now - Date.now();
  if (!held) say("live");
  if (concerns(told, missed)) {
    quiet = 0;
    refresh();
  }
}

function onOverview(event) {
  const told = JSON.parse(event.data);
  ahead = told.now - Date.now();
  const fresh = parsed(`<div>${told.html}</div>`).body.firstElementChild;
  exchange(overview, document.importNode(fresh, true));
  retime();
}

function listen() {
  if (stream || !sign) return;
  stream = new EventSource(`/ui/live${overview ? "?topic=overview" : ""}`);
  stream.addEventListener("tick", onTick);
  stream.addEventListener("overview", onOverview);
  stream.addEventListener("trouble", (event) => say(JSON.parse(event.data).words, true));
  stream.addEventListener("error", () => {
    say("not live", true);
    last = 0;
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(watch, 5000);
    }
  });
}

// Nobody looks at a hidden page: it follows nothing, and the server then need not look either.
function watch() {
  if (document.visibilityState === "visible") {
    listen();
  } else if (stream) {
    stream.close();
    stream = null;
    last = 0;
  }
}

// -- bulk acts ------------------------------------------------------------------------------------

// Sends each step and shows the answer, until an answer has no next step.
async function steps(form) {
  const bulk = document.getElementById("bulk");
  let stopped = false;
  bulk.addEventListener("click", (event) => {
    if (event.target.closest("a")) stopped = true;
  });
  while (form && !stopped) {
    form.querySelector("button").disabled = true;
    const body = new URLSearchParams(new FormData(form));
    const answer = await fetch(form.action, { method: "POST", body });
    const fresh = parsed(await answer.text());
    const other = fresh.getElementById("bulk") ?? fresh.querySelector("main > section");
    bulk.replaceChildren(...document.importNode(other, true).childNodes);
    form = bulk.querySelector("form[data-steps]");
  }
}

document.addEventListener("submit", (event) => {
  if (event.target.matches("form[data-steps]")) {
    event.preventDefault();
    steps(event.target);
  }
});

document.addEventListener("visibilitychange", watch);
addEventListener("pagehide", () => stream?.close());
setInterval(retime, 1000);
watch();
