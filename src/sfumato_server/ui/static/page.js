"use strict";
// What the page does beyond forms and links, which work without it.

// Charts of a fragment that has just been put in its place.  Their scripts are fetched when the first one is there.
// Expressions are interpreted, never compiled, so that the page needs no permission to evaluate text as code.
let scripts = null;
const load = (addresses) => addresses.reduce((before, address) => before.then(() => new Promise((done, failed) => {
  const script = document.createElement("script");
  Object.assign(script, { src: address, onload: done, onerror: failed });
  document.head.append(script);
})), Promise.resolve());
const colours = () => {
  const style = getComputedStyle(document.documentElement);
  const [ink, line, accent] = ["--ink", "--faint", "--bar"].map((name) => style.getPropertyValue(name).trim());
  const range = [1, 2, 3, 4, 5, 6, 7, 8].map((place) => style.getPropertyValue(`--series-${place}`).trim());
  const text = { labelColor: ink, titleColor: ink };
  return {
    background: "transparent", view: { stroke: line }, range: { category: range }, legend: text,
    axis: { ...text, gridColor: line, domainColor: line, tickColor: line }, bar: { color: accent }, rule: { color: ink },
  };
};
const draw = () => {
  for (const place of document.querySelectorAll("[data-chart=spec]")) {
    place.dataset.chart = "drawn";
    scripts ??= load(place.dataset.scripts.split(" "));
    const spec = JSON.parse(place.querySelector("script").textContent);
    const how = { ast: true, actions: false, renderer: "canvas", defaultStyle: false, tooltip: false, config: colours() };
    scripts.then(() => vegaEmbed(place, spec, how)).then(({ view }) => {
      place.dataset.chart = "done";
      const save = place.parentElement.querySelector("[data-png]");
      save.hidden = false;
      save.onclick = () => view.toImageURL("png", 2).then((address) => {
        Object.assign(document.createElement("a"), { href: address, download: save.dataset.png }).click();
      });
    }, () => { place.dataset.chart = "failed"; place.hidden = true; });
  }
};
new MutationObserver(draw).observe(document.documentElement, { childList: true, subtree: true });

// A question that is under way says so, and cannot be sent twice; its answer is brought into view and focused, unless
// it is a preview that followed the slide.
const result = () => document.querySelector("#result");
const busy = (form, yes) => {
  for (const button of form.querySelectorAll("button")) button.disabled = yes;
  form.setAttribute("aria-busy", String(yes));
  result()?.setAttribute("aria-busy", String(yes));
};
let following = null;
document.addEventListener("htmx:before:request", (event) => {
  const form = event.target.closest("form");
  if (form && result()) busy(form, true);
});
document.addEventListener("htmx:finally:request", () => {
  for (const form of document.querySelectorAll("form[aria-busy=true]")) busy(form, false);
  if (!result()) return;
  const followed = following, live = result().querySelector("[data-live]");
  following = null;
  if (followed) followed.querySelector(".live").textContent = live ? live.dataset.live : "";
  if (followed) return;
  const heading = result().querySelector("h2") ?? result();
  heading.tabIndex = -1;
  heading.focus({ preventScroll: true });
  result().scrollIntoView({ block: "start" });
});

// The slide: powers of ten up to what is left, with the preview behind it.
const rounded = (number) => String(Number(number.toPrecision(2)));
const follow = (form) => {
  clearTimeout(form.waiting);
  form.waiting = setTimeout(() => {
    if (form.getAttribute("aria-busy") === "true") { follow(form); return; }
    following = form;
    form.querySelector("[data-preview]").click();
  }, 300);
};
const slides = () => {
  for (const slide of document.querySelectorAll("[data-slide]")) {
    const field = document.getElementById(slide.dataset.slide);
    const most = Math.log10(Math.max(Number(field.dataset.left) || 10, 1e-6));
    Object.assign(slide, { max: most, min: most - 4, value: Math.log10(Number(field.value) || 10 ** (most - 1)) });
    slide.closest(".slide").hidden = false;
    slide.oninput = () => { field.value = rounded(10 ** slide.value); follow(slide.form); };
    field.oninput = () => { if (Number(field.value) > 0) slide.value = Math.log10(Number(field.value)); };
  }
};
document.addEventListener("DOMContentLoaded", () => {
  draw();
  slides();
});
