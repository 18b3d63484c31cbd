"use strict";
// The additions to forms and links, which work without scripts.

// A form under way says so, and its buttons send nothing twice.  Its result is brought into view and focused.
const result = () => document.querySelector("#result");
const busy = (form, yes) => {
  for (const button of form.querySelectorAll("button")) button.disabled = yes;
  form.setAttribute("aria-busy", String(yes));
  result()?.setAttribute("aria-busy", String(yes));
};
document.addEventListener("htmx:before:request", (event) => {
  const form = event.target.closest("form");
  if (form && result()) busy(form, true);
});
document.addEventListener("htmx:finally:request", () => {
  for (const form of document.querySelectorAll("form[aria-busy=true]")) busy(form, false);
  if (!result()) return;
  result().setAttribute("aria-busy", "false"); // the form may have been in the result
  const heading = result().querySelector("h2") ?? result();
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  result().scrollIntoView({ block: "start" });
  const question = document.querySelector("#question");
  if (question) follow(question, 0); // what is left has changed
});

// The expected error and the cost, which follow the form as it changes.  A newer request ends an older one.
const follow = (form, wait = 350) => {
  clearTimeout(form.waiting);
  form.waiting = setTimeout(async () => {
    const place = form.querySelector("[data-expected]");
    form.request?.abort();
    form.request = new AbortController();
    const sent = { method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "HX-Request": "true" } };
    try {
      const reply = await fetch(place.dataset.expected, { ...sent, signal: form.request.signal });
      place.innerHTML = await reply.text();
      place.dataset.state = "done";
    } catch { place.dataset.state = "failed"; } // a newer request, or no network
  }, wait);
};

// The slide: powers of ten up to the largest epsilon that fits.
const rounded = (number) => String(Number(number.toPrecision(2)));
const slides = () => {
  for (const slide of document.querySelectorAll("[data-slide]")) {
    const field = document.getElementById(slide.dataset.slide);
    const most = Math.log10(Math.max(Number(field.dataset.most), 1e-6));
    Object.assign(slide, { max: most, min: most - 4, value: Math.log10(Number(field.value) || 10 ** (most - 1)) });
    slide.closest(".slide").hidden = false;
    const mark = () => slide.classList.toggle("unset", !field.value); // the field has no default
    slide.oninput = () => { field.value = rounded(10 ** slide.value); mark(); };
    field.oninput = () => { if (Number(field.value) > 0) slide.value = Math.log10(Number(field.value)); mark(); };
    mark();
  }
};
document.addEventListener("DOMContentLoaded", () => {
  slides();
  for (const place of document.querySelectorAll("form [data-expected]")) {
    const form = place.closest("form");
    form.addEventListener("input", () => follow(form));
    follow(form, 0);
  }
});
