// What pages do beyond links and forms: live regions, dialogs, keys. Reading works without it.
"use strict";

const MORPH_KEEPS = new Set(["open", "checked", "value", "selected"]);

// A live update leaves alone what a person has opened, ticked or typed. Not by ignoreActiveValue: that would also keep
// the words of a focused button whose meaning has changed.
Idiomorph.defaults.callbacks.beforeAttributeUpdated = (name, node) =>
  !(MORPH_KEEPS.has(name) && node.matches("details, dialog, input, select, textarea, option"));

const liveState = document.getElementById("live-state");

function showLive(state, word) {
  if (!liveState || liveState.dataset.liveState === state) return;
  liveState.dataset.liveState = state;
  liveState.querySelector("span").textContent = word;
}

// Selected text would lose its place; a finger or mouse held down is about to do something.
let held = false;
addEventListener("pointerdown", () => { held = true; });
addEventListener("pointerup", () => { held = false; });
const busy = () => held || String(getSelection()).length > 0;

const lastTick = new WeakMap();
setInterval(() => {
  const regions = document.querySelectorAll("[data-live]");
  showLive(regions.length ? (document.hidden ? "still" : liveState?.dataset.lost ? "lost" : "live") : "still",
    regions.length ? (liveState?.dataset.lost ? "no connection" : "live") : "still");
  if (document.hidden || busy()) return;
  for (const region of regions) {
    const now = performance.now();
    if (now - (lastTick.get(region) ?? 0) < Number(region.dataset.live)) continue;
    lastTick.set(region, now);
    htmx.trigger(region, "tick");
  }
}, 250);
document.addEventListener("htmx:sendError", () => { if (liveState) liveState.dataset.lost = "1"; });
document.addEventListener("htmx:afterRequest", (event) => {
  if (event.detail.successful && liveState) delete liveState.dataset.lost;
});

// Somebody who has scrolled into a list reads it: the update stays at the rows they see and says how many are new.
document.addEventListener("htmx:configRequest", (event) => {
  const { newest } = event.target.dataset;
  if (newest && scrollY > 160) event.detail.parameters.upto = newest;
});

// Copying: what the button names, or the payload it stands in.
document.documentElement.dataset.scripted = "";
const copied = document.getElementById("copied");
document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy]");
  if (!button) return;
  event.preventDefault();
  const text = button.dataset.copy || button.closest(".payload").querySelector("pre").textContent;
  try {
    await navigator.clipboard.writeText(text);
    copied.textContent = "Copied";
  } catch {
    copied.textContent = "The browser did not allow copying";
  }
  copied.hidden = false;
  setTimeout(() => { copied.hidden = true; copied.textContent = ""; }, 1600);
});

// Dialogs: opened when their content has arrived, closed when the verb is done or refused.
const dialog = document.getElementById("dialog");
document.addEventListener("htmx:afterSwap", (event) => {
  if (event.detail.target === dialog && !dialog.open && dialog.firstElementChild) {
    dialog.showModal();
    const first = dialog.querySelector("[autofocus]");
    first?.focus();
    // htmx would focus it once more when it settles, and take the focus back from whoever is quicker.
    first?.removeAttribute("autofocus");
  }
});
document.addEventListener("verb-done", () => dialog?.close());
dialog?.addEventListener("close", () => dialog.replaceChildren());
document.addEventListener("click", (event) => {
  if (event.target.closest("[data-close]") && dialog?.open) { event.preventDefault(); dialog.close(); }
});

// Ticking: one box for all of its page; shown only where it works.
function readyTicks() {
  for (const box of document.querySelectorAll("[data-tick-all]")) box.hidden = false;
}
readyTicks();
document.addEventListener("htmx:afterSwap", readyTicks);
document.addEventListener("change", (event) => {
  const name = event.target.dataset?.tickAll;
  if (!name) return;
  for (const box of event.target.form.querySelectorAll(`input[name="${name}"]`)) box.checked = event.target.checked;
});

// The zone button switches between the browser's zone and UTC.
const zoneButton = document.querySelector("[data-zone-switch]");
if (zoneButton) {
  const local = Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  zoneButton.value = zoneButton.textContent.trim() === "UTC" ? local : "UTC";
}

// Keys
const keys = document.getElementById("keys");
const keysButton = document.querySelector("[data-open-keys]");
if (keysButton) {
  keysButton.hidden = false;
  keysButton.addEventListener("click", () => keys.showModal());
}
const places = { o: "/overview/", r: "/runs/", i: "/inbox/", e: "/effects/", s: "/systems/", w: "/workers/", p: "/pauses/" };
let going = 0;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.target.closest("input, textarea, select")) return;
  if (event.key === "?") { keys.showModal(); return; }
  if (event.key === "/") { const box = document.getElementById("add"); if (box) { event.preventDefault(); box.focus(); } else location.href = "/runs/"; return; }
  if (event.key === "g") { going = performance.now(); return; }
  if (performance.now() - going < 1200 && places[event.key]) { location.href = places[event.key]; return; }
  if (event.key === "j" || event.key === "k") {
    const links = [...document.querySelectorAll(".run-row .mono a")];
    const at = links.indexOf(document.activeElement);
    const next = links[event.key === "j" ? Math.min(at + 1, links.length - 1) : Math.max(at - 1, 0)];
    if (next) { event.preventDefault(); next.focus(); next.scrollIntoView({ block: "nearest" }); }
  }
});
