// What pages gain with scripts. Every form and link works without this file.
"use strict";

const root = document.documentElement;
const THEME_KEY = "farthing-theme";
const COPIED_MS = 1500;

// Runs before the first paint, so that a chosen theme never flashes.
const chosen = localStorage.getItem(THEME_KEY);
if (chosen === "light" || chosen === "dark") root.dataset.theme = chosen;

function isDark() {
  const set = root.dataset.theme;
  return set ? set === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function toggleTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem(THEME_KEY, root.dataset.theme);
}

async function copy(button) {
  const source = button.dataset.copyFrom && document.getElementById(button.dataset.copyFrom);
  await navigator.clipboard.writeText(source ? source.textContent : button.dataset.copy);
  button.classList.add("copied");
  setTimeout(() => button.classList.remove("copied"), COPIED_MS);
}

// A moment is printed in UTC; its title adds the reader's own time.
function nameOwnTime(time) {
  const moment = new Date(time.dateTime);
  if (Number.isNaN(moment.valueOf()) || time.dataset.own) return;
  const own = moment.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
  time.title = `${time.title}\n${own}`;
  time.dataset.own = "yes";
}

// A button armed by a tick or by the name of the thing, both of which the server asks for as well.
function arm(field) {
  const button = document.getElementById(field.dataset.arms);
  const ready = field.type === "checkbox" ? field.checked : field.value === field.dataset.expect;
  if (button) button.disabled = !ready;
}

// An id is text to select; with scripts it is a button as well.
function nameButton(id) {
  id.tabIndex = 0;
  id.setAttribute("role", "button");
}

function prepare(part) {
  part.querySelectorAll(".id[data-copy]").forEach(nameButton);
  part.querySelectorAll("[data-needs-script]").forEach((element) => { element.hidden = false; });
  part.querySelectorAll("time[datetime]").forEach(nameOwnTime);
  part.querySelectorAll("[data-arms]").forEach(arm);
}

function closeOthers(target) {
  document.querySelectorAll("details.drop[open]").forEach((details) => {
    if (!details.contains(target)) details.open = false;
  });
}

document.addEventListener("DOMContentLoaded", () => prepare(document));
document.addEventListener("htmx:load", (event) => prepare(event.target));
document.addEventListener("input", (event) => {
  if (event.target.matches("[data-arms]")) arm(event.target);
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeOthers(null);
  if (event.key === "Enter" && event.target.matches(".id[data-copy]")) copy(event.target);
});
document.addEventListener("click", (event) => {
  closeOthers(event.target);
  const button = event.target.closest("[data-copy], [data-copy-from]");
  if (button) copy(button);
  if (event.target.closest("[data-theme-toggle]")) toggleTheme();
  const dismissed = event.target.closest("[data-dismiss]");
  if (dismissed) dismissed.closest(".toast").remove();
});
